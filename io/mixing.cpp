#include <chorus/core/error.h>
#include <chorus/core/rng.h>
#include <chorus/io/mixing.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <unordered_map>

namespace chorus {
namespace {

std::string stream_name(const char* what, std::size_t source) {
  // The first source's is the name that runs with one manifest always had.
  return source == 0 ? what : std::string(what) + '.' + std::to_string(source);
}

}  // namespace

std::vector<std::int64_t> apportion(std::int64_t total, std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> parts;
  std::vector<std::pair<double, std::size_t>> remainders;
  std::int64_t left = total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double quota = static_cast<double>(total) * (weights[i] / sum);
    parts.push_back(std::min(static_cast<std::int64_t>(quota), left));
    left -= parts.back();
    remainders.emplace_back(quota - static_cast<double>(parts.back()), i);
  }
  std::stable_sort(remainders.begin(), remainders.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (std::size_t i = 0; left > 0; i = (i + 1) % remainders.size(), --left) ++parts[remainders[i].second];
  return parts;
}

Mixer::Mixer(Mixing mixing, std::vector<std::vector<std::int64_t>> entries, std::uint64_t seed, bool shuffle)
    : mixing_(std::move(mixing)), entries_(std::move(entries)), seed_(seed), shuffle_(shuffle) {
  require(mixing_.weights.size() == entries_.size(), "Mixer", mixing_.weights.size(), " weights for ", entries_.size(),
          " sources");
  require(mixing_.temperature >= 0 && std::isfinite(mixing_.temperature), "Mixer", "temperature ", mixing_.temperature,
          " must be at least 0 and finite");
  std::vector<double> powers;
  std::int64_t total = 0;
  // Relative to the largest, so that no power overflows.
  const double largest = *std::max_element(mixing_.weights.begin(), mixing_.weights.end());
  for (std::size_t s = 0; s < entries_.size(); ++s) {
    const double w = mixing_.weights[s];
    require(w > 0 && std::isfinite(w), "Mixer", "weight ", w, " of source ", s, " must be positive and finite");
    require(!entries_[s].empty(), "Mixer", "source ", s, " has no utterance that can be used");
    powers.push_back(std::pow(w / largest, mixing_.temperature));
    total += static_cast<std::int64_t>(entries_[s].size());
  }
  shares_ = apportion(total, powers);
  for (std::size_t s = 0; s < shares_.size(); ++s)
    require(shares_[s] > 0, "Mixer", "source ", s, " with weight ", mixing_.weights[s],
            " would never be heard: its share of the ", total, " draws of an epoch rounds to none");
}

std::vector<std::int64_t> Mixer::pass(std::size_t source, std::int64_t number) const {
  std::vector<std::int64_t> order = entries_[source];
  if (shuffle_)
    RandomStream(random_key(seed_, static_cast<std::uint64_t>(number), stream_name("shuffle", source)))
        .shuffle(std::span(order));
  return order;
}

std::vector<Draw> Mixer::epoch(std::int64_t number) const {
  struct Placed {
    double place;  // within the epoch, from 0 to 1
    std::int64_t entry;
  };
  std::vector<Placed> placed;
  for (std::size_t s = 0; s < entries_.size(); ++s) {
    const auto size = static_cast<std::int64_t>(entries_[s].size());
    std::int64_t at = number * shares_[s];
    std::vector<std::int64_t> order = pass(s, at / size);
    RandomStream random(random_key(seed_, static_cast<std::uint64_t>(number), stream_name("mix", s)));
    for (std::int64_t i = 0; i < shares_[s]; ++i, ++at) {
      if (i > 0 && at % size == 0) order = pass(s, at / size);
      const double within = shuffle_ ? random.uniform() : 0.5;
      placed.push_back({(static_cast<double>(i) + within) / static_cast<double>(shares_[s]), order[at % size]});
    }
  }
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.place < b.place; });
  std::vector<Draw> out;
  std::unordered_map<std::int64_t, std::int64_t> drawn;
  for (const Placed& p : placed) out.push_back({p.entry, drawn[p.entry]++});
  return out;
}

}  // namespace chorus
