// How several inputs share an epoch, and which utterances of each it hears: pure functions of seed, epoch and weights.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace chorus {

struct Mixing {
  std::vector<double> weights = {1};  ///< of each source, > 0; only their ratios matter
  double temperature = 1;  ///< T: source s is drawn with probability w_s^T / sum of all w^T. 1: as given, 0: all alike
};

/// One utterance at one place of an epoch.
struct Draw {
  std::int64_t entry = 0;
  std::int64_t repeat = 0;  ///< how often this epoch has drawn it before
  friend bool operator==(const Draw&, const Draw&) = default;
};

class Mixer {
 public:
  /// `entries` by source. An epoch has as many draws as there are entries; each source gets its share of them, rounded by
  /// largest remainder. Errors: a weight that is not positive and finite, a source without entries or with a share of none.
  Mixer(Mixing mixing, std::vector<std::vector<std::int64_t>> entries, std::uint64_t seed, bool shuffle);

  const std::vector<std::int64_t>& shares() const { return shares_; }

  /// A source's draws continue where the epoch before left it: it walks through pass after pass of its own, each a new order
  /// keyed by (seed, source, pass), so all its entries are heard once before any is heard again. Within an epoch the sources'
  /// draws are spread evenly. One source alone: every entry once, in the order of pass number `epoch`.
  std::vector<Draw> epoch(std::int64_t number) const;

 private:
  std::vector<std::int64_t> pass(std::size_t source, std::int64_t number) const;
  Mixing mixing_;
  std::vector<std::vector<std::int64_t>> entries_;
  std::uint64_t seed_;
  bool shuffle_;
  std::vector<std::int64_t> shares_;
};

/// Splits `total` by largest remainder: each part is its quota rounded down or up, equal remainders go to the first.
std::vector<std::int64_t> apportion(std::int64_t total, std::span<const double> weights);

}  // namespace chorus
