// The commands of the `chorus` executable, each with its options. They return the exit status; errors are thrown.
#pragma once
#include <chorus/io/text_corpus.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace chorus {

inline constexpr int exit_stopped = 75;  ///< SIGTERM or SIGINT: a checkpoint was saved, the same command goes on

struct TrainOptions {
  std::filesystem::path file;
  std::vector<std::string> overrides;
  bool print_config = false, reference = false, dry_run = false;
  std::int64_t measure = 0;  ///< with dry_run: steps of each phase to measure the memory of
  int ranks = 0;             ///< threads of this process that are ranks; 0: one, or what mpirun has started
};
int run_train(const TrainOptions& options);

struct PlanLayoutOptions {
  std::filesystem::path file;
  std::vector<std::string> overrides;
  int ranks = 1, rank = -1;  ///< rank -1: all of them
  bool json = false;
};
/// Prints who holds what of the model.
int run_plan_layout(const PlanLayoutOptions& options);

/// How recordings are cut and heard; see CutOptions and TranscriptionOptions.
struct HearingOptions {
  std::optional<double> chunk_seconds, batch_seconds;
  double tail_seconds = 0.5, quiet_seconds = 0, max_seconds = 300;
};

struct TranscribeOptions {
  std::filesystem::path run;
  std::vector<std::string> inputs;  ///< files, folders, @lists, "-"
  std::filesystem::path manifest;
  std::string format = "text";
  std::filesystem::path output, output_dir, output_manifest;  ///< empty: standard output, none
  bool ctc = false, word_times = false;
  std::string raw;  ///< encoding of samples without a header on standard input
  int sample_rate = 0, channels = 1;
  HearingOptions hearing;
  int threads = 0;  ///< 0: the cores of the machine
};
int run_transcribe(const TranscribeOptions& options);

struct EvaluateOptions {
  std::filesystem::path run, manifest;
  std::string figure_prefix = "evaluate";
  bool controls = false;
  int table = 0, threads = 0;
  HearingOptions hearing;
  std::filesystem::path output_manifest, json;  ///< empty: none
};
int run_evaluate(const EvaluateOptions& options);

struct AsteriskOptions {
  std::filesystem::path texts, sounds, out;
  std::string lang = "en";
};
int run_asterisk(const AsteriskOptions& options);

struct TextDataOptions {
  std::vector<std::filesystem::path> files;
  std::filesystem::path out;
  TextCorpusOptions cut;
};
int run_text_data(const TextDataOptions& options);

struct ReportOptions {
  std::vector<std::filesystem::path> runs;
  std::filesystem::path out;  ///< empty: report.html in the folder of the first run
};
int run_report(const ReportOptions& options);

struct DataCheckOptions {
  std::vector<std::filesystem::path> manifests, heldout;
  std::string tars;
  bool deep = false, json = false;
  std::size_t limit = 20;  ///< findings shown of each kind; 0: all
  int threads = 0;         ///< 0: the cores of the machine
};
/// 1 where errors were found, 0 with nothing but warnings.
int run_data_check(const DataCheckOptions& options);

struct DataManifestOptions {
  std::filesystem::path audio, texts;       ///< folder and transcript list
  std::filesystem::path kaldi;              ///< folder with wav.scp, text and perhaps segments, utt2spk
  std::vector<std::filesystem::path> tars;  ///< shards by WebDataset's convention
  std::filesystem::path out;                ///< folder for train.jsonl and, with holdout > 0, heldout.jsonl
  std::string lang;
  double holdout = 0;
  std::size_t limit = 20;  ///< entries left out that are shown, of each kind; 0: all
};
int run_data_manifest(const DataManifestOptions& options);

}  // namespace chorus
