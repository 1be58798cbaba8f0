#include <chorus/io/samples.h>
#include <chorus/io/shards.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace chorus {

/// Keeps what fits and never evicts: with random access every epoch, eviction would only cost work.
struct SampleMaker::Cache {
  using Floats = std::shared_ptr<const std::vector<float>>;
  std::mutex mutex;
  std::map<std::pair<std::int64_t, double>, Floats> kept;
  std::size_t bytes = 0, limit = 0;

  /// The caller's own. Two threads may make the same value at once; both get equal ones.
  template <class Make>
  std::vector<float> get(const Part& part, Make make) {
    const std::pair key{part.entry, part.speed};
    Floats found;
    {
      const std::lock_guard lock(mutex);
      if (const auto it = kept.find(key); it != kept.end()) found = it->second;
    }
    if (found) return *found;
    std::vector<float> made = make();
    const std::size_t size = made.size() * sizeof(float);
    const std::lock_guard lock(mutex);
    if (bytes + size <= limit && kept.emplace(key, std::make_shared<const std::vector<float>>(made)).second) bytes += size;
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

std::vector<float> SampleMaker::sound(const Part& part) const {
  const ManifestEntry& entry = entries_.at(static_cast<std::size_t>(part.entry));
  try {
    auto samples = read_audio(entry, frontend_.config().sample_rate);
    return part.speed == 1 ? std::move(samples) : change_speed(samples, part.speed);
  } catch (const Error& error) {
    throw BadSample(place(entry) + ": " + error.what());
  }
}

void SampleMaker::append_log_mel(const Part& part, std::int64_t epoch, std::vector<float>& rows) const {
  const double dither = options_.training ? frontend_.config().dither : 0;
  if (dither == 0) {
    const auto features = cache_->get(part, [&] { return frontend_.log_mel<float>(sound(part)); });
    rows.insert(rows.end(), features.begin(), features.end());
    return;
  }
  // Dither is new every epoch, so only the sound can be kept.
  std::vector<float> noisy = cache_->get(part, [&] { return sound(part); });
  const std::int64_t id = part_id(part, static_cast<std::int64_t>(entries_.size()));
  add_dither(noisy, dither, options_.seed, static_cast<std::uint64_t>(epoch), id);
  frontend_.append_log_mel<float>(noisy, rows);
}

SampleData SampleMaker::operator()(const Sample& sample, std::int64_t epoch) const {
  std::vector<float> rows;
  SampleData out = append(sample, epoch, rows);
  out.features = std::move(rows);
  return out;
}

SampleData SampleMaker::append(const Sample& sample, std::int64_t epoch, std::vector<float>& rows) const {
  SampleData out{.id = sample.id, .features = {}, .tokens = {}, .text = {}};
  for (const Part& part : sample.parts) {
    if (&part != &sample.parts.front()) out.text += ' ';
    out.text += entries_.at(static_cast<std::size_t>(part.entry)).text;
  }
  out.tokens = tokenizer_.encode(out.text);
  if (options_.content == Content::text) return out;
  const std::size_t before = rows.size();
  try {
    for (const Part& part : sample.parts) append_log_mel(part, epoch, rows);
    const std::span<float> features = std::span(rows).subspan(before);
    const int mels = frontend_.config().mels;
    out.frames = static_cast<std::int64_t>(features.size()) / mels;
    const std::int64_t least = frontend_.config().normalize == "per_feature" ? 2 : 1;
    const ManifestEntry& first = entries_[static_cast<std::size_t>(sample.parts.at(0).entry)];
    if (out.frames < least)
      throw BadSample(place(first) + ": SampleMaker: " + audio_name(first).string() + " gives " + std::to_string(out.frames) +
                      " frames where " + std::to_string(least) + " are needed");
    frontend_.normalize<float>(features);
    if (options_.training)
      spec_augment(features, mels, options_.spec_augment, options_.seed, static_cast<std::uint64_t>(epoch), sample.id);
  } catch (...) {
    rows.resize(before);
    throw;
  }
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
