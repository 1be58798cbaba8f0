// A collective call that goes on while its caller does other things.
#pragma once
#include <cstdint>
#include <memory>

namespace chorus {

class FlightRecorder;

/// Its memory must stay as it is until `wait` has returned. One that is dropped is waited for; while an exception unwinds it is
/// left instead, which ends the group.
class Pending {
 public:
  class Work {
   public:
    virtual ~Work() = default;
    virtual void wait() = 0;            ///< until done; throws what stopped the group
    virtual void leave() noexcept = 0;  ///< without waiting: afterwards nobody touches the call's memory
  };
  Pending() = default;
  explicit Pending(std::unique_ptr<Work> work, FlightRecorder* recorder = nullptr, std::uint64_t ticket = 0)
      : work_(std::move(work)), recorder_(recorder), ticket_(ticket) {}
  Pending(Pending&&) = default;
  Pending& operator=(Pending&& other) noexcept;
  ~Pending() { drop(); }
  /// Once; a second time does nothing.
  void wait();
  explicit operator bool() const { return work_ != nullptr; }  ///< whether there is something to wait for

 private:
  void drop() noexcept;
  std::unique_ptr<Work> work_;
  FlightRecorder* recorder_ = nullptr;  // the group's, which outlives its calls
  std::uint64_t ticket_ = 0;
};

}  // namespace chorus
