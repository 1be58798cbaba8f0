// Times whole training steps (forward, backward, norm, optimizer) on synthetic input and prints where the time goes.
//   bench_step demo|decoder [--dtype f32|bf16] [--steps N] [--tokens N]
#include <chorus/models/salm/model.h>
#include <chorus/nn/optim/optimizer.h>
#include <chorus/parallel/grad_norm.h>
#include <chorus/tensor/kernels/matmul.h>
#include <chorus/tensor/kernels/peak.h>

#include <chrono>
#include <cstdio>
#include <numeric>

namespace chorus {
namespace {

struct Options {
  std::string model = "demo";
  DType dtype = DType::f32;
  int steps = 10;
  std::int64_t tokens = 2048;
};

struct Workload {
  std::function<Tensor(std::uint64_t step)> loss;
  ParamStore store;
  std::int64_t tokens = 0;
};

/// The model of configs/demo.toml on ten seconds of noise: 1,000 frames, about 180 characters.
struct Demo {
  SalmConfig config;
  Salm model;
  SalmBatch batch;
  Workload workload;

  Demo(Context& context, DType dtype) {
    config.ctc_head = config.ctc_compressor = config.ctc_posteriors = config.projection_norm = config.restart_text_positions =
        true;
    auto& e = config.encoder;
    e.features = 80, e.d_model = 144, e.layers = 4, e.heads = 4, e.conv_kernel_size = 15, e.subsampling_factor = 4;
    e.subsampling = "conv1d", e.self_attention_model = "rotary", e.attention_bias = false, e.final_norm = true;
    auto& l = config.llm;
    l.vocab_size = 44, l.hidden_size = 192, l.num_hidden_layers = 3, l.num_attention_heads = l.num_key_value_heads = 4;
    l.intermediate_size = 512, l.dropout = l.attention_dropout = 0.1, l.embedding_std = 0.5;
    model = Salm(config, 45);
    workload.store = materialize(model, context, {.dtype = dtype, .seed = 1, .freeze = {}});
    const std::vector<std::int64_t> lengths{310, 250, 200, 140, 100}, ids{0, 1, 2, 3, 4};
    batch.audio_tag = 43;
    batch.frames = make_rows(context, lengths, ids);
    batch.features = Tensor::empty(context, {batch.frames.count(), 80}, dtype);
    std::vector<float> noise(static_cast<std::size_t>(batch.features.numel()));
    fill_normal(random_key(1, "bench"), 0, noise, 0, 1);
    dispatch<float, bf16>(dtype, "bench", [&]<class T>() {
      std::transform(noise.begin(), noise.end(), batch.features.as<T>(), [](float x) { return T(x); });
    });
    LossCounts counts;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      std::vector<std::int32_t> text;
      for (std::int64_t i = 0; i < lengths[s] * 18 / 100; ++i)
        text.push_back(static_cast<std::int32_t>(3 + (i * 7 + ids[s]) % 38));
      Conversation c{ids[s], {43, 1}, {0, 0}};
      c.tokens.insert(c.tokens.end(), text.begin(), text.end());
      c.tokens.push_back(2);
      c.answer.resize(c.tokens.size(), 1);
      counts.labels += static_cast<std::int64_t>(text.size()) + 1;
      counts.ctc_targets += static_cast<std::int64_t>(text.size());
      batch.conversations.push_back(std::move(c));
      batch.transcripts.push_back(std::move(text));
    }
    workload.tokens = batch.frames.count() / 4 + 2 * counts.labels;  // encoder rows; audio and text items of the decoder
    workload.loss = [this, counts](std::uint64_t step) {
      const SalmLossOptions options{
          .counts = counts, .llm_weight = 0.7, .ctc_weight = 0.3, .label_smoothing = 0.1, .corruption = {}};
      return model.loss(batch, options, {.training = true, .seed = 1, .step = step}).total;
    };
  }
};

/// A decoder of 135M parameters on sequences of 1,024 tokens.
struct Decoder {
  Llm model;
  Tensor ids, labels;
  Rows rows;
  Workload workload;

