#include <chorus/core/error.h>
#include <chorus/io/audio.h>
#include <chorus/io/audio_stream.h>
#include <chorus/io/sound_file.h>
#include <soxr.h>

#include <algorithm>
#include <cmath>

namespace chorus {
namespace {

constexpr std::size_t block_samples = 4096;  // half a second of telephone sound: what a live pipe waits for

/// A file of any format of libsndfile.
class FileSource : public SoundSource {
 public:
  FileSource(const std::filesystem::path& path, double offset, double duration) : path_(path) {
    file_ = open_sound_file("AudioStream", path, info_);
    sample_rate_ = info_.samplerate;
    if (const std::string cut = truncation(file_.get()); !cut.empty()) missing_ = path.string() + cut;
    require(info_.frames > 0, "AudioStream", path, " has no samples", missing_.empty() ? "" : ": " + missing_);
    const double seconds = static_cast<double>(info_.frames) / info_.samplerate;
    next_ = std::llround(offset * info_.samplerate);
    require(next_ >= 0 && next_ < info_.frames, "AudioStream", path, ": offset ", offset, " s lies outside its ", seconds,
            " s");
    end_ = info_.frames;
    if (duration >= 0) {
      const auto count = static_cast<sf_count_t>(std::llround(duration * info_.samplerate));
      require(count > 0, "AudioStream", path, ": duration ", duration, " s holds no sample at ", info_.samplerate, " Hz");
      // Manifests round durations to milliseconds or worse: up to 10 ms beyond the end are forgiven.
      require(next_ + count - info_.frames <= info_.samplerate / 100 || !missing_.empty(), "AudioStream", path, ": offset ",
              offset, " s and duration ", duration, " s reach beyond its ", seconds, " s");
      if (next_ + count <= info_.frames) missing_.clear();  // what is missing lies behind the part that is asked for
      end_ = std::min(end_, next_ + count);
    }
    require(next_ == 0 || sf_seek(file_.get(), next_, SEEK_SET) == next_, "AudioStream", path, ": cannot seek to sample ",
            next_);
  }

  std::size_t read(std::span<float> mono) override {
    if (!broken_.empty()) return 0;
    const auto wanted = std::min(static_cast<sf_count_t>(mono.size()), end_ - next_);
    const int channels = info_.channels;
    interleaved_.resize(static_cast<std::size_t>(wanted * channels));
    const sf_count_t got = wanted > 0 ? sf_readf_float(file_.get(), interleaved_.data(), wanted) : 0;
    for (sf_count_t i = 0; i < got; ++i) {
      float sum = 0;
      for (int c = 0; c < channels; ++c) sum += interleaved_[static_cast<std::size_t>(i * channels + c)];
      mono[static_cast<std::size_t>(i)] = sum / static_cast<float>(channels);
      if (!(std::abs(mono[static_cast<std::size_t>(i)]) <= loudest_sample)) {
        broken_ = path_.string() + ": sample " + std::to_string(next_ + i) + " is " +
                  std::to_string(mono[static_cast<std::size_t>(i)]) + "; nothing was heard from there on";
        return static_cast<std::size_t>(i);
      }
    }
    next_ += got;
    if (got < wanted)
      broken_ = path_.string() + " is truncated: its header promises " + std::to_string(info_.frames) + " samples, " +
                std::to_string(next_) + " could be read (" + sf_strerror(file_.get()) + ")";
    else if (next_ == end_)
      broken_ = missing_;
    return static_cast<std::size_t>(got);
  }

 private:
  std::filesystem::path path_;
  SoundFile file_;
  SF_INFO info_{};
  sf_count_t next_ = 0, end_ = 0;
  std::vector<float> interleaved_;
  std::string missing_;  // said when the end is reached
};

}  // namespace

/// The same filter as `resample` uses, fed in pieces.
struct AudioStream::Resampler {
  Resampler(int from, int to) : from(from), to(to) {
    soxr_error_t error = nullptr;
    const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    handle = soxr_create(from, to, 1, &error, nullptr, &quality, nullptr);
    require(error == nullptr, "AudioStream", "from ", from, " Hz to ", to, " Hz: ", error ? soxr_strerror(error) : "");
  }
  ~Resampler() { soxr_delete(handle); }
  Resampler(const Resampler&) = delete;

  /// Appends what `samples` complete to `out`; no samples: the end, and everything that is left.
  void process(std::span<const float> samples, std::vector<float>& out) {
    const bool end = samples.empty();
    std::size_t used = 0, done = 0;
    do {
      const std::size_t before = out.size();
      const std::size_t room = static_cast<std::size_t>(static_cast<double>(samples.size() - used) * to / from) + block_samples;
      out.resize(before + room);
      std::size_t consumed = 0;
      const soxr_error_t error = soxr_process(handle, end ? nullptr : samples.data() + used, samples.size() - used, &consumed,
                                              out.data() + before, room, &done);
      out.resize(before + done);
      require(error == nullptr, "AudioStream", "from ", from, " Hz to ", to, " Hz: ", error ? soxr_strerror(error) : "");
      used += consumed;
    } while (end ? done > 0 : used < samples.size());
  }

  int from, to;
  soxr_t handle = nullptr;
};

AudioStream AudioStream::open(const std::filesystem::path& file, int sample_rate, double offset, double duration) {
  return {std::make_unique<FileSource>(file, offset, duration), sample_rate};
}

AudioStream::AudioStream(std::unique_ptr<SoundSource> source, int sample_rate)
    : source_(std::move(source)), sample_rate_(sample_rate), block_(block_samples) {
  require(sample_rate > 0, "AudioStream", "sample_rate ", sample_rate, " must be positive");
  if (source_->sample_rate() != sample_rate) resampler_ = std::make_unique<Resampler>(source_->sample_rate(), sample_rate);
}
AudioStream::AudioStream(AudioStream&&) noexcept = default;
AudioStream::~AudioStream() = default;

void AudioStream::fill() {
  const std::size_t got = source_->read(block_);
  const std::span<const float> samples(block_.data(), got);
  ended_ = got < block_.size();
  heard_ += static_cast<std::int64_t>(got);
  const std::size_t before = ready_.size();
  if (!resampler_) {
    ready_.insert(ready_.end(), samples.begin(), samples.end());
    return;
  }
  if (got > 0) resampler_->process(samples, ready_);
  if (ended_ && heard_ > 0) resampler_->process({}, ready_);
  made_ += static_cast<std::int64_t>(ready_.size() - before);
  if (!ended_) return;
  // As many samples as `resample` gives: the filter may end one early or late.
  const auto wanted = std::llround(static_cast<double>(heard_) * sample_rate_ / source_->sample_rate());
  const auto size = static_cast<std::int64_t>(ready_.size()) + wanted - made_;
  require(std::abs(wanted - made_) <= 1 && size >= 0, "AudioStream", made_, " samples where ", wanted, " were expected");
  ready_.resize(static_cast<std::size_t>(size), 0.0f);
}

std::size_t AudioStream::read(std::vector<float>& out, std::size_t count) {
  std::size_t given = 0;
  while (given < count) {
    if (taken_ == ready_.size()) {
      ready_.clear();
      taken_ = 0;
      if (ended_) break;
      fill();
      continue;
    }
    const std::size_t n = std::min(count - given, ready_.size() - taken_);
    const auto from = ready_.begin() + static_cast<std::ptrdiff_t>(taken_);
    out.insert(out.end(), from, from + static_cast<std::ptrdiff_t>(n));
    taken_ += n;
    given += n;
  }
  return given;
}

}  // namespace chorus
