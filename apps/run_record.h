// What a run leaves behind for people: metrics.jsonl, transcripts.jsonl and TensorBoard's event files in its folder.
#pragma once
#include <chorus/apps/trainer.h>
#include <chorus/io/metrics.h>
#include <chorus/io/tfevents.h>

#include <algorithm>
#include <memory>

namespace chorus {

/// A file that training can do without. What can't be written is said once and counted. Later uses try again, with a new
/// opening, after one, two, four ... uses left out (a disk that is full stays full for a while), and say so when it works.
template <class Writer>
class Spare {
 public:
  using Open = std::function<std::unique_ptr<Writer>()>;
  Spare(std::string name, Open open, std::function<void(const std::string&)> say)
      : name_(std::move(name)), open_(std::move(open)), say_(std::move(say)) {}

  template <class Use>
  void use(Use&& use) {
    if (pause_ > 0) {
      --pause_;
      ++lost_;
      ++missing_;
      return;
    }
    try {
      if (!writer_) writer_ = open_();
      use(*writer_);
      if (lost_ > 0) say_(name_ + " is written again; " + std::to_string(lost_) + " entries are missing in it");
      lost_ = next_pause_ = 0;
    } catch (const std::exception& error) {
      writer_.reset();
      pause_ = next_pause_;
      next_pause_ = std::clamp(2 * next_pause_, 1, 1024);
      ++missing_;
      if (lost_++ == 0) say_(name_ + " can't be written, training goes on without it: " + error.what());
    }
  }

  /// Throws unless all that was to be written is there, as far as the disk says.
  void finish() {
    if (writer_) writer_->finish();
    require(missing_ == 0, "train", name_, " is not complete: ", missing_, " entries are missing");
  }

 private:
  std::string name_;
  Open open_;
  std::function<void(const std::string&)> say_;
  std::unique_ptr<Writer> writer_;
  std::int64_t lost_ = 0, missing_ = 0;  ///< in the present bad time, and in all
  int pause_ = 0, next_pause_ = 0;
};

struct RunRecordOptions {
  double matrix_peak = 0;        ///< FLOP/s, what steps are compared with
  std::int64_t interval = 10;    ///< steps whose time by operation is summed into one line
  std::size_t transcripts = 50;  ///< of an evaluation at most, spread evenly over its recordings
  std::string config;            ///< resolved, with origins: becomes config.toml and TensorBoard's text
};

/// The lines of metrics.jsonl are objects with an "event":
/// - start: an invocation goes on after "step"; "time" in seconds since 1970, "parameters", "matrix_peak_flops"
/// - step: one optimizer step
/// - interval: sums over the last "steps" steps up to "step" ("op_seconds.<op>", "op_flops.<op>") and "dropped.<reason>" so far
/// - memory: once in a phase, bytes of "memory_report.<what>" with ".formula" and ".measured" behind it
/// - evaluation: losses and error rates on the validation manifest
/// - end: an invocation that ended by itself
/// transcripts.jsonl holds lines "start" and "transcript". Both files are only ever appended to. A run that was killed repeats
/// the steps since its last checkpoint, so readers go by this rule: a line "start" replaces everything before it that belongs
/// to later steps than its own. Event files say the same to TensorBoard.
///
/// Nothing is opened before `start`, when the trainer holds the run's lock: another process may be writing until then.
class RunRecord {
 public:
  RunRecord(std::filesystem::path folder, RunRecordOptions options, std::function<void(const std::string&)> say);
  void start(const StartReport& report);
  void step(const StepReport& report);
  void evaluation(const EvaluationReport& report);
  void memory(const MemoryReport& report);
  void end(const TrainingResult& result);
  /// Throws if metrics.jsonl or transcripts.jsonl lacks something. Lines that could not be written have waited until now.
  void finish();

 private:
  void write_config() const;
  void finish_interval();

  std::filesystem::path folder_;
  RunRecordOptions options_;
  std::function<void(const std::string&)> say_;
  std::int64_t next_step_ = 1;
  Spare<MetricsWriter> metrics_, transcripts_;
  Spare<EventFile> events_;
  // Sums since the last interval line.
  StepReport last_;
  std::int64_t steps_ = 0;
  double seconds_ = 0, data_wait_ = 0;
  std::map<std::string, Trace::Total> ops_;
};

/// Reasons and counts, by the names that they have in files.
std::vector<std::pair<std::string, std::int64_t>> drops_by_reason(const DropCounts& drops);

}  // namespace chorus
