// Sums of gradients in bf16: rounded before, added in f32 in order of ranks, rounded once after.
#include <gtest/gtest.h>

#include <map>

#include "sharded_fixture.h"

namespace chorus::testing {
namespace {

using Gradients = std::map<std::string, std::vector<double>>;

/// Blocks, and what lies in no unit, are summed in bf16; embedding and head in f32.
bool summed_in_bf16(const std::string& path) { return !path.starts_with("embedding.") && !path.starts_with("head."); }

ParityOptions options_of(Sharding sharding) {
  ParityOptions options;
  options.dtype = DType::f32;
  options.steps = 1;
  options.sharding = sharding;
  options.precision.units = {{"blocks.*", std::nullopt, DType::bf16, std::nullopt},
                             {"root", std::nullopt, DType::bf16, std::nullopt}};
  return options;
}

std::vector<int> samples_of(int rank, int ranks) {
  std::vector<int> samples;
  for (int i = rank; i < 7; i += ranks) samples.push_back(i);
  return samples;
}

/// What a rank's samples give, alone.
Gradients local(int rank, int ranks) {
  ParityOptions options = options_of(Sharding::none);
  options.deal = [=](int, int) { return samples_of(rank, ranks); };
  return parity_serial(tower(false), options).gradients;
}

float rounded(const std::string& path, float x) { return summed_in_bf16(path) ? static_cast<float>(bf16(x)) : x; }

Gradients sum_of(const std::vector<Gradients>& parts) {
  Gradients sum;
  for (const auto& [path, first] : parts.front()) {
    for (std::size_t i = 0; i < first.size(); ++i) {
      float total = 0;
      for (const Gradients& part : parts) {
        const float x = rounded(path, static_cast<float>(part.at(path)[i]));
        total = &part == &parts.front() ? x : total + x;
      }
      sum[path].push_back(static_cast<double>(rounded(path, total)));
    }
  }
  return sum;
}

TEST(ReduceType, GradientsAreRoundedBeforeAndAfterTheirSum) {
  for (const int ranks : {2, 3}) {
    std::vector<Gradients> parts;
    for (int rank = 0; rank < ranks; ++rank) parts.push_back(local(rank, ranks));
    const Gradients expected = sum_of(parts);
    for (const Sharding sharding : {Sharding::none, Sharding::optimizer, Sharding::gradients, Sharding::full}) {
      for (const bool view : {true, false}) {
        ParityOptions options = options_of(sharding);
        options.ddp.gradient_as_bucket_view = view;
        const auto run = parity_parallel(tower(false), {}, ranks, options);
        EXPECT_TRUE(run.gradients == expected) << name(sharding) << " on " << ranks << " ranks";
      }
    }
  }
}

TEST(ReduceType, ReplicasRoundOnceMore) {
  const Gradients expected = sum_of({sum_of({local(0, 4), local(1, 4)}), sum_of({local(2, 4), local(3, 4)})});
  MeshSizes sizes;
  sizes.dp_replicate = 2;
  for (const Sharding sharding : {Sharding::optimizer, Sharding::gradients, Sharding::full}) {
    const auto run = parity_parallel(tower(false), sizes, 4, options_of(sharding));
    EXPECT_TRUE(run.gradients == expected) << name(sharding);
  }
}

TEST(ReduceType, OneRankSumsNothingAndRoundsNothing) {
  for (const Sharding sharding : {Sharding::none, Sharding::full}) {
    const auto run = parity_parallel(tower(false), {}, 1, options_of(sharding));
    EXPECT_TRUE(run.gradients == local(0, 1)) << name(sharding);
  }
}

/// Half the bytes.
TEST(ReduceType, LessIsSent) {
  ParityOptions narrow = options_of(Sharding::full), all_wide = narrow;
  all_wide.precision = {};
  const auto sent = [](const ParityOptions& options) {
    return parity_parallel(tower(false), {}, 2, options).bytes_sent.at("dp_shard_cp reduce_scatter");
  };
  EXPECT_LT(sent(narrow), 0.75 * sent(all_wide));
}

}  // namespace
}  // namespace chorus::testing
