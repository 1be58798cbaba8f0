#include <chorus/tensor/kernels/dropout.h>
#include <chorus/tensor/ops/dropout.h>
#include <chorus/tensor/ops/pointwise.h>

#include <cmath>

namespace chorus {
namespace {

/// Draws below it drop; 0: nothing is dropped.
std::uint32_t threshold_of(const char* op, const Tensor& x, const Rows& rows, double p, const std::optional<Window>& window) {
  require(x && x.rank() == 2 && is_floating(x.dtype()), op, "takes floating [rows, n], given ", x);
  if (window)
    require(window->first_row >= 0 && window->first_feature >= 0 && window->first_row + x.size(0) <= rows.count(), op, x,
            " from row ", window->first_row, " and feature ", window->first_feature, " on, of ", rows.count(), " rows");
  else
    require(x.size(0) == rows.count(), op, x, " for ", rows.count(), " rows");
  require(p >= 0 && std::lround(p * 65536) < 65536, op, "probability ", p, "; it must be in [0, 1)");
  return static_cast<std::uint32_t>(std::lround(p * 65536));
}

}  // namespace

Tensor dropout(const Tensor& x, const Rows& rows, double p, RandomKey key, std::optional<Window> window) {
  const auto threshold = threshold_of("dropout", x, rows, p, window);
  if (threshold == 0) return x;
  const Window part = window.value_or(Window{});
  const auto masked = [threshold, key, part](const Tensor& x, const Tensor& ids, const Tensor& index) {
    Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
    kernel::dropout(cpu(x.context(), "dropout"), x, {ids, index, threshold, key, part}, y);
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

Tensor silu_dropout(const Tensor& x, const Rows& rows, double p, RandomKey key, std::optional<Window> window) {
  const auto threshold = threshold_of("silu_dropout", x, rows, p, window);
  if (threshold == 0) return silu(x);
  const Window part = window.value_or(Window{});
  const auto forward = [threshold, key, part](const Tensor& x, const Tensor& ids, const Tensor& index) {
    const Span span(x.context().trace, "silu_dropout");
    Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
    kernel::silu_dropout(cpu(x.context(), "silu_dropout"), x, {ids, index, threshold, key, part}, y);
    return y;
  };
  Tensor y = record("silu_dropout", forward(x, rows.ids, rows.index), {x}, {x, rows.ids, rows.index},
                    [threshold, key, part](const Backward& b) {
                      Tensor dx = empty_like(b.saved[0]);
                      kernel::silu_dropout_backward(cpu(dx.context(), "silu_dropout"), b.saved[0], b.dy,
                                                    {b.saved[1], b.saved[2], threshold, key, part}, dx);
                      return Grads{dx};
                    });
  return remade_by(std::move(y), [forward](const Backward& b) { return Grads{forward(b.saved[0], b.saved[1], b.saved[2])}; });
}

}  // namespace chorus
