#include <chorus/parallel/vocabulary.h>

#include <vector>

namespace chorus {

std::function<Tensor(Tensor, Tensor, Tensor, const CrossEntropyOptions&)> vocabulary_parallel_loss(const Axis& axis) {
  return [&axis](Tensor x, Tensor weight, Tensor labels, CrossEntropyOptions options) {
    options.combine = [&axis](std::span<RowStatistics> rows) {
      if (!axis.group) return;
      constexpr std::size_t numbers = 4;  // of a row
      const std::size_t own = rows.size() * numbers, ranks = static_cast<std::size_t>(axis.size);
      std::vector<double> all(own * ranks), mine;
      for (const auto& row : rows) mine.insert(mine.end(), {row.max, row.exps, row.sum, row.chosen});
      const std::vector<std::int64_t> counts(ranks, static_cast<std::int64_t>(own));
      axis.group->all_gather(std::span<const double>(mine), std::span<double>(all), counts);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        RowStatistics merged;
        for (std::size_t k = 0; k < ranks; ++k) {
          const double* part = all.data() + k * own + r * numbers;
          merged = merge(merged, {.max = part[0], .exps = part[1], .sum = part[2], .chosen = part[3]});
        }
        rows[r] = merged;
      }
    };
    return linear_cross_entropy(x, weight, labels, options);
  };
}

}  // namespace chorus
