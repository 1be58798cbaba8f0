// Single blocks of the models against an independent implementation in f64: outputs and all gradients.
#include <chorus/models/conformer/model.h>
#include <chorus/models/llm/model.h>

#include "golden_fixture.h"

namespace chorus::testing {
namespace {

/// Loads the case into a module, runs `forward(x, rows, pass)` with the golden cotangent and compares everything.
template <class M, class F>
void check_block(const std::string& group, const std::string& at, M declared, const F& forward) {
  const GoldenFile file;
  Context context;
  M module = std::move(declared);  // tensors go before their context
  const ParamStore store = materialize(module, context, {.dtype = DType::f64, .seed = 1, .freeze = {}});
  load_golden(file, group, module, at);
  const Tensor x = golden_input(context, file, group);
  store.start_step();
  const EncodedRows y =
      forward(module, x, golden_rows(context, file.as<std::int64_t>(group + "/lengths")), Pass{.training = true});
  const auto lengths = file.as<std::int64_t>(group + "/output_lengths");
  ASSERT_EQ(y.rows.sequences(), static_cast<std::int64_t>(lengths.size()));
  for (std::size_t s = 0; s < lengths.size(); ++s)
    EXPECT_EQ(y.rows.length(static_cast<std::int64_t>(s)), lengths[s]) << "sequence " << s;
  expect_close(group + ": output", y.x.to_doubles(), file.values(group + "/output"), golden_tolerance);
  backward(y.x, {.cotangent = tensor_of(context, file.read(group + "/cotangent"))});
  store.finish_step();
  expect_golden_gradients(file, group, module, x, at);
}

class GoldenConformer : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Cases, GoldenConformer,
                         ::testing::Values("conformer_relative", "conformer_rotary", "conformer_batch_norm"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(GoldenConformer, Layer) {
  const std::string group = GetParam();
  const GoldenFile file;
  const bool rotary = group == "conformer_rotary";
  ConformerConfig config;
  config.d_model = static_cast<int>(file.read(group + "/input").shape[1]);
  config.heads = static_cast<int>(file.attribute(group, "heads"));
  config.ff_expansion_factor = static_cast<int>(file.attribute(group, "ff_multiplier"));
  config.conv_kernel_size = static_cast<int>(file.attribute(group, "kernel"));
  config.self_attention_model = rotary ? "rotary" : "rel_pos";
  config.attention_bias = !rotary;
  config.conv_norm = group == "conformer_batch_norm" ? "batch_norm" : "layer_norm";
  config.dropout = config.dropout_att = 0;
  check_block(group, "encoder.layers.0", ConformerLayer(config),
              [&](const ConformerLayer& layer, const Tensor& x, const Rows& rows, const Pass& pass) {
                // A table that reaches further than it must: only the offset that a row stands for may count.
                const Tensor encoding =
                    rotary ? Tensor() : relative_encoding(x.context(), rows.longest() + 3, x.cols(), DType::f64);
                return EncodedRows{layer(x, encoding, rows, pass), rows};
              });
}

class GoldenSubsampling : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Cases, GoldenSubsampling, ::testing::Values("dw_striding", "conv1d"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(GoldenSubsampling, Frames) {
  const std::string group = std::string("subsampling_") + GetParam();
  const GoldenFile file;
  ConformerConfig config;
  config.features = static_cast<int>(file.read(group + "/input").shape[1]);
  config.d_model = static_cast<int>(file.attribute(group, "width"));
  config.subsampling = GetParam();
  if (config.subsampling == "conv1d") {
    config.subsampling_factor = 4;
  } else {
    config.subsampling_conv_channels = static_cast<int>(file.attribute(group, "channels"));
  }
  check_block(
      group, "encoder.subsampling", Subsampling(config),
      [](const Subsampling& subsampling, const Tensor& x, const Rows& rows, const Pass&) { return subsampling(x, rows); });
}

TEST(GoldenDecoder, Layer) {
  const std::string group = "decoder_layer";
  const GoldenFile file;
  LlmConfig config;
  config.hidden_size = static_cast<int>(file.read(group + "/input").shape[1]);
  config.num_attention_heads = static_cast<int>(file.attribute(group, "llm_heads"));
  config.num_key_value_heads = static_cast<int>(file.attribute(group, "llm_kv_heads"));
  config.intermediate_size = static_cast<int>(file.attribute(group, "llm_inner"));
  config.rms_norm_eps = 1e-6;
  check_block(group, "llm.layers.0", LlmLayer(config),
              [](const LlmLayer& layer, const Tensor& x, const Rows& rows, const Pass& pass) {
                return EncodedRows{layer(x, rows, pass), rows};
              });
}

}  // namespace
}  // namespace chorus::testing
