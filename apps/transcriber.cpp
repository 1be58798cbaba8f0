#include <chorus/apps/checkpoint_fit.h>
#include <chorus/apps/training_state.h>
#include <chorus/apps/transcriber.h>
#include <chorus/io/checkpoint.h>
#include <chorus/io/shards.h>
#include <chorus/tensor/ops/ctc.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace chorus {
namespace {

/// Mean over the rows of each sequence of the log-probability of the most probable symbol.
std::vector<double> mean_best_log_p(const Tensor& logits, const Rows& rows) {
  const auto values = logits.to_doubles();
  const std::ptrdiff_t symbols = logits.size(1);
  std::vector<double> means;
  for (std::int64_t s = 0; s < rows.sequences(); ++s) {
    double sum = 0;
    for (std::int64_t t = rows.begin(s); t < rows.begin(s + 1); ++t) {
      const auto row = values.begin() + t * symbols;
      const double best = *std::max_element(row, row + symbols);
      double total = 0;
      for (auto it = row; it != row + symbols; ++it) total += std::exp(*it - best);
      sum -= std::log(total);
    }
    means.push_back(rows.length(s) ? sum / static_cast<double>(rows.length(s)) : 0);
  }
  return means;
}

constexpr std::size_t text_bytes_per_batch = 8192;  // some 2,000 tokens

}  // namespace

Transcriber::Transcriber(Context& context, const Salm& model, const RunConfig& config, const RunInputs& inputs)
    : context_(context),
      model_(model),
      config_(config),
      inputs_(inputs),
      prompt_(config.prompt, inputs.tokenizer, config.model.perception),
      frontend_(config.features, inputs.statistics) {}

std::vector<float> Transcriber::features(std::span<const float> samples) const { return frontend_(samples); }

std::string recording_name(const ManifestEntry& entry) { return entry.id.empty() ? entry.audio.stem().string() : entry.id; }

Recording Transcriber::recording(const ManifestEntry& entry) const {
  if (!model_.encoder) return {.name = recording_name(entry), .features = {}, .seconds = 0, .text = entry.text};
  const auto samples = read_audio(entry, config_.features.sample_rate);
  Recording out{recording_name(entry), features(samples), 0, entry.text};
  out.seconds = static_cast<double>(samples.size()) / config_.features.sample_rate;
  return out;
}

Corpus Transcriber::corpus(std::span<const ManifestEntry> entries) const {
  Corpus out;
  for (const auto& entry : entries) {
    try {
      require(!entry.text.empty(), "corpus", "has no reference text");
      out.recordings.push_back(recording(entry));
    } catch (const Error& error) {
      out.dropped.push_back(audio_name(entry).string() + ": " + error.what());
    }
  }
  return out;
}

void Transcriber::for_each_batch(
    std::span<const Recording> recordings, std::size_t frames_per_batch,
    const std::function<void(std::span<const std::size_t>, std::span<const SpeechSample>)>& use) const {
  std::vector<std::size_t> order(recordings.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto size = [&](std::size_t i) { return model_.encoder ? recordings[i].features.size() : recordings[i].text.size(); };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return size(a) < size(b); });
  std::vector<std::vector<std::int32_t>> texts(recordings.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin, values = 0;
    const auto budget =
        model_.encoder ? frames_per_batch * static_cast<std::size_t>(config_.features.mels) : text_bytes_per_batch;
    while (end < order.size() && (end == begin || values + size(order[end]) <= budget)) values += size(order[end++]);
    std::vector<SpeechSample> samples;
    for (std::size_t i = begin; i < end; ++i) {
      const auto& r = recordings[order[i]];
      for (const int id : inputs_.tokenizer.encode(r.text)) texts[order[i]].push_back(id);
      samples.push_back({static_cast<std::int64_t>(order[i]), r.features, texts[order[i]]});
    }
    use(std::span<const std::size_t>(order).subspan(begin, end - begin), samples);
    begin = end;
  }
}

std::vector<TimedWord> Transcriber::timed_words(std::span<const std::int32_t> tokens, std::span<const CtcSpan> spans,
                                                double seconds) const {
  const double row = config_.features.hop_seconds * config_.model.encoder.subsampling_factor;
  // SentencePiece writes spaces as U+2581: a piece that begins with one begins a word, or is no more than the end of one.
  constexpr std::string_view space = "\u2581";
  std::vector<TimedWord> words;
  std::vector<int> ids;  // of the word at hand
  std::size_t first = 0;
  const auto finish = [&](std::size_t end) {
    if (ids.empty()) return;
    std::string text = inputs_.tokenizer.decode(ids);
    text.erase(0, text.find_first_not_of(' '));
    text.erase(text.find_last_not_of(' ') + 1);
    words.push_back({text, static_cast<double>(spans[first].first) * row,
                     std::min(seconds, static_cast<double>(spans[end - 1].last + 1) * row)});
    ids.clear();
  };
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const std::string piece = inputs_.tokenizer.piece(tokens[i]);
    if (piece.starts_with(space)) finish(i);
    if (piece == space) continue;
    if (ids.empty()) first = i;
    ids.push_back(tokens[i]);
  }
  finish(spans.size());
  return words;
}

