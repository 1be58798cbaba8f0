// What a layer keeps for backward in each mode of activation checkpointing: the formulas of docs/performance.md on one rank,
// those of parallel/memory_formulas.h on any.
#include <chorus/models/conformer/model.h>
#include <chorus/models/conformer/plan.h>
#include <chorus/models/llm/model.h>
#include <chorus/models/llm/plan.h>
#include <chorus/nn/materialize.h>
#include <chorus/parallel/memory_formulas.h>
#include <gtest/gtest.h>

namespace chorus::testing {
namespace {

constexpr std::int64_t sequence = 83, long_sequence = 150, all_rows = sequence + long_sequence;

struct Kept {
  Recompute mode;
  DType dtype;
  LayerCut cut = {};
};
class KeptByALayer : public ::testing::TestWithParam<Kept> {};
INSTANTIATE_TEST_SUITE_P(Modes, KeptByALayer,
                         ::testing::Values(Kept{Recompute::none, DType::f32}, Kept{Recompute::none, DType::bf16},
                                           Kept{Recompute::selective, DType::f32}, Kept{Recompute::selective, DType::bf16},
                                           Kept{Recompute::full, DType::f32}, Kept{Recompute::full, DType::bf16}),
                         [](const auto& info) {
                           return std::string(name(info.param.mode)) + '_' + std::string(name(info.param.dtype));
                         });

/// As the first rank of `cut` sees it, whose other ranks say nothing.
std::unique_ptr<Mesh> mesh_of(LayerCut cut) { return Mesh::silent(mesh_shape({.tp = cut.tp}, cut.tp), 0); }

/// Bytes of activations that the graph of `model(x)` holds, beside what was there before.
template <class M, class F>
double held(M& model, Context& context, Kept kept, const std::string& units, const F& forward) {
  const ParamStore store = materialize(model, context, {.dtype = kept.dtype, .seed = 1, .freeze = {}});
  checkpoint_activations(model, units, kept.mode);
  const auto activations = [&] {
    return static_cast<double>(context.memory.stats().current[static_cast<std::size_t>(Category::activations)]);
  };
  const Rows rows = make_rows(context, std::vector<std::int64_t>{sequence, long_sequence}, std::vector<std::int64_t>{3, 4});
  const double before = activations();
  const Tensor y = forward(model, rows);
  EXPECT_TRUE(y.requires_grad());
  return activations() - before;
}

/// Of one layer more: everything else a model keeps is the same.
template <class F>
double of_one_layer(const F& of_layers) {
  const double two = of_layers(2), three = of_layers(3);
  EXPECT_EQ(of_layers(4) - three, three - two);
  return three - two;
}

double padded(std::int64_t rows) { return static_cast<double>(padded_rows(rows)); }

LlmConfig decoder() {
  LlmConfig config{
      .vocab_size = 50, .hidden_size = 40, .num_hidden_layers = 0, .num_attention_heads = 6, .num_key_value_heads = 2};
  config.head_dim = 8, config.intermediate_size = 72, config.dropout = config.attention_dropout = 0.1;
  return config;
}

double measured_of_decoder(LlmConfig config, Kept kept) {
  return of_one_layer([&](int layers) {
    Context context;
    const auto mesh = mesh_of(kept.cut);
    config.num_hidden_layers = layers;
    Llm model(config);
    apply(llm_plan(config, *mesh, kept.cut.sp), model, *mesh);
    return held(model, context, kept, "layers.*.unit", [&](const Llm& llm, const Rows& rows) {
      const std::vector<std::int32_t> ids(all_rows, 7);
      return llm(llm.embedding(Tensor::of(context, {all_rows}, ids)), rows, {.training = true});
    });
  });
}

double formula_of_decoder(const LlmConfig& c, Kept kept) {
  const DecoderLayerShape layer{c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_size(),
                                c.intermediate_size};
  return kept_by_layer(layer, {all_rows, long_sequence}, kept.dtype, kept.mode, kept.cut);
}

TEST_P(KeptByALayer, OfADecoderIsWhatTheFormulaSays) {
  const double measured = measured_of_decoder(decoder(), GetParam());
  const double b = size_of(GetParam().dtype), w = size_of(wide(GetParam().dtype)), R = padded(all_rows), T = all_rows;
  const double h = 40, a = 6, k = 2, d = 8, F = 72, A = padded(6);
  switch (GetParam().mode) {
    case Recompute::none: EXPECT_EQ(measured, b * R * (2 * h + 2 * (a + k) * d + 2 * F) + w * T * (A + 2)); break;
    case Recompute::selective: EXPECT_EQ(measured, b * R * (h + a * d) + w * T * A); break;
    case Recompute::full: EXPECT_EQ(measured, b * R * h); break;
  }
  EXPECT_EQ(measured, formula_of_decoder(decoder(), GetParam()));
}

/// tp 2 cuts all heads, tp 6 leaves each key's head to three ranks.
TEST_P(KeptByALayer, OfADecoderOnManyRanksIsWhatTheFormulaSays) {
  for (const LayerCut cut : {LayerCut{2, false}, {2, true}, {6, false}, {6, true}}) {
    const Kept kept{GetParam().mode, GetParam().dtype, cut};
    EXPECT_EQ(measured_of_decoder(decoder(), kept), formula_of_decoder(decoder(), kept)) << cut.tp << (cut.sp ? " SP" : "");
  }
}

ConformerConfig encoder(const std::string& attention, const std::string& norm) {
  ConformerConfig config;
  config.features = 16, config.d_model = 48, config.heads = 4, config.conv_kernel_size = 5,
  config.subsampling_conv_channels = 6;
  config.subsampling_factor = 4, config.self_attention_model = attention, config.conv_norm = norm;
  return config;
}

/// And the rows that it has.
std::pair<double, std::int64_t> measured_of_encoder(ConformerConfig config, Kept kept) {
  std::int64_t rows = 0;
  const double measured = of_one_layer([&](int layers) {
    Context context;
    const auto mesh = mesh_of(kept.cut);
    config.layers = layers;
    Conformer model(config);
    apply(conformer_plan(config, *mesh, kept.cut.sp), model, *mesh);
    return held(model, context, kept, "*unit", [&](const Conformer& conformer, const Rows& frames) {
      const Tensor features = Tensor::full(context, {all_rows, 16}, kept.dtype, 0.5);
      const EncodedRows encoded = conformer(features, frames, {.training = true});
      rows = encoded.rows.count();
      return encoded.x;
    });
  });
  return {measured, rows};
}

double formula_of_encoder(const ConformerConfig& c, std::int64_t rows, Kept kept) {
  const ConformerLayerShape layer{c.d_model, c.heads, std::int64_t{c.ff_expansion_factor} * c.d_model,
                                  c.self_attention_model == "rel_pos", c.conv_norm == "batch_norm"};
  return kept_by_layer(layer, {rows, subsampled_length(long_sequence, 4)}, kept.dtype, kept.mode, kept.cut);
}

TEST_P(KeptByALayer, OfAnEncoderIsWhatTheFormulaSays) {
  for (const bool relative : {true, false}) {
    const ConformerConfig config = encoder(relative ? "rel_pos" : "rotary", "layer_norm");
    const auto [measured, rows] = measured_of_encoder(config, GetParam());
    const double b = size_of(GetParam().dtype), w = size_of(wide(GetParam().dtype)), R = padded(rows),
                 T = static_cast<double>(rows), h = 48, A = padded(4);
    const double P = relative ? padded(2 * subsampled_length(long_sequence, 4) - 1) : 0;  // rows of projected positions
    switch (GetParam().mode) {
      case Recompute::none: EXPECT_EQ(measured, b * (R * 19 * h + P * h) + w * T * (A + 12)) << relative; break;
      case Recompute::selective: EXPECT_EQ(measured, b * R * 2 * h + w * T * A) << relative; break;
      case Recompute::full: EXPECT_EQ(measured, b * R * h) << relative; break;
    }
    EXPECT_EQ(measured, formula_of_encoder(config, rows, GetParam())) << relative;
  }
}

TEST_P(KeptByALayer, OfAnEncoderOnManyRanksIsWhatTheFormulaSays) {
  for (const LayerCut cut : {LayerCut{1, false}, {2, false}, {2, true}, {4, false}, {4, true}})
    for (const char* attention : {"rel_pos", "rotary"})
      for (const char* norm : {"layer_norm", "batch_norm"}) {
        const Kept kept{GetParam().mode, GetParam().dtype, cut};
        const auto [measured, rows] = measured_of_encoder(encoder(attention, norm), kept);
        EXPECT_EQ(measured, formula_of_encoder(encoder(attention, norm), rows, kept))
            << cut.tp << (cut.sp ? " SP " : " ") << attention << ' ' << norm;
      }
}

TEST(KeptBySubsampling, IsNothingBesideTheFeatures) {
  for (const std::string kind : {"dw_striding", "conv1d"}) {
    ConformerConfig config;
    config.features = 16, config.d_model = 48, config.layers = 0, config.subsampling_conv_channels = 6;
    config.subsampling_factor = 4, config.subsampling = kind;
    const auto bytes = [&](Recompute mode) {
      Context context;
      Conformer model(config);
      const Tensor features = Tensor::full(context, {all_rows, 16}, DType::f32, 0.5);
      std::size_t result = 0;
      const double all =
          held(model, context, {mode, DType::f32}, "subsampling.unit", [&](const Conformer& encoder, const Rows& rows) {
            const Tensor x = encoder.subsampling(features, rows).x;
            result = x.capacity();
            return x;
          });
      return all - static_cast<double>(result);
    };
    // Rows of each stage stay, some bytes per frame.
    EXPECT_LT(bytes(Recompute::full), 24 * all_rows) << kind;
    EXPECT_GT(bytes(Recompute::none), 48 * 4 * all_rows / 4) << kind;
  }
}

}  // namespace
}  // namespace chorus::testing
