#include <chorus/core/error.h>
#include <chorus/core/rng.h>
#include <chorus/io/batches.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace chorus {

std::string BatchConfig::sizes_text() const {
  return config::joined("give exactly one of global_batch_size (", global_batch_size, "), batch_frames (", batch_frames,
                        "), batch_tokens (", batch_tokens, ") and batch_seconds (", batch_seconds, ")");
}

std::int64_t DropCounts::total() const {
  return too_short + too_long + empty_text + text_too_long + failed + unknown_text + bad_lines + duplicates + unreadable;
}

DropCounts& DropCounts::operator+=(const DropCounts& other) {
  too_short += other.too_short;
  too_long += other.too_long;
  empty_text += other.empty_text;
  text_too_long += other.text_too_long;
  failed += other.failed;
  unknown_text += other.unknown_text;
  bad_lines += other.bad_lines;
  duplicates += other.duplicates;
  unreadable += other.unreadable;
  without_ctc += other.without_ctc;
  return *this;
}

std::string DropCounts::report() const {
  std::string out;
  auto add = [&](std::int64_t count, const char* reason) {
    if (count) out.append(out.empty() ? "" : ", ").append(std::to_string(count)).append(" ").append(reason);
  };
  add(too_short, "too short");
  add(too_long, "too long");
  add(empty_text, "without text");
  add(text_too_long, "with too much text for their sound");
  add(unknown_text, "with too many unknown pieces");
  add(bad_lines, "with an unusable manifest line");
  add(duplicates, "with the id of another");
  add(unreadable, "without a readable sound file");
  add(failed, "failed to load");
  if (out.empty()) out = "none";
  if (without_ctc) out += "; " + std::to_string(without_ctc) + " without CTC loss (too few frames for their text)";
  return out;
}

BatchPlanner::BatchPlanner(BatchConfig config, std::vector<Utterance> utterances, std::uint64_t seed, int sample_rate,
                           std::function<std::int64_t(std::int64_t)> frames, Mixing mixing)
    : config_(std::move(config)),
      utterances_(std::move(utterances)),
      seed_(seed),
      sample_rate_(sample_rate),
      frames_(std::move(frames)) {
  const BatchConfig& c = config_;
  require(c.sizes() == 1, "BatchPlanner", c.sizes_text());
  require(frames_ || !c.needs_sound(), "BatchPlanner", "text has no sound to measure or join: batch_frames ", c.batch_frames,
          ", batch_seconds ", c.batch_seconds, ", concat_probability ", c.concat_probability, ", min_seconds ", c.min_seconds,
          ", max_tokens_per_second ", c.max_tokens_per_second, "; all must be 0");
  require(!c.speed_factors.empty(), "BatchPlanner", "speed_factors is empty");
  for (const double factor : c.speed_factors) require(factor > 0, "BatchPlanner", "speed factor ", factor, " must be positive");
  const double fastest = *std::max_element(c.speed_factors.begin(), c.speed_factors.end());
  std::vector<std::vector<std::int64_t>> usable(mixing.weights.size());
  std::size_t used = 0;
  for (std::size_t i = 0; i < utterances_.size(); ++i) {
    const Utterance& u = utterances_[i];
    require(u.source >= 0 && static_cast<std::size_t>(u.source) < usable.size(), "BatchPlanner", "utterance ", i,
            " belongs to source ", u.source, " of ", usable.size());
    const auto entry = static_cast<std::int64_t>(i);
    constexpr std::int64_t shown = 3;  // of each reason
    const auto leave_out = [&](std::int64_t& count, const auto&... why) {
      if (count++ < shown) left_out_.push_back({entry, config::joined(why...)});
    };
    if (u.seconds < c.min_seconds)
      leave_out(drops_.too_short, u.seconds, " s are less than min_seconds = ", c.min_seconds);
    else if (frames_ && planned_frames({entry, fastest}) < c.min_frames)
      leave_out(drops_.too_short, u.seconds, " s at speed ", fastest, " give ", planned_frames({entry, fastest}),
                " feature frames, less than min_frames = ", c.min_frames);
    else if (c.max_seconds > 0 && u.seconds > c.max_seconds)
      leave_out(drops_.too_long, u.seconds, " s are more than max_seconds = ", c.max_seconds);
    else if (u.tokens == 0)
      leave_out(drops_.empty_text, "its text has no token");
    else if (static_cast<double>(u.unknown) > c.max_unknown_fraction * static_cast<double>(u.tokens))
      leave_out(drops_.unknown_text, u.unknown, " of its ", u.tokens,
                " pieces are unknown to the tokenizer, more than max_unknown_fraction = ", c.max_unknown_fraction);
    else if (c.max_tokens_per_second > 0 && static_cast<double>(u.tokens) > c.max_tokens_per_second * u.seconds)
      leave_out(drops_.text_too_long, u.tokens, " tokens in ", u.seconds,
                " s are more than max_tokens_per_second = ", c.max_tokens_per_second);
    else
      usable[static_cast<std::size_t>(u.source)].push_back(entry), ++used;
  }
  require(used > 0, "BatchPlanner", "none of ", utterances_.size(), " utterances can be used: ", drops_.report(),
          left_out_.empty() ? "" : "; the first: ", left_out_.empty() ? "" : left_out_.front().why);
  mixer_.emplace(std::move(mixing), std::move(usable), seed_, config_.shuffle);
}

std::int64_t BatchPlanner::planned_frames(const Part& part) const {
  if (!frames_) return 0;
  const auto samples = std::llround(utterances_[part.entry].seconds * sample_rate_);
  return frames_(static_cast<std::int64_t>(static_cast<double>(samples) / part.speed));
}

