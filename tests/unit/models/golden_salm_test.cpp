// The whole model against an independent implementation in f64: what the decoder gets to see, every part of the loss and all
// gradients.
#include <chorus/models/salm/model.h>

#include <numeric>

#include "golden_fixture.h"

namespace chorus::testing {
namespace {

/// The model of a case, with the shapes that its attributes tell.
struct GoldenSalm {
  GoldenFile file;
  std::string group;
  Context context;
  Salm model;
  ParamStore store;

  explicit GoldenSalm(const std::string& group, const std::string& parameters) : group(group), model(build(parameters)) {
    store = materialize(model, context, {.dtype = DType::f64, .seed = 1, .freeze = {}});
    load_golden(file, parameters, model);
  }

  Salm build(const std::string& from) const {
    const auto number = [&](const char* name) { return static_cast<int>(file.attribute(from, name)); };
    const bool nemo = from == "salm_nemo";
    SalmConfig config;
    auto& encoder = config.encoder;
    encoder.features = number("mels");
    encoder.d_model = number("width");
    encoder.layers = number("layers");
    encoder.heads = number("heads");
    encoder.ff_expansion_factor = number("ff_multiplier");
    encoder.conv_kernel_size = number("kernel");
    encoder.final_norm = number("norm_final") != 0;
    encoder.dropout = encoder.dropout_att = encoder.dropout_pre_encoder = 0;
    if (nemo) {
      encoder.subsampling_conv_channels = number("channels");
      encoder.conv_norm = "batch_norm";
    } else {
      encoder.subsampling = "conv1d";
      encoder.subsampling_factor = 4;
      encoder.self_attention_model = "rotary";
      encoder.attention_bias = false;
    }
    config.llm.vocab_size = number("embedding_rows");
    config.llm.hidden_size = number("llm_width");
    config.llm.num_hidden_layers = number("llm_layers");
    config.llm.num_attention_heads = number("llm_heads");
    config.llm.num_key_value_heads = number("llm_kv_heads");
    config.llm.intermediate_size = number("llm_inner");
    config.llm.rms_norm_eps = 1e-6;
    config.projection_norm = number("projection_norm") != 0;
    config.ctc_head = !nemo;
    config.ctc_compressor = number("compress") != 0;
    config.ctc_posteriors = number("posteriors") != 0;
    config.restart_text_positions = !nemo;
    Salm salm(config, nemo ? 0 : file.read(from + "/parameters/ctc_head.weight").shape[0]);
    // The case's head has no rows for the ids that are never predicted (begin and mask).
    salm.llm->head.emplace(config.llm.hidden_size, number("vocabulary"), LinearOptions{.bias = false, .init = {}});
    return salm;
  }

  template <class T>
  std::vector<T> read(const std::string& name) const {
    return file.as<T>(group + "/" + name);
  }
  double scalar(const std::string& name) const { return file.scalar(group + "/" + name); }

  SalmBatch batch(std::vector<Conversation> conversations, std::int32_t tag) {
    SalmBatch out;
    out.features = golden_input(context, file, group);
    out.frames = golden_rows(context, read<std::int64_t>("lengths"));
    out.conversations = std::move(conversations);
    out.audio_tag = tag;
    return out;
  }

  /// What the decoder reads: rows, positions and labels. `audio_lengths` as after the bridge.
  Splice spliced(const SalmBatch& batch, std::vector<std::int64_t>& audio_lengths) {
    NoGrad quiet(context);
    const EncodedRows audio = model.bridge(model.hear(batch.features, batch.frames, {}), {});
    for (std::int64_t s = 0; s < audio.rows.sequences(); ++s) audio_lengths.push_back(audio.rows.length(s));
    return splice(
        context, batch.conversations, audio_lengths,
        {.audio_tag = batch.audio_tag, .restart_text_positions = model.config.restart_text_positions, .targets = true});
  }

