// The product of everything that a plan can meet, and a cover of it in which every two values meet at least once.
#pragma once
#include <string>
#include <vector>

#include "models.h"

namespace chorus::testing {

struct ParityCase {
  ParityVariant variant;
  int dp = 1, tp = 1, accumulation = 1;
  std::string labels = "unequal";  ///< or "none on one rank", "no audio on one rank", "no audio"
  DdpOptions ddp;
  std::string name() const;
  MeshSizes sizes() const { return {.dp = dp, .tp = tp}; }
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
/// Every choice, or one of those that are the same case (heads of key and value where there is no decoder ...).
std::vector<Choice> whole_product();
/// Few choices in which every two values of two factors meet; another seed, another cover.
std::vector<Choice> pairwise_cover(std::uint64_t seed);

/// What became of a case.
struct Verdict {
  enum Kind { equal, refused, failed } kind = failed;
  std::string text;  ///< the rule that refused, or how it failed
  double worst = 0;  ///< largest relative difference from one rank
};
/// Against one rank in f64 to 1e-10; with overlap also against the same without, bit for bit.
Verdict judge(const ParityCase& c);

}  // namespace chorus::testing
