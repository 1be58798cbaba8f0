#include <chorus/apps/agreement.h>
#include <chorus/io/digest.h>

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

}  // namespace chorus
