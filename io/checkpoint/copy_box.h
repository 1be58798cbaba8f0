// Copies the common part of two boxes of one tensor.
#pragma once
#include <chorus/tensor/dtype.h>
#include <chorus/tensor/shape.h>

namespace chorus {

/// A box of a tensor, packed row-major in host memory.
struct HostBox {
  Shape offset, shape;  ///< within the tensor
  DType dtype;
  void* data;
};

/// How many elements two boxes of one tensor share.
std::int64_t common_elements(const Shape& offset_a, const Shape& shape_a, const Shape& offset_b, const Shape& shape_b);

/// Copies the elements that `from` and `into` share, and converts between floating types where these differ. Returns their
/// number.
std::int64_t copy_box(const HostBox& from, const HostBox& into);

}  // namespace chorus
