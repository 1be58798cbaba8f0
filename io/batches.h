// Which utterances make up each step's batch: pure functions of seed, data cursor and keys, the same on every rank and
// for every layout.
#pragma once
#include <chorus/core/config/check.h>
#include <chorus/io/mixing.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace chorus {

/// Where in the data a run is. Saved with checkpoints; the next batch follows from it.
struct DataCursor {
  std::int64_t epoch = 0, batch = 0;
  friend bool operator==(const DataCursor&, const DataCursor&) = default;
};

struct BatchConfig {
  std::int64_t global_batch_size = 0, batch_frames = 0, batch_tokens = 0;
  double batch_seconds = 0;
  double token_equivalent_duration = 0.08;
  bool shuffle = true;
  double length_jitter = 0.1;
  std::vector<double> speed_factors = {1};
  double concat_probability = 0, concat_seconds = 10;
  double min_seconds = 0, max_seconds = 120;
  std::int64_t min_frames = 2;
  double max_tokens_per_second = 0, max_unknown_fraction = 0.05;

  /// Whether a key that is set speaks of sound, which text doesn't have.
  bool needs_sound() const {
    return batch_frames > 0 || batch_seconds > 0 || concat_probability > 0 || min_seconds > 0 || max_tokens_per_second > 0;
  }
  template <class V>
  void fields(V&& v) {
    v("global_batch_size", global_batch_size, "samples of a step; give one of the four sizes", at_least(0));
    v("batch_frames", batch_frames, "feature frames of a step", at_least(0));
    v("batch_tokens", batch_tokens, "text tokens of a step, its sound counted as token_equivalent_duration", at_least(0));
    v("batch_seconds", batch_seconds, "seconds of sound of a step", at_least(0.0));
    v("token_equivalent_duration", token_equivalent_duration, "seconds of sound that weigh as one token", greater_than(0.0));
    v("shuffle", shuffle, "a new order every epoch; false: by length, as in validation");
    v("length_jitter", length_jitter, "j: samples are batched by length x (1 + j u), u uniform in [0, 1)", at_least(0.0));
    v("speed_factors", speed_factors, "each utterance is played at one of these speeds, anew every epoch", not_empty(),
      between(0.1, 10.0));
    v("concat_probability", concat_probability, "chance that another utterance is appended, again and again",
      between(0.0, 1.0));
    v("concat_seconds", concat_seconds, "nothing is appended to samples of this length or more", between(0.0, 3600.0));
    v("min_seconds", min_seconds, "shorter utterances are left out", at_least(0.0));
    v("max_seconds", max_seconds, "longer utterances are left out; 0: none", at_least(0.0));
    v("min_frames", min_frames, "utterances with fewer feature frames at the highest speed are left out", at_least(1));
    v("max_tokens_per_second", max_tokens_per_second, "utterances with more text are left out; 0: none", at_least(0.0));
    v("max_unknown_fraction", max_unknown_fraction,
      "utterances are left out when more of their pieces are unknown to the tokenizer", between(0.0, 1.0));
  }
  template <class Check>
  void rules(Check&& check) const {
    const char* given = batch_seconds > 0 ? "batch_seconds" : batch_tokens > 0 ? "batch_tokens" : "batch_frames";
    check(sizes() <= 1, given, sizes_text());
    check(max_seconds == 0 || min_seconds <= max_seconds, "min_seconds", min_seconds,
          " is more than max_seconds = ", max_seconds);
  }
  /// How many of the four sizes are given; a batch needs exactly one.
  int sizes() const { return (global_batch_size > 0) + (batch_frames > 0) + (batch_tokens > 0) + (batch_seconds > 0); }
  /// "give exactly one of ...", with the values.
  std::string sizes_text() const;
};

/// What planning must know of one manifest entry.
struct Utterance {
  double seconds = 0;
  std::int64_t tokens = 0;
  int language = 0;          ///< only equal ones are concatenated
  std::int64_t unknown = 0;  ///< tokens that stand for what the tokenizer can't write
  int source = 0;            ///< which input of the mixture it belongs to
};