  Decoder(Context& context, DType dtype, std::int64_t tokens) {
    model = Llm({.vocab_size = 49152,
                 .hidden_size = 576,
                 .num_hidden_layers = 30,
                 .num_attention_heads = 9,
                 .num_key_value_heads = 3,
                 .head_dim = 64,
                 .intermediate_size = 1536,
                 .rope_theta = 10000,
                 .rms_norm_eps = 1e-5,
                 .tie_word_embeddings = true,
                 .embedding_std = 0.02,
                 .dropout = 0,
                 .attention_dropout = 0});
    workload.store = materialize(model, context, {.dtype = dtype, .seed = 1, .freeze = {}});
    std::vector<std::int64_t> lengths, sample_ids;
    for (std::int64_t at = 0; at < tokens; at += 1024) {
      lengths.push_back(std::min<std::int64_t>(1024, tokens - at));
      sample_ids.push_back(at / 1024);
    }
    rows = make_rows(context, lengths, sample_ids);
    std::vector<std::int32_t> values;
    RandomStream draw(random_key(1, "bench"));
    for (std::int64_t t = 0; t <= tokens; ++t) values.push_back(static_cast<std::int32_t>(draw.below(49152)));
    ids = Tensor::of(context, {tokens}, std::span<const std::int32_t>(values).first(static_cast<std::size_t>(tokens)));
    labels = Tensor::of(context, {tokens}, std::span<const std::int32_t>(values).subspan(1));
    workload.tokens = tokens;
    workload.loss = [this, tokens](std::uint64_t step) {
      const Pass pass{.training = true, .seed = 1, .step = step};
      return model.loss(model(model.embedding(ids), rows, pass), labels,
                        {.scale = 1.0 / static_cast<double>(tokens), .label_smoothing = 0});
    };
  }
};

void measure(Context& context, Workload& work, const Options& options) {
  using Clock = std::chrono::steady_clock;
  SoloGroup group;
  Optimizer optimizer({}, work.store);
  const auto step = [&](std::uint64_t number) {
    work.store.start_step();
    const Tensor loss = work.loss(number);
    backward(loss);
    work.store.finish_step();
    const double norm = grad_norm(work.store, group);
    Span span(context.trace, "optimizer");
    optimizer.step(work.store, 1e-4, clip_factor(norm, 1.0));
    return loss.item();
  };
  for (std::uint64_t warm = 0; warm < 2; ++warm) step(warm);
  const auto primitives = kernel::matmul_primitives_created(context);
  context.trace.sum(true);
  context.trace.reset();
  std::vector<double> times;
  double loss = 0;
  for (int i = 0; i < options.steps; ++i) {
    const auto begin = Clock::now();
    loss = step(static_cast<std::uint64_t>(2 + i));
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const double mean = std::accumulate(times.begin(), times.end(), 0.0) / options.steps;  // as the spans' times are
  double flops = 0;
  const auto totals = context.trace.totals();
  for (const auto& [name, total] : totals) flops += total.flops / options.steps;
  const double peak = kernel::measure_matrix_peak(context, options.dtype);
  const auto stats = context.memory.stats();

  std::vector<std::pair<double, std::string>> rows;
  double spans = 0;
  for (const auto& [name, total] : totals)
    rows.push_back({total.seconds / options.steps, name}), spans += total.seconds / options.steps;
  std::sort(rows.rbegin(), rows.rend());
  std::printf("%-34s %9s %7s %9s %9s\n", "op", "ms/step", "%", "calls", "GFLOP/s");
  for (const auto& [seconds, name] : rows) {
    const auto& total = totals.at(name);
    std::printf("%-34s %9.3f %7.1f %9.1f %9.1f\n", name.c_str(), seconds * 1e3, 100 * seconds / mean,
                static_cast<double>(total.count) / options.steps, total.flops / std::max(total.seconds, 1e-12) / 1e9);
  }
  std::printf("%-34s %9.3f %7.1f\n", "outside spans", (mean - spans) * 1e3, 100 * (mean - spans) / mean);
  const std::string prefix = "step." + options.model + '.' + std::string(name(options.dtype));
  const auto figure = [&](const char* what, double value, const char* unit) {
    std::printf("figure %s.%s %.4g %s\n", prefix.c_str(), what, value, unit);
  };
  figure("seconds", median, "s");
  figure("tokens_per_s", static_cast<double>(work.tokens) / median, "tokens/s");
  figure("rate", flops / median / 1e9, "GFLOP/s");
  figure("peak_percent", 100 * flops / median / peak, "%");
  figure("memory", static_cast<double>(stats.peak_total) / 1048576.0, "MiB");
  figure("primitives_created", static_cast<double>(kernel::matmul_primitives_created(context) - primitives), "primitives");
  figure("loss", loss, "nats");
}

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--dtype" && has_value && (argv[i + 1] == std::string("f32") || argv[i + 1] == std::string("bf16")))
      options.dtype = argv[++i] == std::string("bf16") ? DType::bf16 : DType::f32;
    else if (word == "--steps" && has_value)
      options.steps = std::max(1, std::atoi(argv[++i]));
    else if (word == "--tokens" && has_value)
      options.tokens = std::max(1, std::atoi(argv[++i]));
    else if (word == "demo" || word == "decoder")
      options.model = word;
    else
      return std::fprintf(stderr, "bench_step demo|decoder [--dtype f32|bf16] [--steps N] [--tokens N]; got '%s'\n",
                          word.c_str()),
             2;
  }
  Context context;
  std::printf("%s, %s on %s\n", options.model.c_str(), std::string(name(options.dtype)).c_str(),
              kernel::matmul_description().c_str());
  if (options.model == "demo") {
    Demo demo(context, options.dtype);
    measure(context, demo.workload, options);
  } else {
    Decoder decoder(context, options.dtype, options.tokens);
    measure(context, decoder.workload, options);
  }
  return 0;
}

}  // namespace
}  // namespace chorus

int main(int argc, char** argv) {
  try {
    return chorus::run(argc, argv);
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
}
