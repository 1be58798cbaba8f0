// The product of everything that a plan can meet, and a cover of it in which every two values meet at least once.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models.h"

namespace chorus::testing {

struct ParityCase {
  ParityVariant variant;
  int dp = 1, tp = 1, accumulation = 1;
  std::string labels = "unequal";  ///< or "none on one rank", "no audio on one rank", "no samples on one rank"
  DdpOptions ddp;
  Recompute recompute = Recompute::none;
  Sharding sharding = Sharding::none;
  int replicas = 1;
  ShardingOptions shards;
  std::string name() const;
  bool heads_fit() const;       ///< whether heads of key and value can be shared out; a case in which they can't is refused,
  std::string refusal() const;  ///< with these words
  MeshSizes sizes() const { return {.dp = dp, .dp_replicate = replicas, .tp = tp}; }
  ParityOptions options() const;
};

struct Factor {
  std::string name;
  std::vector<std::string> values;
};
/// What varies, and between which values.
const std::vector<Factor>& parity_factors();
/// One value of each factor, by index.
using Choice = std::vector<int>;
ParityCase parity_case(const Choice& choice);
/// Every choice of model, mesh, heads, accumulation, labels, frozen parts, head and dropout, once where choices are the same
/// case (heads of key and value where there is no decoder ...); positions, norms, buckets, recomputation and what is shared out are
/// drawn for each, overlap is on: then a case is judged without it, too. Cases that share their serial run are neighbours.
std::vector<Choice> whole_product();
/// Few choices in which every two values of two factors meet; another seed, another cover.
std::vector<Choice> pairwise_cover(std::uint64_t seed);

/// What became of a case.
struct Verdict {
  enum Kind { equal, refused, failed } kind = failed;
  std::string text;  ///< the rule that refused, or how it failed
  double worst = 0;  ///< largest relative difference from one rank
};
/// The latest runs on one rank, by what they depend on.
class SerialRuns {
 public:
  const ParityRun& of(const ParityCase& c);

 private:
  std::map<std::pair<ParityVariant, int>, ParityRun> runs_;
};
/// Against one rank in f64 to 1e-10; with overlap or recomputation also against the same without both, bit for bit, and with
/// overlap against sums that end at once.
Verdict judge(const ParityCase& c, SerialRuns& serial);

}  // namespace chorus::testing