struct Part {
  std::int64_t entry = 0;  ///< index into the manifest
  double speed = 1;
  std::int64_t repeat = 0;  ///< how often the epoch has drawn this entry before
  friend bool operator==(const Part&, const Part&) = default;
};

/// The description of one training sample: utterances end to end. Lengths are planned from the manifest.
struct Sample {
  std::int64_t id = 0;  ///< that of its first part: unique within an epoch; random numbers are counted by it
  std::vector<Part> parts;
  double seconds = 0;
  std::int64_t frames = 0, tokens = 0;
  friend bool operator==(const Sample&, const Sample&) = default;
};

/// What random numbers of a part are counted by: its entry, or beyond all `entries` when it is drawn again.
inline std::int64_t part_id(const Part& part, std::int64_t entries) { return part.entry + part.repeat * entries; }

using GlobalBatch = std::vector<Sample>;

/// Utterances that could not be used, by reason.
struct DropCounts {
  std::int64_t too_short = 0, too_long = 0, empty_text = 0, text_too_long = 0, failed = 0;
  std::int64_t unknown_text = 0, bad_lines = 0, duplicates = 0, unreadable = 0;
  std::int64_t without_ctc = 0;  ///< not dropped: their text has no CTC path through their frames, so only the decoder learns
  std::int64_t total() const;
  DropCounts& operator+=(const DropCounts& other);
  std::string report() const;  ///< "3 too short, 1 failed to load", or "none"
  friend bool operator==(const DropCounts&, const DropCounts&) = default;
};

/// An utterance that no epoch uses, and why.
struct LeftOut {
  std::int64_t entry = 0;
  std::string why;
};

struct EpochPlan {
  std::vector<GlobalBatch> batches;
  DropCounts drops;  ///< the same every epoch
};

class BatchPlanner {
 public:
  /// `frames` gives the feature frames of so many samples at `sample_rate` (Frontend::frames); none: the utterances are text
  /// without sound, batched by their tokens. Errors: not exactly one batch size or one that text doesn't have, a speed that
  /// is not positive, no usable utterance (with the reasons), a mixture that can't be drawn (Mixer).
  BatchPlanner(BatchConfig config, std::vector<Utterance> utterances, std::uint64_t seed, int sample_rate,
               std::function<std::int64_t(std::int64_t)> frames, Mixing mixing = {});
  /// One source: every usable utterance is in exactly one sample. Several: each has its share (Mixer). O(n log n).
  EpochPlan epoch(std::int64_t number) const;
  const DropCounts& drops() const { return drops_; }
  /// The first few utterances of each reason, with their value and the limit.
  const std::vector<LeftOut>& left_out() const { return left_out_; }
  const Mixer& mixer() const { return *mixer_; }

 private:
  std::vector<Sample> samples(std::int64_t epoch) const;
  std::int64_t planned_frames(const Part& part) const;
  double weight(const Sample& sample) const;

  BatchConfig config_;
  std::vector<Utterance> utterances_;
  std::uint64_t seed_;
  int sample_rate_;
  std::function<std::int64_t(std::int64_t)> frames_;
  DropCounts drops_;
  std::vector<LeftOut> left_out_;
  std::optional<Mixer> mixer_;
};

/// Indices into a global batch by [dp rank][microbatch], ascending. Samples go, largest first, where the least work lies;
/// work is frames + 4 x tokens (a text token costs about what 40 ms of sound do). Microbatches may be empty, and all ranks have
/// equally many. With `most` > 0 none holds more samples than that; it is an error if they don't fit.
std::vector<std::vector<std::vector<int>>> deal(const GlobalBatch& batch, int dp_size, int microbatches, int most = 0);

/// The fewest microbatches with which no rank is dealt more than `micro_batch_size` samples or (0: any) about
/// `micro_batch_frames` frames at once; 1 for an empty batch.
int microbatch_count(const GlobalBatch& batch, int dp_size, std::int64_t micro_batch_size, std::int64_t micro_batch_frames);

}  // namespace chorus
