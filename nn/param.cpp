#include <chorus/nn/param.h>

#include <cmath>

namespace chorus {

Init Init::xavier(std::int64_t fan_in, std::int64_t fan_out) {
  return bounded(std::sqrt(6.0 / static_cast<double>(fan_in + fan_out)));
}

Box Box::whole(const Shape& shape) {
  Box box{shape, shape};
  for (int d = 0; d < shape.rank(); ++d) box.begin[d] = 0;
  return box;
}

}  // namespace chorus
