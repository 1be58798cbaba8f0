// From the description of a sample to what the model takes: features and token ids.
#pragma once
#include <chorus/core/error.h>
#include <chorus/io/augment.h>
#include <chorus/io/batches.h>
#include <chorus/io/features.h>
#include <chorus/io/manifest.h>
#include <chorus/io/tokenizer.h>

#include <memory>

namespace chorus {

/// A sample whose sound cannot be read or gives no features. Loaders drop and count these; other errors are ours.
class BadSample : public Error {
 public:
  using Error::Error;
};

struct SampleData {
  std::int64_t id = 0, frames = 0;
  std::vector<float> features;  ///< [frames, mels], normalised
  std::vector<int> tokens;      ///< of `text`, without beginning or end
  std::string text;             ///< texts of the parts, joined by spaces
};

struct SampleOptions {
  std::uint64_t seed = 0;
  bool training = true;               ///< whether dither and SpecAugment are applied
  Content content = Content::speech;  ///< text: samples have no frames, and no sound is read
  SpecAugmentConfig spec_augment;
  std::size_t cache_bytes = std::size_t{1} << 30;  ///< of decoded sound or its log-mels kept in memory
};

/// Makes samples of one manifest. Each utterance goes through the front end alone, their log-mels lie end to end and are
/// normalised together. Thread-safe. The result depends on (options, sample, epoch) only.
class SampleMaker {
 public:
  /// Takes entries whose durations are known, unless they are text. `frontend` and `tokenizer` must outlive it.
  SampleMaker(std::vector<ManifestEntry> entries, const Frontend& frontend, const Tokenizer& tokenizer, SampleOptions options);
  ~SampleMaker();
  SampleMaker(const SampleMaker&) = delete;
  SampleMaker& operator=(const SampleMaker&) = delete;

  /// Throws BadSample with the file's error.
  SampleData operator()(const Sample& sample, std::int64_t epoch) const;
  /// The same with the features behind `rows`, which stay as they are if it throws, instead of in the result.
  SampleData append(const Sample& sample, std::int64_t epoch, std::vector<float>& rows) const;
  /// What the planner needs: lengths in seconds and tokens, languages numbered in order of appearance.
  std::vector<Utterance> utterances() const;
  const std::vector<ManifestEntry>& entries() const { return entries_; }
  const Frontend& frontend() const { return frontend_; }
  std::size_t cached_bytes() const;

 private:
  struct Cache;
  std::vector<float> sound(const Part& part) const;
  void append_log_mel(const Part& part, std::int64_t epoch, std::vector<float>& rows) const;

  std::vector<ManifestEntry> entries_;
  const Frontend& frontend_;
  const Tokenizer& tokenizer_;
  SampleOptions options_;
  std::unique_ptr<Cache> cache_;
};

/// Mean and deviation of every mel over all frames of the entries, for normalize = global; `frontend` normalises nothing.
/// Recordings that can't be read are left out, as the loader will leave them out, and so are those of more than `max_seconds`
/// (0: none); none that can is an error.
FeatureStatistics measure_statistics(std::span<const ManifestEntry> entries, const Frontend& frontend, double max_seconds = 0);

}  // namespace chorus
