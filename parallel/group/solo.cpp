#include <chorus/parallel/group/solo.h>

#include <cstring>

namespace chorus {

SoloGroup::SoloGroup(GroupOptions options, std::string name)
    : SoloGroup(std::move(name), options, std::make_shared<FlightRecorder>(0, options.recorded_calls),
                std::make_shared<std::string>()) {}

SoloGroup::SoloGroup(std::string name, GroupOptions options, std::shared_ptr<FlightRecorder> recorder,
                     std::shared_ptr<std::string> ended)
    : Group(std::move(name), 0, {0}, std::move(options), std::move(recorder)), ended_(std::move(ended)) {}

void SoloGroup::end_all(const std::string& cause) {
  if (!ended_->empty()) return;
  *ended_ = "rank 0 ended the world: " + cause;
  if (!options().record_folder.empty()) recorder().write(options().record_folder);
}

std::unique_ptr<Pending::Work> SoloGroup::start(const Call& call) {
  require(ended_->empty(), chorus::name(call.op).data(), "group '", name(), "', call ", call.sequence, ": ", *ended_);
  if (call.out.count > 0 && call.out.data != call.in.data)
    std::memcpy(call.out.data, call.in.data, static_cast<std::size_t>(call.out.count) * size_of(call.out.dtype));
  return nullptr;
}

std::unique_ptr<Group> SoloGroup::make(const std::string& name, int, const std::vector<int>&) {
  return std::unique_ptr<Group>(new SoloGroup(name, options(), shared_recorder(), ended_));
}

}  // namespace chorus
