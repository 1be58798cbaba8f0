#include <chorus/tensor/kernels/dropout.h>
#include <chorus/tensor/ops/dropout.h>

#include <cmath>

namespace chorus {

Tensor dropout(const Tensor& x, const Rows& rows, double p, RandomKey key) {
  require(x && x.rank() == 2 && is_floating(x.dtype()), "dropout", "takes floating [rows, n], given ", x);
  require(x.size(0) == rows.count(), "dropout", x, " for ", rows.count(), " rows");
  require(p >= 0 && std::lround(p * 65536) < 65536, "dropout", "probability ", p, "; it must be in [0, 1)");
  const auto threshold = static_cast<std::uint32_t>(std::lround(p * 65536));
  if (threshold == 0) return x;
  const auto masked = [threshold, key](const Tensor& x, const Tensor& ids, const Tensor& index) {
    Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
    kernel::dropout(cpu(x.context(), "dropout"), x, ids, index, threshold, key, y);
    return y;
  };
  const Span span(x.context().trace, "dropout");
  // The mask is drawn again rather than kept. With an input that can be made again, so can the output.
  Tensor y = record("dropout", masked(x, rows.ids, rows.index), {x}, {rows.ids, rows.index, is_remade(x) ? x : Tensor()},
                    [masked](const Backward& b) { return Grads{masked(b.dy, b.saved[0], b.saved[1])}; });
  if (!is_remade(x)) return y;
  return remade_by(std::move(y), [masked](const Backward& b) {
    const Span span(b.saved[2].context().trace, "dropout");
    return Grads{masked(b.saved[2], b.saved[0], b.saved[1])};
  });
}

}  // namespace chorus
