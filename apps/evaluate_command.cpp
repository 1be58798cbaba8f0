#include <chorus/apps/commands.h>
#include <chorus/apps/evaluator.h>
#include <chorus/apps/open_run.h>
#include <chorus/core/posix_file.h>

#include <algorithm>
#include <cstdio>

namespace chorus {
namespace {

void print_score(const std::string& label, const TextScore& score) {
  std::printf("%-28s CER %6.1f %%   WER %6.1f %%   (%lld characters, %lld words)\n", label.c_str(),
              100 * score.characters.value(), 100 * score.words.value(), static_cast<long long>(score.characters.reference),
              static_cast<long long>(score.words.reference));
}

void print_figure(const EvaluateOptions& options, const char* what, double value, const char* unit) {
  std::printf("figure %s_%s %.1f %s\n", options.figure_prefix.c_str(), what, value, unit);
}

void print_counts(const Evaluation& evaluation, std::int64_t bad_lines) {
  if (evaluation.without_reference > 0)
    std::printf("%lld without reference: transcribed, not scored\n", static_cast<long long>(evaluation.without_reference));
  if (evaluation.with_loss < evaluation.scored)
    std::printf("%lld heard in chunks: scored, but not part of the loss\n",
                static_cast<long long>(evaluation.scored - evaluation.with_loss));
  if (evaluation.failed > 0) std::printf("%lld dropped\n", static_cast<long long>(evaluation.failed));
  if (bad_lines > 0) std::printf("%lld lines of the manifest dropped\n", static_cast<long long>(bad_lines));
}

void print_languages(const Evaluation& evaluation, bool llm) {
  for (const auto& [name, score] : evaluation.languages)
    print_score((name.empty() ? "no language" : name) + ", " + std::to_string(score.recordings), llm ? score.llm : score.ctc);
}

/// Scores of recordings that hear something else; only those that are heard whole.
void print_controls(const EvaluateOptions& options, const LoadedRun& run, const std::vector<TranscriptSource>& sources,
                    const Evaluation& evaluation) {
  std::vector<ManifestEntry> entries;
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (evaluation.entries[i].problem.empty() && evaluation.entries[i].segments == 1) entries.push_back(sources[i].entry);
  const Corpus corpus = run.transcriber->corpus(entries);
  const TextScore other = run.transcriber->control_other(corpus.recordings),
                  silence = run.transcriber->control_silence(corpus.recordings);
  print_score("hears another recording", other);
  print_score("hears silence", silence);
  print_figure(options, "control_other_cer", 100 * other.characters.value(), "%");
  print_figure(options, "control_silence_cer", 100 * silence.characters.value(), "%");
  print_figure(options, "control_cer", 100 * std::min(other.characters.value(), silence.characters.value()), "%");
}

void print_table(int rows, const std::vector<TranscriptSource>& sources, const Evaluation& evaluation, bool llm) {
  std::vector<std::size_t> scored;
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (evaluation.entries[i].problem.empty() && !sources[i].entry.text.empty()) scored.push_back(i);
  std::printf("\n| recording | reference | transcript |\n|---|---|---|\n");
  const auto most = static_cast<std::size_t>(rows);
  const std::size_t stride = std::max<std::size_t>(1, scored.size() / most);
  for (std::size_t k = 0, shown = 0; k < scored.size() && shown < most; k += stride, ++shown) {
    const ManifestEntry& entry = sources[scored[k]].entry;
    const EvaluatedEntry& heard = evaluation.entries[scored[k]];
    std::printf("| %s | %s | %s |\n", recording_name(entry).c_str(), entry.text.c_str(),
                (llm ? heard.text : heard.ctc).c_str());
  }
  std::printf("\n");
}

/// A decoder without perception has nothing to transcribe: its figures are those of the texts.
int evaluate_texts(const EvaluateOptions& options, const LoadedRun& run) {
  require(!options.controls && options.table == 0 && options.output_manifest.empty() && options.json.empty(), "evaluate",
          "--controls, --table, --output-manifest and --json need a model that listens");
  const Evaluation e = evaluate(*run.transcriber, sources_of(read_manifest(options.manifest, {}, run.config.content())), {});
  if (e.without_reference > 0)
    std::fprintf(stderr, "dropped: %lld entries without text\n", static_cast<long long>(e.without_reference));
  require(e.scored > 0, "evaluate", options.manifest.string(), " has no text that can be used");
  std::printf("%s: %lld texts, %lld tokens, %lld bytes, checkpoint of step %lld\n", options.manifest.c_str(),
              static_cast<long long>(e.scored), static_cast<long long>(e.labels), static_cast<long long>(e.text_bytes),
              static_cast<long long>(run.step));
  const char* prefix = options.figure_prefix.c_str();
  std::printf("figure %s_loss %.4f nats\nfigure %s_perplexity %.2f per_token\nfigure %s_bits_per_byte %.4f bits\n", prefix,
              e.llm_loss, prefix, e.perplexity(), prefix, e.bits_per_byte());
  return 0;
}

}  // namespace

int run_evaluate(const EvaluateOptions& options) {
  const LoadedRun run = open_run(options.run, options.threads);
  if (!run.config.model.perception) return evaluate_texts(options, run);
  std::int64_t bad_lines = 0;
  const auto sources = list_manifest(options.manifest, [&](const std::string& problem) {
    std::fprintf(stderr, "dropped: %s\n", problem.c_str());
    ++bad_lines;
  });
  const bool llm = run.transcriber->has_decoder(), ctc = run.transcriber->has_ctc();
  for (const auto& file : {options.output_manifest, options.json})
    if (file.has_parent_path()) make_folders(file.parent_path());
  std::string output_manifest;
  const Evaluation evaluation =
      evaluate(*run.transcriber, sources, transcription_options(options.hearing, run.config),
               [&](std::size_t i, const EvaluatedEntry& entry) {
                 if (!entry.problem.empty())
                   std::fprintf(stderr, "dropped: %s: %s\n", sources[i].name().c_str(), entry.problem.c_str());
                 if (!options.output_manifest.empty())
                   output_manifest += output_line(sources[i], entry.seconds, llm ? entry.text : entry.ctc, entry.problem);
               });
  if (!options.output_manifest.empty()) write_file_atomically(options.output_manifest, output_manifest);
  if (!options.json.empty())
    write_file_atomically(options.json, evaluation_json(evaluation, options.manifest.string(), run.step));
  const std::int64_t heard = evaluation.scored + evaluation.without_reference;
  require(heard > 0, "evaluate", options.manifest.string(), " has no recording that can be used");

  std::printf("%s: %lld recordings, checkpoint of step %lld\n", options.manifest.c_str(), static_cast<long long>(heard),
              static_cast<long long>(run.step));
  print_counts(evaluation, bad_lines);
  std::fprintf(stderr, "%s\n", totals_line(evaluation.totals).c_str());
  const int status = evaluation.failed || bad_lines ? 1 : 0;
  if (evaluation.scored == 0) return status;
  if (llm) print_score("decoder", evaluation.llm);
  if (ctc) print_score("CTC head", evaluation.ctc);
  print_languages(evaluation, llm);
  if (options.controls) print_controls(options, run, sources, evaluation);
  if (options.table > 0) print_table(options.table, sources, evaluation, llm);
  const TextScore& main_score = llm ? evaluation.llm : evaluation.ctc;
  if (llm && evaluation.with_loss > 0)
    std::printf("figure %s_loss %.4f nats\n", options.figure_prefix.c_str(), evaluation.llm_loss);
  print_figure(options, "cer", 100 * main_score.characters.value(), "%");
  print_figure(options, "wer", 100 * main_score.words.value(), "%");
  if (llm && ctc) print_figure(options, "ctc_cer", 100 * evaluation.ctc.characters.value(), "%");
  return status;
}

}  // namespace chorus
