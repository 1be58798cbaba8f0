// Every switch of the configuration, against central differences of the loss in f64.
#include <gtest/gtest.h>

#include "salm_fixture.h"

namespace chorus::testing {
namespace {

struct Variant {
  const char* name;
  void (*change)(SalmConfig&);
};

const Variant variants[] = {
    {"conformer_adapter", [](SalmConfig& c) { c.modality_adapter = "conformer", c.adapter_layers = 1; }},
    {"adapter_with_rotary_and_compressor",
     [](SalmConfig& c) {
       c.modality_adapter = "conformer", c.adapter_layers = 1, c.ctc_compressor = true;
       c.encoder.self_attention_model = "rotary", c.encoder.heads = 2;
     }},
    {"tied_embeddings", [](SalmConfig& c) { c.llm.tie_word_embeddings = true; }},
    {"encoder_with_ctc_alone", [](SalmConfig& c) { c.decoder = false; }},
    {"decoder_without_ctc", [](SalmConfig& c) { c.ctc_head = false; }},
    {"dw_striding_by_four_scaled", [](SalmConfig& c) { c.encoder.subsampling_factor = 4, c.encoder.xscaling = true; }},
    {"conv1d_by_eight", [](SalmConfig& c) { c.encoder.subsampling = "conv1d"; }},
    {"frozen_batch_norm", [](SalmConfig& c) { c.encoder.conv_norm = "batch_norm"; }},
    {"step_batch_norm", [](SalmConfig& c) { c.encoder.conv_norm = "batch_norm", c.encoder.batch_norm_mode = "step"; }},
    {"without_biases", [](SalmConfig& c) { c.encoder.use_bias = c.encoder.attention_bias = false; }},
    {"grouped_queries",
     [](SalmConfig& c) { c.llm.num_attention_heads = 4, c.llm.num_key_value_heads = 2, c.llm.head_dim = 6; }},
};

class SalmVariants : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Switches, SalmVariants, ::testing::ValuesIn(variants),
                         [](const auto& info) { return info.param.name; });

TEST_P(SalmVariants, GradientsAreThoseOfTheLoss) {
  Context context;
  SalmConfig config = small_config("nemo");
  GetParam().change(config);
  Salm model(config, vocabulary + 1);
  const ParamStore store = materialize(model, context, {.dtype = DType::f64, .seed = 5, .freeze = {}});
  const auto samples = some_samples();
  auto options = loss_options(counts_of(samples, config.encoder.subsampling_factor));
  if (!config.decoder) options.llm_weight = 0;
  if (!config.ctc_head) options.ctc_weight = 0;
  const SalmBatch batch = batch_of(context, samples, 10);
  const auto loss = [&] { return model.loss(batch, options, {}).total; };
  store.start_step();
  backward(loss());
  store.finish_step();

  NoGrad quiet(context);
  std::vector<double> gradients, differences;
  for (const auto& entry : store.trainable) {
    const auto own = entry.param->grad().to_doubles();
    for (const std::int64_t i : {std::int64_t{0}, entry.count / 2, entry.count - 1}) {
      double& value = store.masters.as<double>()[entry.first + i];
      const double before = value, step = 1e-5;
      value = before + step;
      const double above = loss().item();
      value = before - step;
      const double below = loss().item();
      value = before;
      gradients.push_back(own[static_cast<std::size_t>(i)]);
      differences.push_back((above - below) / (2 * step));
    }
  }
  double scale = 0;
  for (const double g : gradients) scale = std::max(scale, std::abs(g));
  ASSERT_GT(scale, 0);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    EXPECT_NEAR(gradients[i], differences[i], 1e-7 * scale) << store.trainable[i / 3].path << ", probe " << i % 3;
}

TEST_P(SalmVariants, AloneEqualsInBatch) {
  Context context;
  SalmConfig config = small_config("nemo");
  GetParam().change(config);
  Salm model(config, vocabulary + 1);
  materialize(model, context, {.dtype = DType::f64, .seed = 5, .freeze = {}});
  NoGrad quiet(context);
  const auto samples = some_samples();
  auto options = loss_options(counts_of(samples, config.encoder.subsampling_factor));
  if (!config.decoder) options.llm_weight = 0;
  if (!config.ctc_head) options.ctc_weight = 0;
  const auto total = [&](const std::vector<Sample>& some) {
    return model.loss(batch_of(context, some, 10), options, {.training = true}).total.item();
  };
  double alone = 0;
  for (const auto& s : samples) alone += total({s});
  EXPECT_NEAR(total(samples), alone, 1e-12 * alone);
}

}  // namespace
}  // namespace chorus::testing
