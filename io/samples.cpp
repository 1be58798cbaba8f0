#include <chorus/io/samples.h>
#include <chorus/io/shards.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace chorus {

using Floats = std::shared_ptr<const std::vector<float>>;

/// Keeps what fits and never evicts: with random access every epoch, eviction would only cost work.
struct SampleMaker::Cache {
  std::mutex mutex;
  std::map<std::pair<std::int64_t, double>, Floats> kept;
  std::size_t bytes = 0, limit = 0;

  /// Two threads may make the same value at once; both get equal ones.
  template <class Make>
  Floats get(const Part& part, Make make) {
    const std::pair key{part.entry, part.speed};
    {
      const std::lock_guard lock(mutex);
      if (const auto it = kept.find(key); it != kept.end()) return it->second;
    }
    auto made = std::make_shared<const std::vector<float>>(make());
    const std::size_t size = made->size() * sizeof(float);
    const std::lock_guard lock(mutex);
    if (bytes + size <= limit && kept.emplace(key, made).second) bytes += size;
    return made;
  }
};

SampleMaker::SampleMaker(std::vector<ManifestEntry> entries, const Frontend& frontend, const Tokenizer& tokenizer,
                         SampleOptions options)
    : entries_(std::move(entries)),
      frontend_(frontend),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      cache_(std::make_unique<Cache>()) {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    require(entries_[i].duration > 0 || options_.content == Content::text, "SampleMaker", "entry ", i, " (", entries_[i].audio,
            ") has no duration");
  cache_->limit = options_.cache_bytes;
}
SampleMaker::~SampleMaker() = default;

std::size_t SampleMaker::cached_bytes() const {
  const std::lock_guard lock(cache_->mutex);
  return cache_->bytes;
}

std::vector<Utterance> SampleMaker::utterances() const {
  std::map<std::string, int> languages;
  std::vector<Utterance> out;
  for (const ManifestEntry& e : entries_) {
    const int language = languages.emplace(e.lang, static_cast<int>(languages.size())).first->second;
    const std::vector<int> tokens = tokenizer_.encode(e.text);
    out.push_back({.seconds = options_.content == Content::text ? 0 : e.duration,
                   .tokens = static_cast<std::int64_t>(tokens.size()),
                   .language = language,
                   .unknown = std::count(tokens.begin(), tokens.end(), tokenizer_.unk()),
                   .source = e.source});
  }
  return out;
}

Floats SampleMaker::sound(const Part& part) const {
  const ManifestEntry& entry = entries_.at(static_cast<std::size_t>(part.entry));
  try {
    const auto samples = read_audio(entry, frontend_.config().sample_rate);
    return std::make_shared<const std::vector<float>>(change_speed(samples, part.speed));
  } catch (const Error& error) {
    throw BadSample(place(entry) + ": " + error.what());
  }
}

Floats SampleMaker::log_mel(const Part& part, std::int64_t epoch) const {
  const double dither = options_.training ? frontend_.config().dither : 0;
  if (dither == 0) return cache_->get(part, [&] { return frontend_.log_mel<float>(*sound(part)); });
  // Dither is new every epoch, so only the sound can be kept.
  std::vector<float> noisy = *cache_->get(part, [&] { return *sound(part); });
  const std::int64_t id = part_id(part, static_cast<std::int64_t>(entries_.size()));
  add_dither(noisy, dither, options_.seed, static_cast<std::uint64_t>(epoch), id);
  return std::make_shared<const std::vector<float>>(frontend_.log_mel<float>(noisy));
}

SampleData SampleMaker::operator()(const Sample& sample, std::int64_t epoch) const {
  SampleData out{.id = sample.id, .features = {}, .tokens = {}, .text = {}};
  if (options_.content == Content::text) {
    out.text = entries_.at(static_cast<std::size_t>(sample.parts.at(0).entry)).text;
    out.tokens = tokenizer_.encode(out.text);
    return out;
  }
  for (const Part& part : sample.parts) {
    const Floats features = log_mel(part, epoch);
    out.features.insert(out.features.end(), features->begin(), features->end());
    if (&part != &sample.parts.front()) out.text += ' ';
    out.text += entries_[static_cast<std::size_t>(part.entry)].text;
  }
  const int mels = frontend_.config().mels;
  out.frames = static_cast<std::int64_t>(out.features.size()) / mels;
  const std::int64_t least = frontend_.config().normalize == "per_feature" ? 2 : 1;
  if (out.frames < least)
    throw BadSample(place(entries_[static_cast<std::size_t>(sample.parts.at(0).entry)]) +
                    ": SampleMaker: " + audio_name(entries_[static_cast<std::size_t>(sample.parts.at(0).entry)]).string() +
                    " gives " + std::to_string(out.frames) + " frames where " + std::to_string(least) + " are needed");
  frontend_.normalize<float>(out.features);
  if (options_.training)
    spec_augment(out.features, mels, options_.spec_augment, options_.seed, static_cast<std::uint64_t>(epoch), sample.id);
  out.tokens = tokenizer_.encode(out.text);
  return out;
}

FeatureStatistics measure_statistics(std::span<const ManifestEntry> entries, const Frontend& frontend, double max_seconds) {
  StatisticsSum sum(frontend.config().mels);
  std::string first_error;
  std::size_t read = 0;
  for (const ManifestEntry& e : entries) {
    if (max_seconds > 0 && e.duration > max_seconds) continue;
    try {
      sum.add(frontend.log_mel<float>(read_audio(e, frontend.config().sample_rate)));
      ++read;
    } catch (const Error& error) {
      if (first_error.empty()) first_error = error.what();
    }
  }
  require(read > 0, "measure_statistics", "none of ", entries.size(), " recordings can be read; the first: ", first_error);
  return sum.result();
}

}  // namespace chorus