  SalmLoss run(const SalmBatch& batch, const SalmLossOptions& options) {
    store.start_step();
    SalmLoss loss = model.loss(batch, options, {.training = true});
    backward(loss.total);
    store.finish_step();
    return loss;
  }
};

std::vector<std::int32_t> ints(const Tensor& t) {
  const auto all = t.span<const std::int32_t>();
  return {all.begin(), all.end()};
}

/// Cuts `flat` into pieces of these lengths.
template <class T>
std::vector<std::vector<T>> pieces(const std::vector<T>& flat, const std::vector<std::int64_t>& lengths) {
  std::vector<std::vector<T>> out;
  auto at = flat.begin();
  for (const auto n : lengths) {
    out.emplace_back(at, at + n);
    at += n;
  }
  require(at == flat.end(), "golden", "pieces cover ", at - flat.begin(), " of ", flat.size());
  return out;
}

void expect_relative(const std::string& what, double got, double want) { expect_close(what, {got}, {want}, golden_tolerance); }

TEST(GoldenSalm, Small) {
  GoldenSalm golden("salm_small", "salm_small");
  const auto number = [&](const char* name) { return static_cast<std::int32_t>(golden.file.attribute("salm_small", name)); };
  const std::int32_t tag = 99;  // any id that no token has
  const auto texts = pieces(golden.read<std::int32_t>("text"), golden.read<std::int64_t>("text_lengths"));
  std::vector<Conversation> conversations;
  for (std::size_t s = 0; s < texts.size(); ++s) {
    Conversation c{static_cast<std::int64_t>(s), {tag, number("bos")}, {0, 0}};
    c.tokens.insert(c.tokens.end(), texts[s].begin(), texts[s].end());
    c.tokens.push_back(number("eos"));
    c.answer.resize(c.tokens.size(), 1);
    conversations.push_back(std::move(c));
  }
  SalmBatch batch = golden.batch(conversations, tag);
  batch.transcripts = texts;

  std::vector<std::int64_t> audio_lengths;
  const Splice spliced = golden.spliced(batch, audio_lengths);
  EXPECT_EQ(audio_lengths, golden.read<std::int64_t>("audio_lengths"));
  EXPECT_EQ(ints(spliced.rows.positions), golden.read<std::int32_t>("positions"));
  EXPECT_EQ(ints(spliced.labels), golden.read<std::int32_t>("labels"));

  const auto frames = golden.read<std::int64_t>("lengths");
  LossCounts counts;
  for (std::size_t s = 0; s < texts.size(); ++s) counts.ctc_targets += feasible_ctc_targets(frames[s], texts[s], 4);
  for (const auto label : ints(spliced.labels)) counts.labels += label >= 0;
  EXPECT_EQ(static_cast<double>(counts.ctc_targets), golden.scalar("ctc_count"));
  EXPECT_EQ(static_cast<double>(counts.labels), golden.scalar("label_count"));

  const SalmLoss loss = golden.run(batch, {.counts = counts,
                                           .llm_weight = golden.file.attribute("salm_small", "llm_weight"),
                                           .ctc_weight = golden.file.attribute("salm_small", "ctc_weight"),
                                           .label_smoothing = golden.file.attribute("salm_small", "label_smoothing"),
                                           .corruption = {}});
  expect_relative("CTC sum", loss.ctc * static_cast<double>(counts.ctc_targets), golden.scalar("ctc_sum"));
  expect_relative("cross-entropy sum", loss.llm * static_cast<double>(counts.labels), golden.scalar("ce_sum"));
  expect_relative("loss", loss.total.item(), golden.scalar("loss"));
  expect_golden_gradients(golden.file, "salm_small", golden.model, batch.features);
}

/// Placeholders in prompts. Returns the batch after a forward and backward pass.
SalmBatch check_nemo(GoldenSalm& golden) {
  const auto tag = static_cast<std::int32_t>(golden.file.attribute("salm_nemo", "audio_token"));
  const auto lengths = golden.read<std::int64_t>("ids_lengths");
  const auto tokens = pieces(golden.read<std::int32_t>("ids"), lengths);
  const auto answers = pieces(golden.read<std::uint8_t>("loss_mask"), lengths);
  std::vector<Conversation> conversations;
  for (std::size_t s = 0; s < tokens.size(); ++s)
    conversations.push_back({static_cast<std::int64_t>(s), tokens[s], answers[s]});
  SalmBatch batch = golden.batch(conversations, tag);

  std::vector<std::int64_t> audio_lengths;
  const Splice spliced = golden.spliced(batch, audio_lengths);
  // The case keeps the last row of each sample, which predicts nothing and which nothing attends to; the splice drops it.
  const auto rows = golden.read<std::int64_t>("rows");
  const auto positions = pieces(golden.read<std::int32_t>("positions"), rows),
             labels = pieces(golden.read<std::int32_t>("labels"), rows);
  std::vector<std::int32_t> want_positions, want_labels;
  for (std::size_t s = 0; s < rows.size(); ++s) {
    EXPECT_EQ(spliced.rows.length(static_cast<std::int64_t>(s)), rows[s] - 1) << "sample " << s;
    EXPECT_EQ(labels[s].back(), -100);
    want_positions.insert(want_positions.end(), positions[s].begin(), positions[s].end() - 1);
    want_labels.insert(want_labels.end(), labels[s].begin(), labels[s].end() - 1);
  }
  EXPECT_EQ(ints(spliced.rows.positions), want_positions);
  EXPECT_EQ(ints(spliced.labels), want_labels);

  LossCounts counts;
  for (const auto label : ints(spliced.labels)) counts.labels += label >= 0;
  EXPECT_EQ(static_cast<double>(counts.labels), golden.scalar("label_count"));
  const SalmLoss loss =
      golden.run(batch, {.counts = counts, .llm_weight = 1, .ctc_weight = 0, .label_smoothing = 0, .corruption = {}});
  expect_relative("cross-entropy sum", loss.llm * static_cast<double>(counts.labels), golden.scalar("ce_sum"));
  expect_relative("loss", loss.total.item(), golden.scalar("loss"));
  return batch;
}

TEST(GoldenSalm, Nemo) {
  GoldenSalm golden("salm_nemo", "salm_nemo");
  const SalmBatch batch = check_nemo(golden);
  expect_golden_gradients(golden.file, "salm_nemo", golden.model, batch.features);
}

TEST(GoldenSalm, NemoWithNoneOneAndTwoAudios) {
  GoldenSalm golden("salm_nemo_multi", "salm_nemo");
  const SalmBatch batch = check_nemo(golden);
  ASSERT_EQ(golden.file.names("salm_nemo_multi/gradients"), (std::vector<std::string>{"input", "projection.weight"}));
  expect_close("gradient of input", batch.features.node()->sink.grad.to_doubles(), golden.read<double>("gradients/input"),
               golden_tolerance);
  expect_close("gradient of projection.weight", golden.model.projection->weight.grad().to_doubles(),
               golden.read<double>("gradients/projection.weight"), golden_tolerance);
}

}  // namespace
}  // namespace chorus::testing
