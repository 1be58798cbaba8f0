// Parameters are declared by shape only; `materialize` gives each its memory once the plan is known.
#pragma once
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/layout.h>

#include <string>

namespace chorus {

/// How a parameter gets its first value. Every value depends on (seed, path, global element index) only.
struct Init {
  enum Kind : std::uint8_t { zeros, constant, normal, uniform } kind = zeros;
  double value = 0;  ///< the constant, the standard deviation, or the bound of [-bound, bound)
  static Init zero() { return {zeros, 0}; }
  static Init one() { return {constant, 1}; }
  static Init gaussian(double deviation) { return {normal, deviation}; }
  static Init bounded(double bound) { return {uniform, bound}; }
  /// Glorot and Bengio (2010): uniform in +-sqrt(6 / (fan_in + fan_out)).
  static Init xavier(std::int64_t fan_in, std::int64_t fan_out);
};

/// The part of a tensor that one rank holds: [begin, begin + size) of each dim.
struct Box {
  Shape begin, size;
  static Box whole(const Shape& shape);
};

/// A trainable tensor.
struct Param {
  Param() = default;
  Param(const Shape& shape, Init init) : global(shape), box(Box::whole(shape)), init(init) {}

  Tensor value;   ///< in the compute type; a leaf when trainable
  Shape global;   ///< the logical shape, whatever part of it this rank holds
  Layout layout;  ///< empty on one rank; a plan sets it and the box before the parameter is materialised
  Box box;        ///< this rank's part
  Init init;
  bool trainable = true;
  bool counted = true;          ///< whether this rank is the one that counts its elements in the gradient norm
  std::string path;             ///< set by `materialize`: "decoder.layers.0.attention.q.weight"
  std::shared_ptr<Node> leaf;   ///< that sums its gradient, its own or that of what it is stacked in; null when frozen
  std::int64_t leaf_first = 0;  ///< element of the leaf at which it begins

  /// [box.size] of wide(dtype), sharing memory with the leaf's; empty when frozen, and before a step's first gradient arrives.
  Tensor grad() const { return leaf && leaf->sink.grad ? leaf->sink.grad.flat_view(leaf_first, box.size) : Tensor(); }
  explicit operator bool() const { return global.rank() > 0; }  ///< false for an absent bias
};

/// Parameters that share an input and lie next to each other in memory, so that one product serves all: q, k, v; gate, up.
/// The parts are the logical parameters; `fused` is a view over them and no parameter of its own.
struct Stacked {
  std::vector<std::pair<std::string, Param>> parts;  ///< name and [out, in] or [out]
  Param fused;                                       ///< value and gradient over all parts; never visited
};

/// State that is saved but not trained: running statistics.
struct Buffer {
  Tensor value;
  Shape global;
  double initial = 0;
};

}  // namespace chorus
