#include <chorus/tensor/kernels/avx512/tiles.h>
#include <chorus/tensor/kernels/avx512_loops.h>
#include <chorus/tensor/kernels/onednn.h>

namespace chorus::kernel {

bool avx512_loops() {
  static const bool here = avx512::built && onednn::has_avx512();
  return here;
}

}  // namespace chorus::kernel
