// A model with everything that sharded data parallelism must get right, for the parity harness.
#pragma once
#include <chorus/nn/layers/feed_forward.h>
#include <chorus/nn/layers/norm.h>
#include <chorus/parallel/parity.h>
#include <chorus/tensor/ops/linear_cross_entropy.h>
#include <chorus/tensor/ops/pointwise.h>

namespace chorus::testing {

struct TowerBlock {
  RmsNorm norm{6};
  SwiGluMlp mlp{6, 10};
  Unit unit;
  Tensor operator()(const Tensor& input) const {
    return unit(input, [this](Tensor x) { return add(x, mlp(norm(x))); });
  }
  template <class V>
  void fields(V&& v) {
    v("norm", norm);
    v("mlp", mlp);
    v("unit", unit);
  }
};

/// Blocks run in another order than they are declared in. The table is the head, too, unless there is a head. Samples with an
/// even number pass block 0 by; `spare` trains and has no use.
struct Tower {
  static constexpr std::int64_t vocabulary = 17, hidden = 6;
  explicit Tower(bool tied) {
    if (!tied) head.emplace(hidden, vocabulary, LinearOptions{.bias = false, .init = {}});
  }
  Embedding embedding{vocabulary, hidden, Init::gaussian(0.7)};
  std::vector<TowerBlock> blocks{4};
  Linear spare{hidden, 3};
  RmsNorm norm{hidden};
  std::optional<Linear> head;
  Unit embedding_unit, head_unit;

  Tensor loss(Context& context, const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& labels,
              bool even) const {
    Tensor x = embedding(Tensor::of(context, {std::ssize(ids)}, ids));
    for (const std::size_t block : {2, 0, 1, 3})
      if (block != 0 || !even) x = blocks[block](x);
    return linear_cross_entropy(norm(x), head ? head->weight.value : embedding.weight.value,
                                Tensor::of(context, {std::ssize(labels)}, labels), {.scale = 1.0 / 77});
  }
  template <class V>
  void fields(V&& v) {
    v("embedding", embedding);
    v("blocks", blocks);
    v("spare", spare);
    v("norm", norm);
    v("head", head);
    v("embedding_unit", embedding_unit);
    v("head_unit", head_unit);
  }
};

inline ParityModel<Tower> tower(bool tied, FreezeRules freeze = {}) {
  ParityModel<Tower> model;
  model.name = "tower";
  model.samples = 7;
  model.freeze = std::move(freeze);
  model.make = [tied] { return std::make_unique<Tower>(tied); };
  model.plan = [](const Mesh&) {
    Plan plan;
    plan.params = {{"*", {}}};
    return plan;
  };
  model.loss = [](Tower& m, Context& context, std::span<const int> samples, const Pass&) {
    Tensor total;
    for (const bool even : {true, false}) {
      std::vector<std::int32_t> ids, labels;
      for (const int sample : samples) {
        if ((sample % 2 == 0) != even) continue;
        for (int t = 0; t < 3 + sample; ++t) ids.push_back((t * t * 7 + sample) % 17), labels.push_back((t * 5 + sample) % 17);
      }
      if (ids.empty() && !samples.empty()) continue;
      const Tensor own = m.loss(context, ids, labels, even);
      total = total ? add(total, own) : own;
    }
    return total;
  };
  return model;
}

}  // namespace chorus::testing
