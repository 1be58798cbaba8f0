// Which units are checkpointed, and what a repetition must not do twice.
#include <chorus/nn/layers/linear.h>
#include <chorus/nn/layers/norm.h>
#include <chorus/nn/materialize.h>
#include <chorus/parallel/activation_checkpointing.h>
#include <chorus/tensor/ops/pointwise.h>
#include <gmock/gmock.h>

namespace chorus {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t checkpointed_width = 6;

struct CheckpointedLayer {
  Linear up{checkpointed_width, checkpointed_width};
  BatchNorm norm{checkpointed_width, BatchNorm::Mode::step};
  Unit unit;
  Tensor operator()(const Tensor& input, const Pass& pass) const {
    return unit(input, [this, pass](const Tensor& x) { return add(x, silu(norm(up(x), pass))); });
  }
  template <class V>
  void fields(V&& v) {
    v("up", up);
    v("norm", norm);
    v("unit", unit);
  }
};

struct CheckpointedModel {
  std::vector<CheckpointedLayer> layers = std::vector<CheckpointedLayer>(3);
  template <class V>
  void fields(V&& v) {
    v("layers", layers);
  }
};

std::string checkpointing_error(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ActivationCheckpointing, WrapsTheUnitsThatAPatternNames) {
  CheckpointedModel model;
  checkpoint_activations(model, "layers.1.unit|layers.2.unit", Recompute::full);
  EXPECT_FALSE(model.layers[0].unit.wrap);
  EXPECT_TRUE(model.layers[1].unit.wrap && model.layers[2].unit.wrap);
  checkpoint_activations(model, "layers.*", Recompute::none);
  EXPECT_FALSE(model.layers[0].unit.wrap);
  EXPECT_THAT(checkpointing_error([&] { checkpoint_activations(model, "layers.*.unit", Recompute::selective); }),
              HasSubstr("layers.1.unit is wrapped already"));
  EXPECT_THAT(checkpointing_error([&] { checkpoint_activations(model, "blocks.*.unit", Recompute::full); }),
              HasSubstr("pattern 'blocks.*.unit' matches no unit"));
}

TEST(ActivationCheckpointing, HasThreeModes) {
  for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full})
    EXPECT_EQ(recompute_mode(std::string(name(mode))), mode);
  EXPECT_THAT(checkpointing_error([] { recompute_mode("some"); }), HasSubstr("'some'; none, selective and full are there"));
}

TEST(ActivationCheckpointing, CountsRowsOfAStepOnce) {
  std::vector<std::vector<double>> sums;
  for (const Recompute mode : {Recompute::none, Recompute::full}) {
    Context context;
    CheckpointedModel model;
    const ParamStore store = materialize(model, context, {.dtype = DType::f64, .seed = 1, .freeze = {}});
    checkpoint_activations(model, "*unit", mode);
    for (const std::int64_t rows : {7, 4}) {  // two microbatches
      std::vector<double> values(static_cast<std::size_t>(rows * checkpointed_width));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.1 * static_cast<double>((5 * i) % 23);
      Tensor x = Tensor::of(context, {rows, checkpointed_width}, values);
      for (const auto& layer : model.layers) x = layer(x, {.training = true});
      backward(sum(x));
    }
    for (const auto& layer : model.layers) {
      sums.push_back(layer.norm.statistics.sums.to_doubles());
      EXPECT_EQ(sums.back()[0], 11);
    }
  }
  for (std::size_t layer = 0; layer < 3; ++layer) EXPECT_EQ(sums[layer], sums[layer + 3]);
}

}  // namespace
}  // namespace chorus
