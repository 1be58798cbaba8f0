#include <chorus/nn/module.h>
#include <chorus/tensor/ops/dropout.h>
#include <chorus/tensor/ops/pointwise.h>

namespace chorus {

Tensor Unit::enter(Tensor x) const { return computes ? cast(x, *computes) : x; }
Tensor Unit::leave(Tensor y) const { return gives ? cast(y, *gives) : y; }

RandomKey Dropout::key(const Pass& pass) const { return random_key(pass.seed, pass.step, path); }

Tensor Dropout::operator()(const Tensor& x, const Rows& rows, const Pass& pass) const {
  return active(pass) ? dropout(x, rows, p, key(pass), window_of(x, rows)) : x;
}

Tensor Dropout::after_silu(const Tensor& x, const Rows& rows, const Pass& pass) const {
  return active(pass) ? silu_dropout(x, rows, p, key(pass), window_of(x, rows)) : silu(x);
}

std::optional<Window> Dropout::window_of(const Tensor& x, const Rows& rows) const {
  return window ? std::optional(window(x, rows)) : std::nullopt;
}

}  // namespace chorus
