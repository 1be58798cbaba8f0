// The gradients of a model's parameters, for tests that look at them or set them.
#pragma once
#include <chorus/nn/materialize.h>

namespace chorus::testing {

/// Those of all trainable parameters, one after another.
inline std::vector<double> gradients_of(const ParamStore& store) {
  std::vector<double> all;
  for (const auto& entry : store.trainable) {
    const auto own = entry.param->grad().to_doubles();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

inline void fill_gradients(const ParamStore& store, double value) {
  for (const auto& leaf : store.leaves) leaf->sink.in(*store.context, leaf->shape).fill(value);
}

}  // namespace chorus::testing