std::vector<Transcript> Transcriber::transcribe(std::span<const Recording> recordings, const TranscriptOptions& options) const {
  require(!options.word_times || model_.ctc_head, "transcribe", "word times need a CTC head; model.ctc_head is false");
  NoGrad quiet(context_);
  std::vector<Transcript> out(recordings.size());
  for_each_batch(
      recordings, options.frames_per_batch, [&](std::span<const std::size_t> indices, std::span<const SpeechSample> samples) {
        const SalmBatch batch = make_salm_batch(context_, samples, config_, inputs_.tokenizer, prompt_, false);
        const Salm::Heard heard = model_.hear(batch.features, batch.frames, Pass{});
        const auto align = [&](std::vector<std::vector<std::int32_t>> tokens, auto words) {
          if (!options.word_times) return;
          for (auto& t : tokens) std::erase_if(t, [&](std::int32_t id) { return inputs_.tokenizer.control(id); });
          const auto spans = ctc_align(heard.ctc_logits, heard.encoded.rows, tokens);
          for (std::size_t i = 0; i < indices.size(); ++i)
            out[indices[i]].*words = timed_words(tokens[i], spans[i], recordings[indices[i]].seconds);
        };
        if (heard.ctc_logits) {
          const auto labels = ctc_greedy(heard.ctc_logits, heard.encoded.rows);
          const auto log_p = mean_best_log_p(heard.ctc_logits, heard.encoded.rows);
          for (std::size_t i = 0; i < indices.size(); ++i) {
            out[indices[i]].ctc = inputs_.tokenizer.decode(labels[i]);
            out[indices[i]].ctc_log_p = log_p[i];
          }
          align(labels, &Transcript::ctc_words);
        }
        if (!model_.llm) return;
        std::vector<std::int64_t> limits;
        for (const auto i : indices)
          limits.push_back(static_cast<std::int64_t>(std::ceil(recordings[i].seconds * config_.max_answer_tokens_per_second)) +
                           10);
        std::vector<double> log_p;
        const auto answers = model_.generate(heard, batch, limits, inputs_.tokenizer.eos(), &log_p);
        for (std::size_t i = 0; i < indices.size(); ++i) {
          out[indices[i]].text = inputs_.tokenizer.decode(answers[i]);
          out[indices[i]].text_log_p = log_p[i];
        }
        align(answers, &Transcript::words);
      });
  return out;
}

Losses Transcriber::losses(std::span<const Recording> recordings) const {
  NoGrad quiet(context_);
  Losses out;
  const std::int64_t mels = config_.features.mels;
  for (const auto& r : recordings) {
    const LossCounts own =
        loss_counts(static_cast<std::int64_t>(r.features.size()) / mels, inputs_.tokenizer.encode(r.text), config_, prompt_);
    out.counts.labels += own.labels;
    out.counts.ctc_targets += own.ctc_targets;
  }
  const SalmLossOptions options{.counts = out.counts,
                                .llm_weight = model_.llm ? 1.0 : 0.0,
                                .ctc_weight = model_.ctc_head ? 1.0 : 0.0,
                                .label_smoothing = 0,
                                .corruption = {}};
  for_each_batch(recordings, TranscriptOptions{}.frames_per_batch,
                 [&](std::span<const std::size_t>, std::span<const SpeechSample> samples) {
                   const SalmLoss loss = model_.loss(
                       make_salm_batch(context_, samples, config_, inputs_.tokenizer, prompt_, true), options, Pass{});
                   out.llm += loss.llm;
                   out.ctc += loss.ctc;
                 });
  return out;
}

TextScore Transcriber::control(std::span<const Recording> recordings, std::span<const Recording> heard) const {
  const auto transcripts = transcribe(heard);
  TextScore score;
  for (std::size_t i = 0; i < recordings.size(); ++i)
    score.add(recordings[i].text, model_.llm ? transcripts[i].text : transcripts[i].ctc);
  return score;
}

TextScore Transcriber::control_other(std::span<const Recording> recordings, std::size_t shift) const {
  require(recordings.size() > 1, "control", recordings.size(), " recordings; to hear another one there must be two");
  if (shift % recordings.size() == 0) shift = 1;  // each would hear itself
  std::vector<Recording> heard;
  for (std::size_t i = 0; i < recordings.size(); ++i) heard.push_back(recordings[(i + shift) % recordings.size()]);
  return control(recordings, heard);
}

TextScore Transcriber::control_silence(std::span<const Recording> recordings) const {
  std::vector<Recording> heard(recordings.begin(), recordings.end());
  for (auto& r : heard) {
    const std::vector<float> silence(static_cast<std::size_t>(r.seconds * config_.features.sample_rate));
    r.features = features(silence);
  }
  return control(recordings, heard);
}

LoadedRun load_run(const std::filesystem::path& folder, const std::function<void(const std::string&)>& report) {
  const auto checkpoint = find_checkpoint(folder / "checkpoints", report);
  const RunConfig config = load_run_config(folder);
  require(checkpoint.has_value(), "load_run", (folder / "checkpoints").string(), " holds no valid checkpoint");
  LoadedRun run{std::make_unique<Context>(),
                config,
                std::make_unique<RunInputs>(load_run_inputs(folder, config)),
                nullptr,
                nullptr,
                static_cast<std::int64_t>(checkpoint->manifest().step)};
  // Nothing is trained here: without gradients and masters a model takes a fraction of the memory.
  run.built = build_salm(*run.context, run.config, run.inputs->tokenizer, {{".*"}, {}});
  require_same_inputs(progress_from_json(checkpoint->manifest().state), *run.inputs, folder);
  read_parts(*checkpoint, named_weights(*run.built), {.convert = true});
  run.transcriber = std::make_unique<Transcriber>(*run.context, run.built->model, run.config, *run.inputs);
  return run;
}

}  // namespace chorus
