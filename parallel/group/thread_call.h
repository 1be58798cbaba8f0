// One call of ranks that are threads: what each brings, and the work that results, in pieces that anybody may do.
#pragma once
#include <chorus/parallel/group/thread_world.h>

namespace chorus::threads {

/// A call that ranks ("parties": all of a group, or sender and receiver) have posted or are still to post.
class SharedCall {
 public:
  SharedCall(World& world, const std::string& group, std::vector<int> parties_in_world, std::vector<int> parties_in_group,
             std::uint64_t sequence);

  /// Adds what one party brings. Throws nothing: a call that differs from an earlier one fails the world. Whoever posts last
  /// does the work of a small call at once.
  void post(int party, const Call& call);
  bool complete() const { return complete_.load(); }
  bool ready() const { return ready_.load(); }
  /// Does what is left of this party's own share; then, with `all`, of everybody's.
  void work(int party, bool all);
  /// Whether a party that hasn't posted has ended.
  bool deserted() const;
  /// "rank 2 (its last call: ...)" for each that hasn't posted; if any of them have ended, for those.
  std::string missing() const;
  /// "all_reduce(sum) of 4 f32, call 3 of group 'world'": what a party has posted.
  std::string describe(int party) const;
  int world_rank(int party) const { return parties_[static_cast<std::size_t>(party)]; }

 private:
  struct alignas(64) Party {
    Call call;
    std::vector<std::int64_t> send, receive;
    std::atomic<bool> posted = false;
    std::atomic<std::int64_t> next = 0;             // of the pieces of its share
    std::int64_t begin = 0, count = 0, pieces = 0;  // its share: elements of x or of its out
  };
  std::string mismatch(const Party& a, const Party& b) const;
  void plan(int party);
  void piece(int party, std::int64_t index);
  void pull(Party& to, int party, std::int64_t begin, std::int64_t end);
  void done(std::int64_t pieces);
  void wake_all();

  World& world_;
  const std::string group_;
  const std::vector<int> parties_, numbers_;  // ranks in the world, in the group
  const std::uint64_t sequence_;
  std::vector<std::unique_ptr<Party>> party_;
  std::atomic<int> posted_ = 0, first_ = -1;  // how many have posted, and who was first
  std::atomic<bool> ready_ = false, complete_ = false;
  std::atomic<std::int64_t> left_ = 0;
  std::int64_t per_piece_ = 1;
};

}  // namespace chorus::threads