double BatchPlanner::weight(const Sample& s) const {
  if (config_.global_batch_size > 0) return 1;
  if (config_.batch_frames > 0) return static_cast<double>(s.frames);
  if (config_.batch_seconds > 0) return s.seconds;
  return static_cast<double>(s.tokens) + std::ceil(s.seconds / config_.token_equivalent_duration);
}

std::vector<Sample> BatchPlanner::samples(std::int64_t epoch) const {
  const auto number = static_cast<std::uint64_t>(epoch);
  std::vector<Draw> order = mixer_->epoch(epoch);
  if (config_.concat_probability > 0)
    std::stable_sort(order.begin(), order.end(), [&](const Draw& a, const Draw& b) {
      return utterances_[a.entry].language < utterances_[b.entry].language;
    });
  const RandomKey speed = random_key(seed_, number, "speed"), concat = random_key(seed_, number, "concat");
  std::vector<Sample> out;
  for (const auto& [entry, repeat] : order) {
    const Utterance& u = utterances_[entry];
    Part part{entry, 1, repeat};
    const std::int64_t id = part_id(part, static_cast<std::int64_t>(utterances_.size()));
    const auto stream = static_cast<std::uint64_t>(id);
    part.speed = config_.speed_factors[RandomStream(speed, stream).below(config_.speed_factors.size())];
    const bool append = !out.empty() && config_.concat_probability > 0 && out.back().seconds < config_.concat_seconds &&
                        u.seconds < config_.concat_seconds && utterances_[out.back().parts[0].entry].language == u.language &&
                        RandomStream(concat, stream).uniform() < config_.concat_probability;
    if (!append) out.push_back({.id = id, .parts = {}});
    Sample& sample = out.back();
    sample.tokens += u.tokens + (sample.parts.empty() ? 0 : 1);  // texts are joined by a space
    sample.seconds += u.seconds / part.speed;
    sample.frames += planned_frames(part);
    sample.parts.push_back(part);
  }
  return out;
}

EpochPlan BatchPlanner::epoch(std::int64_t number) const {
  std::vector<Sample> all = samples(number);
  const RandomKey key = random_key(seed_, static_cast<std::uint64_t>(number), "length");
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double u = config_.shuffle ? RandomStream(key, static_cast<std::uint64_t>(all[i].id)).uniform() : 0;
    order.emplace_back(static_cast<double>(frames_ ? all[i].frames : all[i].tokens) * (1 + config_.length_jitter * u), i);
  }
  std::sort(order.begin(), order.end());

  EpochPlan plan{.batches = {}, .drops = drops_};
  const double budget = config_.global_batch_size > 0 ? static_cast<double>(config_.global_batch_size)
                        : config_.batch_frames > 0    ? static_cast<double>(config_.batch_frames)
                        : config_.batch_tokens > 0    ? static_cast<double>(config_.batch_tokens)
                                                      : config_.batch_seconds;
  double filled = 0;
  for (const auto& [length, i] : order) {
    const double w = weight(all[i]);
    if (plan.batches.empty() || filled + w > budget) {  // a sample over the budget gets a batch of its own
      plan.batches.emplace_back();
      filled = 0;
    }
    filled += w;
    plan.batches.back().push_back(std::move(all[i]));
  }
  if (config_.shuffle)
    RandomStream(random_key(seed_, static_cast<std::uint64_t>(number), "batches")).shuffle(std::span(plan.batches));
  return plan;
}

std::vector<std::vector<std::vector<int>>> deal(const GlobalBatch& batch, int dp_size, int microbatches, int most) {
  require(dp_size > 0 && microbatches > 0, "deal", "dp_size ", dp_size, " and ", microbatches,
          " microbatches must be positive");
  const int bins = dp_size * microbatches;
  require(most == 0 || batch.size() <= static_cast<std::size_t>(most) * bins, "deal", batch.size(), " samples don't fit ",
          dp_size, " ranks x ", microbatches, " microbatches x ", most);
  auto work = [&](int i) { return batch[i].frames + 4 * batch[i].tokens; };
  std::vector<int> order(batch.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return work(a) > work(b); });

  std::vector<std::vector<std::vector<int>>> dealt(dp_size, std::vector<std::vector<int>>(microbatches));
  std::vector<std::int64_t> load(bins);  // microbatch-major, so that ranks fill before microbatches do
  for (const int i : order) {
    int best = -1;
    for (int b = 0; b < bins; ++b) {
      const bool full = most > 0 && static_cast<int>(dealt[b % dp_size][b / dp_size].size()) >= most;
      if (!full && (best < 0 || load[b] < load[best])) best = b;
    }
    load[best] += work(i);
    dealt[best % dp_size][best / dp_size].push_back(i);
  }
  for (auto& rank : dealt)
    for (auto& microbatch : rank) std::sort(microbatch.begin(), microbatch.end());
  return dealt;
}

int microbatch_count(const GlobalBatch& batch, int dp_size, std::int64_t micro_batch_size, std::int64_t micro_batch_frames) {
  require(dp_size > 0, "microbatch_count", "dp_size ", dp_size, " must be positive");
  auto needed = [&](std::int64_t total, std::int64_t budget) {
    return budget > 0 ? (total + budget * dp_size - 1) / (budget * dp_size) : 1;
  };
  std::int64_t frames = 0;
  for (const Sample& s : batch) frames += s.frames;
  const auto size = static_cast<std::int64_t>(batch.size());
  return static_cast<int>(std::max({std::int64_t{1}, needed(size, micro_batch_size), needed(frames, micro_batch_frames)}));
}

}  // namespace chorus
