#include <chorus/apps/agreement.h>
#include <chorus/io/digest.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace chorus {

void require_agreement(Group& world, const std::string& what, const std::string& text) {
  const std::string own = digest(text.data(), text.size());
  const auto n = static_cast<std::int64_t>(own.size());
  std::string all(own.size() * static_cast<std::size_t>(world.size()), ' ');
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()), n);
  world.all_gather({own.data(), n, DType::u8}, {all.data(), static_cast<std::int64_t>(all.size()), DType::u8}, counts);
  for (int r = 1; r < world.size(); ++r)
    require(all.compare(static_cast<std::size_t>(r * n), own.size(), all, 0, own.size()) == 0, "train", what, " of rank ", r,
            " differs from rank 0's: all ranks must be started alike");
}

std::vector<std::int64_t> gathered(Group& group, std::span<const std::int64_t> own) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto count = static_cast<std::int64_t>(own.size());
  std::vector<std::int64_t> counts(ranks);
  const std::vector<std::int64_t> ones(ranks, 1);
  group.all_gather(std::span<const std::int64_t>(&count, 1), std::span<std::int64_t>(counts), ones);
  std::vector<std::int64_t> all(static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0})));
  group.all_gather(own, std::span<std::int64_t>(all), counts);
  return all;
}

std::vector<std::string> agree_on_failures(LoadedBatch& batch, Group& peers) {
  auto any = static_cast<std::int64_t>(batch.failed.size());
  peers.all_reduce(std::span<std::int64_t>(&any, 1), Reduce::max);
  if (any == 0) return {};
  const auto rank = static_cast<std::int64_t>(peers.rank());
  std::vector<std::int64_t> own;
  for (const auto number : batch.failed) own.insert(own.end(), {number, rank});
  std::map<std::int64_t, std::vector<std::int64_t>> ranks_of;  // a sample that failed -> where, in order
  const auto all = gathered(peers, own);
  for (std::size_t i = 0; i < all.size(); i += 2) ranks_of[all[i]].push_back(all[i + 1]);

  std::vector<std::int64_t> others;  // that failed elsewhere only
  for (const auto& [number, ranks] : ranks_of)
    if (std::ranges::find(ranks, rank) == ranks.end()) others.push_back(number);
  if (!others.empty()) leave_out(batch, others);
  std::vector<std::string> told;
  for (std::size_t i = 0; i < batch.failed.size(); ++i) {
    const auto& ranks = ranks_of.at(batch.failed[i]);
    if (ranks.front() != rank) continue;
    const bool all_had = std::ssize(ranks) == peers.size();
    told.push_back(batch.failures[i] +
                   (all_had ? ""
                            : "; it failed on " + std::to_string(ranks.size()) + " of " + std::to_string(peers.size()) +
                                  " ranks that have this sample, and all leave it out"));
  }
  return told;
}

}  // namespace chorus
