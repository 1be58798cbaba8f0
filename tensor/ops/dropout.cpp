#include <chorus/tensor/kernels/dropout.h>
#include <chorus/tensor/ops/dropout.h>

#include <cmath>

namespace chorus {

Tensor dropout(const Tensor& x, const Rows& rows, double p, RandomKey key) {
  require(x && x.rank() == 2 && is_floating(x.dtype()), "dropout", "takes floating [rows, n], given ", x);
  require(x.size(0) == rows.count(), "dropout", x, " for ", rows.count(), " rows");
  require(p >= 0 && std::lround(p * 65536) < 65536, "dropout", "probability ", p, "; it must be in [0, 1)");
  const Span span(x.context().trace, "dropout");
  const auto threshold = static_cast<std::uint32_t>(std::lround(p * 65536));
  if (threshold == 0) return x;
  Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
  kernel::dropout(cpu(x.context(), "dropout"), x, rows.ids, rows.index, threshold, key, y);
  // The mask is drawn again rather than kept.
  return record("dropout", y, {x}, {rows.ids, rows.index}, [threshold, key](const Backward& b) {
    Tensor dx = Tensor::empty(b.dy.context(), b.dy.shape(), b.dy.dtype());
    kernel::dropout(cpu(dx.context(), "dropout"), b.dy, b.saved[0], b.saved[1], threshold, key, dx);
    return Grads{dx};
  });
}

}  // namespace chorus
