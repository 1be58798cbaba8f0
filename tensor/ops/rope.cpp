#include <chorus/tensor/kernels/rope.h>
#include <chorus/tensor/ops/rope.h>

#include <algorithm>

namespace chorus {

Tensor rope(const Tensor& x, const Rows& rows, int heads, int head_dim, double base) {
  require(x && x.rank() == 2 && is_floating(x.dtype()), "rope", "takes floating [rows, heads * head_dim], given ", x);
  require(head_dim > 0 && head_dim % 2 == 0, "rope", "head_dim ", head_dim, "; it must be even");
  require(heads >= 0 && x.size(1) >= std::int64_t{heads} * head_dim && x.size(1) % head_dim == 0, "rope", heads, " heads of ",
          head_dim, " in ", x);
  require(rows.positions.numel() == x.size(0), "rope", rows.positions.numel(), " positions for ", x);
  const Span span(x.context().trace, "rope");
  const auto positions = rows.positions.span<const std::int32_t>();
  const auto negative = std::find_if(positions.begin(), positions.end(), [](std::int32_t p) { return p < 0; });
  require(negative == positions.end(), "rope", "position ", negative == positions.end() ? 0 : *negative, " of row ",
          negative - positions.begin(), "; positions count from 0");
  const Cpu device = cpu(x.context(), "rope");
  kernel::RopeTables own;  // of rows that were put together by hand
  const kernel::RopeTable table =
      (rows.rope_tables ? *rows.rope_tables : own).find(device, rows.positions, head_dim, base, wide(x.dtype()));
  Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
  kernel::rope(device, x, table, heads, head_dim, false, y);
  return record("rope", y, {x}, {table.values, table.slots}, [heads, head_dim](const Backward& b) {
    Tensor dx = Tensor::empty(b.dy.context(), b.dy.shape(), b.dy.dtype());
    kernel::rope(cpu(dx.context(), "rope"), b.dy, {b.saved[0], b.saved[1]}, heads, head_dim, true, dx);
    return Grads{dx};
  });
}

}  // namespace chorus
