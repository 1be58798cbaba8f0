#include <chorus/nn/module.h>
#include <chorus/tensor/ops/dropout.h>
#include <chorus/tensor/ops/pointwise.h>

namespace chorus {

RandomKey Dropout::key(const Pass& pass) const { return random_key(pass.seed, pass.step, path); }

Tensor Dropout::operator()(const Tensor& x, const Rows& rows, const Pass& pass) const {
  return active(pass) ? dropout(x, rows, p, key(pass)) : x;
}

Tensor Dropout::after_silu(const Tensor& x, const Rows& rows, const Pass& pass) const {
  return active(pass) ? silu_dropout(x, rows, p, key(pass)) : silu(x);
}

}  // namespace chorus
