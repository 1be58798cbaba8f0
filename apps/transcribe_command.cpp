#include <chorus/apps/commands.h>
#include <chorus/apps/console.h>
#include <chorus/core/cpu.h>
#include <chorus/io/manifest.h>
#include <omp.h>

namespace chorus {
namespace {

LoadedRun open_run(const std::filesystem::path& folder, int threads) {
  omp_set_num_threads(threads > 0 ? threads : compute_threads());
  return load_run(folder, [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
}

}  // namespace

int run_transcribe(const TranscribeOptions& options) {
  const LoadedRun run = open_run(options.run, options.threads);
  require(run.config.model.perception, "transcribe", "the model of ", options.run.string(), " reads text only");
  int failures = 0;
  for (const auto& file : options.files) {
    // File by file: one that can't be read costs nobody else's transcript.
    try {
      const Recording recording =
          run.transcriber->recording({.audio = file, .text = "", .offset = 0, .duration = -1, .lang = "", .id = ""});
      const Transcript transcript = run.transcriber->transcribe(std::span(&recording, 1))[0];
      std::printf("%s\t%s\n", file.c_str(), (options.ctc || !run.built->model.llm ? transcript.ctc : transcript.text).c_str());
      std::fflush(stdout);
    } catch (const Error& error) {
      std::fprintf(stderr, "chorus: %s: %s\n", file.c_str(), error.what());
      ++failures;
    }
  }
  return failures ? 1 : 0;
}

namespace {

void print_score(const std::string& label, const TextScore& score) {
  std::printf("%-28s CER %6.1f %%   WER %6.1f %%   (%lld characters, %lld words)\n", label.c_str(),
              100 * score.characters.value(), 100 * score.words.value(), static_cast<long long>(score.characters.reference),
              static_cast<long long>(score.words.reference));
}

void print_text_evaluation(const EvaluateOptions& options, std::size_t texts, std::int64_t step, const Evaluation& e) {
  std::printf("%s: %zu texts, %lld tokens, %lld bytes, checkpoint of step %lld\n", options.manifest.c_str(), texts,
              static_cast<long long>(e.labels), static_cast<long long>(e.text_bytes), static_cast<long long>(step));
  const char* prefix = options.figure_prefix.c_str();
  std::printf("figure %s_loss %.4f nats\nfigure %s_perplexity %.2f per_token\nfigure %s_bits_per_byte %.4f bits\n", prefix,
              e.llm_loss, prefix, e.perplexity(), prefix, e.bits_per_byte());
}

}  // namespace

int run_evaluate(const EvaluateOptions& options) {
  const LoadedRun run = open_run(options.run, options.threads);
  auto entries = read_manifest(options.manifest, {}, run.config.content());
  const Corpus corpus = run.transcriber->corpus(entries);
  for (const auto& line : corpus.dropped) std::fprintf(stderr, "dropped: %s\n", line.c_str());
  require(!corpus.recordings.empty(), "evaluate", options.manifest.string(), " has no recording that can be used");
  const Evaluation evaluation = run.transcriber->evaluate(corpus.recordings);
  if (!run.config.model.perception) {
    require(!options.controls && options.table == 0, "evaluate", "--controls and --table need a model that listens");
    print_text_evaluation(options, corpus.recordings.size(), run.step, evaluation);
    return 0;
  }
  const bool llm = run.built->model.llm.has_value(), ctc = run.built->model.ctc_head.has_value();
  std::printf("%s: %zu recordings, checkpoint of step %lld\n", options.manifest.c_str(), corpus.recordings.size(),
              static_cast<long long>(run.step));
  const auto figure = [&](const char* what, double value, const char* unit) {
    std::printf("figure %s_%s %.1f %s\n", options.figure_prefix.c_str(), what, value, unit);
  };
  if (llm) print_score("decoder", evaluation.llm);
  if (ctc) print_score("CTC head", evaluation.ctc);
  const TextScore& main_score = llm ? evaluation.llm : evaluation.ctc;
  if (options.controls) {
    const TextScore other = run.transcriber->control_other(corpus.recordings),
                    silence = run.transcriber->control_silence(corpus.recordings);
    print_score("hears another recording", other);
    print_score("hears silence", silence);
    figure("control_other_cer", 100 * other.characters.value(), "%");
    figure("control_silence_cer", 100 * silence.characters.value(), "%");
    figure("control_cer", 100 * std::min(other.characters.value(), silence.characters.value()), "%");
  }
  if (options.table > 0) {
    std::printf("\n| recording | reference | transcript |\n|---|---|---|\n");
    const std::size_t stride = std::max<std::size_t>(1, corpus.recordings.size() / static_cast<std::size_t>(options.table));
    for (std::size_t i = 0, shown = 0; i < corpus.recordings.size() && shown < static_cast<std::size_t>(options.table);
         i += stride, ++shown) {
      const auto& t = evaluation.transcripts[i];
      std::printf("| %s | %s | %s |\n", corpus.recordings[i].name.c_str(), corpus.recordings[i].text.c_str(),
                  (llm ? t.text : t.ctc).c_str());
    }
    std::printf("\n");
  }
  if (llm) std::printf("figure %s_loss %.4f nats\n", options.figure_prefix.c_str(), evaluation.llm_loss);
  figure("cer", 100 * main_score.characters.value(), "%");
  figure("wer", 100 * main_score.words.value(), "%");
  if (llm && ctc) figure("ctc_cer", 100 * evaluation.ctc.characters.value(), "%");
  return 0;
}

}  // namespace chorus
