// A group of one: a run on one rank takes the same path as one on many.
#pragma once
#include <chorus/parallel/group/group.h>

namespace chorus {

class SoloGroup final : public Group {
 public:
  explicit SoloGroup(GroupOptions options = {}, std::string name = "world");
  void end_all(const std::string& cause) override;

 protected:
  std::unique_ptr<Pending::Work> start(const Call& call) override;
  std::unique_ptr<Group> make(const std::string& name, int rank, const std::vector<int>& members) override;

 private:
  SoloGroup(std::string name, GroupOptions options, std::shared_ptr<FlightRecorder> recorder,
            std::shared_ptr<std::string> ended);
  std::shared_ptr<std::string> ended_;  // why, for all groups split from one; empty while they go on
};

}  // namespace chorus
