// A group of which only one rank is there, to find out what a step takes without the others: its calls end at once, what others
// would have sent is zeros, and sums are its own share.
#pragma once
#include <chorus/parallel/group/group.h>

namespace chorus {

class SilentGroup final : public Group {
 public:
  /// `members`: ranks of the world; `rank`: which of them is there.
  SilentGroup(std::string name, int rank, std::vector<int> members);
  void end_all(const std::string& cause) override;

 protected:
  std::unique_ptr<Pending::Work> start(const Call& call) override;
  std::unique_ptr<Group> make(const std::string& name, int rank, const std::vector<int>& members) override;
};

}  // namespace chorus
