#include <chorus/apps/run_folder.h>
#include <chorus/apps/run_record.h>

#include <chrono>
#include <cmath>

namespace chorus {
namespace {

using Fields = std::vector<MetricsWriter::Field>;

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string hexfloat(double x) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", x);
  return text;
}

std::int64_t integer(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

void add_drops(Fields& fields, const DropCounts& drops) {
  for (const auto& [reason, count] : drops_by_reason(drops)) fields.push_back({"dropped." + reason, count});
}

/// "memory.<category>" and "memory_peak.<category>" are the same in the JSON lines and, behind "memory/", in event files.
Fields step_fields(const StepReport& r, double matrix_peak) {
  Fields fields{{"event", std::string("step")},
                {"phase", r.phase},
                {"step", r.step},
                {"epoch", r.epoch},
                {"loss", r.loss},
                {"loss_hex", hexfloat(r.loss)},
                {"llm_loss", r.llm_loss},
                {"ctc_loss", r.ctc_loss},
                {"grad_norm", r.grad_norm},
                {"lr", r.lr},
                {"samples", r.samples},
                {"frames", r.frames},
                {"labels", r.labels},
                {"microbatches", r.microbatches},
                {"tokens_per_s", static_cast<double>(r.rows) / r.seconds},
                {"audio_seconds_per_s", r.audio_seconds / r.seconds},
                {"gflops", r.flops / r.seconds / 1e9},
                {"peak_percent", 100 * r.flops / r.seconds / matrix_peak},
                {"seconds", r.seconds},
                {"data_wait", r.data_wait},
                {"memory_bytes", integer(r.memory)},
                {"memory_peak_bytes", integer(r.memory_peak)},
                {"memory_step_peak_bytes", integer(r.memory_step_peak)}};
  for (std::size_t i = 0; i < category_count; ++i) {
    if (r.memory_peak_of[i] == 0) continue;  // a category that the step never used
    const std::string category(name(static_cast<Category>(i)));
    fields.push_back({"memory." + category, integer(r.memory_of[i])});
    fields.push_back({"memory_peak." + category, integer(r.memory_peak_of[i])});
  }
  return fields;
}

void write_step_events(EventFile& events, const StepReport& r, double matrix_peak) {
  const std::array scalars{Scalar{"train/loss", r.loss},
                           Scalar{"train/llm_loss", r.llm_loss},
                           Scalar{"train/ctc_loss", r.ctc_loss},
                           Scalar{"train/grad_norm", r.grad_norm},
                           Scalar{"train/lr", r.lr},
                           Scalar{"speed/tokens_per_s", static_cast<double>(r.rows) / r.seconds},
                           Scalar{"speed/audio_seconds_per_s", r.audio_seconds / r.seconds},
                           Scalar{"speed/gflops", r.flops / r.seconds / 1e9},
                           Scalar{"speed/peak_percent", 100 * r.flops / r.seconds / matrix_peak},
                           Scalar{"speed/step_seconds", r.seconds},
                           Scalar{"speed/data_wait_seconds", r.data_wait},
                           Scalar{"memory/step_peak_bytes", static_cast<double>(r.memory_step_peak)}};
  events.scalars(r.step, now(), scalars);
}

}  // namespace

std::vector<std::pair<std::string, std::int64_t>> drops_by_reason(const DropCounts& drops) {
  return {{"too_short", drops.too_short},         {"too_long", drops.too_long},     {"empty_text", drops.empty_text},
          {"text_too_long", drops.text_too_long}, {"failed", drops.failed},         {"unknown_text", drops.unknown_text},
          {"bad_lines", drops.bad_lines},         {"duplicates", drops.duplicates}, {"unreadable", drops.unreadable},
          {"without_ctc", drops.without_ctc}};
}

RunRecord::RunRecord(std::filesystem::path folder, RunRecordOptions options, std::function<void(const std::string&)> say)
    : folder_(std::move(folder)),
      options_(std::move(options)),
      say_(say),
      metrics_((folder_ / "metrics.jsonl").string(),
               [this, say] { return std::make_unique<MetricsWriter>(folder_ / "metrics.jsonl", say); }, say),
      transcripts_((folder_ / "transcripts.jsonl").string(),
                   [this, say] { return std::make_unique<MetricsWriter>(folder_ / "transcripts.jsonl", say); }, say),
      events_(
          "TensorBoard's event file in " + folder_.string(),
          [this] {
            auto file = std::make_unique<EventFile>(folder_, next_step_, now());
            if (!options_.config.empty()) file->text(next_step_ - 1, now(), "config", "```\n" + options_.config + "```\n");
            return file;
          },
          say) {}

/// The trainer's own config.toml is equal but for the origins.
void RunRecord::write_config() const {
  if (options_.config.empty()) return;
  try {
    write_file_atomically(folder_ / "config.toml", options_.config);
  } catch (const std::exception& error) {
    say_(std::string("config.toml has no origins: ") + error.what());
  }
}

void RunRecord::start(const StartReport& report) {
  next_step_ = report.step + 1;
  write_config();
  const Fields line{{"event", std::string("start")},
                    {"step", report.step},
                    {"total_steps", report.total_steps},
                    {"time", now()},
                    {"ranks", report.ranks},
                    {"layout", report.layout},
                    {"parameters", report.parameters},
                    {"matrix_peak_flops", options_.matrix_peak}};
  metrics_.use([&](MetricsWriter& metrics) { metrics.write(line); });
  if (std::filesystem::exists(folder_ / "transcripts.jsonl"))
    transcripts_.use([&](MetricsWriter& transcripts) { transcripts.write(std::span(line).first(2)); });
}

void RunRecord::step(const StepReport& report) {
  if (steps_ > 0 && last_.phase != report.phase) finish_interval();
  next_step_ = report.step;
  metrics_.use([&](MetricsWriter& metrics) { metrics.write(step_fields(report, options_.matrix_peak)); });
  events_.use([&](EventFile& events) { write_step_events(events, report, options_.matrix_peak); });
  next_step_ = report.step + 1;
  ++steps_;
  seconds_ += report.seconds;
  data_wait_ += report.data_wait;
  for (const auto& [op, total] : report.ops) {
    auto& sum = ops_[op];
    sum.count += total.count;
    sum.seconds += total.seconds;
    sum.flops += total.flops;
  }
  last_ = report;
  if (report.step % options_.interval == 0 || report.step == report.total_steps) finish_interval();
}

void RunRecord::finish_interval() {
  if (steps_ == 0) return;
  Fields fields{{"event", std::string("interval")},
                {"phase", last_.phase},
                {"step", last_.step},
                {"steps", steps_},
                {"seconds", seconds_},
                {"data_wait", data_wait_}};
  for (const auto& [op, total] : ops_) {
    fields.push_back({"op_seconds." + op, total.seconds});
    if (total.flops > 0) fields.push_back({"op_flops." + op, total.flops});
  }
  add_drops(fields, last_.drops);
  metrics_.use([&](MetricsWriter& metrics) { metrics.write(fields); });

  std::vector<std::string> tags;
  std::vector<Scalar> scalars;
  tags.reserve(ops_.size() + 2 * category_count);  // scalars point into it
  const auto add = [&](std::string tag, double value) { scalars.push_back({tags.emplace_back(std::move(tag)), value}); };
  for (const auto& [op, total] : ops_) add("milliseconds_per_step/" + op, 1e3 * total.seconds / static_cast<double>(steps_));
  for (std::size_t i = 0; i < category_count; ++i) {
    const std::string category(name(static_cast<Category>(i)));
    add("memory/" + category, static_cast<double>(last_.memory_of[i]));
    add("memory_peak/" + category, static_cast<double>(last_.memory_peak_of[i]));
  }
  events_.use([&](EventFile& events) { events.scalars(last_.step, now(), scalars); });
  steps_ = 0;
  seconds_ = data_wait_ = 0;
  ops_.clear();
}

void RunRecord::evaluation(const EvaluationReport& report) {
  const Evaluation& e = report.evaluation;
  const Fields line{{"event", std::string("evaluation")},
                    {"phase", report.phase},
                    {"step", report.step},
                    {"recordings", e.scored},
                    {"seconds", report.seconds},
                    {"llm_loss", e.llm_loss},
                    {"ctc_loss", e.ctc_loss},
                    {"llm_perplexity", e.perplexity()},
                    {"bits_per_byte", e.bits_per_byte()},
                    {"llm_cer", e.llm.characters.value()},
                    {"llm_wer", e.llm.words.value()},
                    {"ctc_cer", e.ctc.characters.value()},
                    {"ctc_wer", e.ctc.words.value()}};
  metrics_.use([&](MetricsWriter& metrics) { metrics.write(line); });

  std::vector<Scalar> scalars;
  const auto part = [&](const TextScore& score, std::array<std::string_view, 3> tags, double loss) {
    if (score.characters.reference == 0) return;  // a part that the model lacks
    scalars.push_back({tags[0], loss});
    scalars.push_back({tags[1], score.characters.value()});
    scalars.push_back({tags[2], score.words.value()});
  };
  if (!e.listens) {
    scalars.push_back({"evaluation/llm_loss", e.llm_loss});
    scalars.push_back({"evaluation/bits_per_byte", e.bits_per_byte()});
  }
  part(e.llm, {"evaluation/llm_loss", "evaluation/llm_cer", "evaluation/llm_wer"}, e.llm_loss);
  part(e.ctc, {"evaluation/ctc_loss", "evaluation/ctc_cer", "evaluation/ctc_wer"}, e.ctc_loss);
  events_.use([&](EventFile& events) { events.scalars(report.step, now(), scalars); });

  if (!e.listens) return;
  std::vector<std::size_t> scored;
  for (std::size_t i = 0; i < e.entries.size(); ++i)
    if (e.entries[i].problem.empty() && !report.sources[i].entry.text.empty()) scored.push_back(i);
  const std::size_t shown = std::min(scored.size(), options_.transcripts);
  for (std::size_t k = 0; k < shown; ++k) {
    const std::size_t i = scored[k * scored.size() / shown];
    const ManifestEntry& source = report.sources[i].entry;
    const EvaluatedEntry& heard = e.entries[i];
    Fields fields{{"event", std::string("transcript")},  {"phase", report.phase},    {"step", report.step},
                  {"recording", recording_name(source)}, {"seconds", heard.seconds}, {"reference", source.text}};
    if (e.llm.characters.reference > 0) fields.push_back({"llm", heard.text});
    if (e.ctc.characters.reference > 0) fields.push_back({"ctc", heard.ctc});
    transcripts_.use([&](MetricsWriter& transcripts) { transcripts.write(fields); });
  }
}

void RunRecord::memory(const MemoryReport& report) {
  Fields fields{{"event", std::string("memory")},
                {"phase", report.phase},
                {"step", report.step},
                {"encoder_rows", report.rows.encoder},
                {"decoder_rows", report.rows.decoder}};
  for (const MemoryLine& line : report.lines) {
    if (line.formula) fields.push_back({"memory_report." + line.name + ".formula", std::llround(*line.formula)});
    if (line.found) fields.push_back({"memory_report." + line.name + ".measured", std::llround(*line.found)});
  }
  metrics_.use([&](MetricsWriter& metrics) { metrics.write(fields); });
}

void RunRecord::end(const TrainingResult& result) {
  finish_interval();
  constexpr std::string_view outcomes[] = {"finished", "stopped", "paused"};
  Fields fields{{"event", std::string("end")},
                {"step", result.step},
                {"outcome", std::string(outcomes[static_cast<int>(result.outcome)])},
                {"time", now()},
                {"train_seconds", result.train_seconds},
                {"weight_hash", result.weight_hash},
                {"dropped", result.drops.total()}};
  add_drops(fields, result.drops);
  metrics_.use([&](MetricsWriter& metrics) { metrics.write(fields); });
}

void RunRecord::finish() {
  metrics_.finish();
  transcripts_.finish();
}

}  // namespace chorus
