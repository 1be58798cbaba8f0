// Prepares the coming batches in the background, in order.
#pragma once
#include <chorus/io/samples.h>

#include <memory>
#include <optional>

namespace chorus {

struct LoaderConfig {
  std::int64_t micro_batch_size = 0, micro_batch_frames = 0;
  int threads = 1, prefetch = 4;
  bool skip_bad_audio = true;

  template <class V>
  void fields(V&& v) {
    v("micro_batch_size", micro_batch_size, "samples of a microbatch at most; 0: any", between(0, 1'000'000));
    v("micro_batch_frames", micro_batch_frames, "feature frames of a microbatch, about; 0: any", at_least(0));
    v("threads", threads, "threads that prepare batches", between(1, 256));
    v("prefetch", prefetch, "batches prepared ahead", between(1, 10'000));
    v("skip_bad_audio", skip_bad_audio, "true: samples that fail to load are dropped and counted; false: they are errors");
  }
};

/// Samples end to end: sample i has the next frames_of[i] rows.
struct Microbatch {
  int mels = 0;
  std::int64_t frames = 0;
  std::vector<float> features;  ///< [frames, mels]
  std::vector<std::int64_t> ids, frames_of;
  std::vector<std::int64_t> numbers;  ///< of each sample among all of the rank's part of the batch, failed ones included
  std::vector<std::vector<int>> tokens;
  std::vector<std::string> texts;
};

/// What this rank's part of a step holds, failed samples left out; its sums over the dp ranks normalise the losses.
struct BatchCounts {
  std::int64_t samples = 0, frames = 0, tokens = 0;
};

struct LoadedBatch {
  DataCursor cursor, next;               ///< of this batch and of the one after it, which a checkpoint stores
  std::vector<Microbatch> microbatches;  ///< equally many on every dp rank; some may be empty
  BatchCounts counts;
  DropCounts drops;                   ///< samples of this batch that failed
  std::vector<std::string> failures;  ///< their errors
  std::vector<std::int64_t> failed;   ///< their numbers, see Microbatch
};

/// Leaves out samples that were loaded, as if they had failed too: they are counted in `drops`, but have no error.
void leave_out(LoadedBatch& batch, std::span<const std::int64_t> numbers);

class Loader {
 public:
  /// Starts at `start`; ends before epoch `end` (< 0: never). The planner and the maker must outlive it. An error if `start` is
  /// no batch of its epoch.
  Loader(const BatchPlanner& planner, const SampleMaker& maker, const LoaderConfig& config, DataCursor start = {},
         std::int64_t end = -1, int dp_rank = 0, int dp_size = 1);
  /// Stops.
  ~Loader();

  /// The next batch, or nothing at the end. Blocks until it is ready. Throws what preparing it threw, also when called again.
  std::optional<LoadedBatch> next();
  /// Takes back a batch that is no longer needed: coming ones are written into its memory, which the system then need not find
  /// and clear again.
  void reuse(LoadedBatch batch);
  /// Joins the threads after the batches they are at. `next` throws from then on.
  void stop();
  /// Seconds that `next` has blocked so far.
  double waited() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One rank's part of a global batch, in the calling thread. Features are written into the memory of `spare` as far as it goes.
LoadedBatch load_batch(const GlobalBatch& batch, const SampleMaker& maker, const LoaderConfig& config, DataCursor cursor,
                       int dp_rank = 0, int dp_size = 1, std::vector<Microbatch> spare = {});

}  // namespace chorus
