#include <chorus/core/cpu.h>
#include <chorus/parallel/group/thread_call.h>
#include <omp.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <thread>

namespace chorus {
namespace threads {
namespace {

using Clock = std::chrono::steady_clock;
using SharedCallPtr = std::shared_ptr<SharedCall>;

/// Calls of the same parties in order. One is found by its number until all have posted it.
class Lane {
 public:
  template <class Make>
  SharedCallPtr find(std::uint64_t sequence, Make make) {
    const std::lock_guard lock(mutex_);
    while (!calls_.empty() && calls_.front()->ready()) calls_.pop_front(), ++first_;
    while (sequence >= first_ + calls_.size()) calls_.push_back(make(first_ + calls_.size()));
    return calls_[sequence - first_];
  }

 private:
  std::mutex mutex_;
  std::uint64_t first_ = 1;
  std::deque<SharedCallPtr> calls_;
};

/// What the ranks of one group share.
struct Team {
  Team(std::shared_ptr<World> world, std::vector<int> members) : world(std::move(world)), members(std::move(members)) {}
  const std::shared_ptr<World> world;
  const std::vector<int> members;
  Lane collectives;

  Lane& messages(int from, int to) {
    const std::lock_guard lock(mutex_);
    return messages_[{from, to}];
  }
  /// The same team for all who ask with equal arguments, of whom there are as many as it has members.
  std::shared_ptr<Team> child(std::uint64_t split, const std::vector<int>& world_ranks) {
    const std::lock_guard lock(mutex_);
    auto& [team, asked] = children_[{split, world_ranks.front()}];
    if (!team) team = std::make_shared<Team>(world, world_ranks);
    const auto result = team;
    if (++asked == world_ranks.size()) children_.erase({split, world_ranks.front()});
    return result;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, Lane> messages_;
  std::map<std::pair<std::uint64_t, int>, std::pair<std::shared_ptr<Team>, std::size_t>> children_;
};

/// A call as one of its parties sees it.
struct Posted {
  SharedCallPtr call;
  int party;
};
/// What a rank has posted, in all its groups, and not yet done its share of.
using Unfinished = std::vector<Posted>;

class Work final : public Pending::Work {
 public:
  Work(std::shared_ptr<World> world, Posted posted, std::uint64_t ticket)
      : world_(std::move(world)), posted_(std::move(posted)), ticket_(ticket) {}

  void wait() override {
    SharedCall& call = *posted_.call;
    const int rank = call.world_rank(posted_.party);
    const auto begin = Clock::now();
    const auto end = begin + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(std::min(world_->options.time_limit, 1e9)));
    bool helped = false;
    const auto awake = [&] { return call.complete() || world_->failed() || (call.ready() && !helped) || call.deserted(); };
    while (!call.complete()) {
      if (world_->failed()) stop(rank);
      if (call.ready() && !helped) {
        world_->recorder(rank)->set(ticket_, FlightRecorder::State::begun);
        call.work(posted_.party, true);
        helped = true;
        continue;
      }
      if (!call.ready() && call.deserted()) give_up(rank, "");
      if (spin(awake)) continue;
      // Once all have come, what is left is copying or adding, which ends by itself.
      const bool came = world_->sleep(rank, call.ready() ? Clock::now() + std::chrono::hours(1) : end, awake);
      if (!came && !call.ready() && Clock::now() >= end) give_up(rank, " for " + seconds(world_->options.time_limit) + " s");
    }
  }

  void leave() noexcept override {
    if (posted_.call->complete()) return;
    const int rank = posted_.call->world_rank(posted_.party);
    world_->fail(rank, "rank " + std::to_string(rank) + " left " + what() + " unfinished, because of an exception", true);
    world_->quiesce(rank);
  }

 private:
  template <class F>
  bool spin(const F& awake) const {
    if (!world_->spin) return false;
    const auto end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(world_->options.spin_seconds));
    do {
      for (int i = 0; i < 16; ++i) {
        if (awake()) return true;
        __builtin_ia32_pause();
      }
    } while (Clock::now() < end);
    return false;
  }
  static std::string seconds(double s) {
    std::ostringstream text;
    text << s;
    return text.str();
  }
  std::string what() const { return posted_.call->describe(posted_.party); }
  [[noreturn]] void give_up(int rank, const std::string& how_long) {
    world_->recorder(rank)->set(ticket_, FlightRecorder::State::failed);
    world_->fail(rank,
                 "rank " + std::to_string(rank) + " waited" + how_long + " in " + what() + " for " + posted_.call->missing());
    stop(rank);
  }
  [[noreturn]] void stop(int rank) {
    world_->quiesce(rank);
    throw GroupEnded(error_text("group", "rank ", rank, " was stopped in ", what(), ": ", world_->cause()));
  }

  std::shared_ptr<World> world_;
  Posted posted_;
  std::uint64_t ticket_;
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(const std::string& name, int rank, std::shared_ptr<Team> team, std::shared_ptr<Unfinished> unfinished)
      : Group(name, rank, team->members, team->world->options,
              team->world->recorder(team->members[static_cast<std::size_t>(rank)])),
        team_(std::move(team)),
        unfinished_(std::move(unfinished)) {}

  void end_all(const std::string& cause) override {
    team_->world->fail(world_rank(), "rank " + std::to_string(world_rank()) + " ended the world: " + cause);
  }

 protected:
  std::unique_ptr<Pending::Work> start(const Call& call) override {
    World& world = *team_->world;
    const Posted posted = find(call);
    if (!world.failed()) posted.call->post(posted.party, call);
    if (!posted.call->complete()) {
      if (world.failed()) {
        world.quiesce(world_rank());
        throw GroupEnded(error_text(chorus::name(call.op).data(), "rank ", world_rank(), " was stopped in ", describe(call),
                                    ": ", world.cause()));
      }
      unfinished_->push_back(posted);
    }
    std::erase_if(*unfinished_, [](const Posted& p) {
      p.call->work(p.party, false);
      return p.call->ready();
    });
    if (posted.call->complete()) return nullptr;
    return std::make_unique<Work>(team_->world, posted, call.ticket);
  }

  std::unique_ptr<Group> make(const std::string& name, int rank, const std::vector<int>& members) override {
    return std::make_unique<ThreadGroup>(name, rank, team_->child(collectives(), world_ranks(members)), unfinished_);
  }

 private:
  int world_rank() const { return members()[static_cast<std::size_t>(rank())]; }
  std::string describe(const Call& call) const {
    return call.describe() + ", call " + std::to_string(call.sequence) + " of group '" + name() + "'";
  }
  Posted find(const Call& call) const {
    if (call.op != Op::send && call.op != Op::receive) {
      const auto make = [&](std::uint64_t sequence) {
        std::vector<int> numbers(members().size());
        std::iota(numbers.begin(), numbers.end(), 0);
        return std::make_shared<SharedCall>(*team_->world, name(), members(), std::move(numbers), sequence);
      };
      return {team_->collectives.find(call.sequence, make), rank()};
    }
    const bool sends = call.op == Op::send;
    const int from = sends ? rank() : call.peer, to = sends ? call.peer : rank();
    const auto make = [&](std::uint64_t sequence) {
      return std::make_shared<SharedCall>(*team_->world, name(), world_ranks({from, to}), std::vector<int>{from, to}, sequence);
    };
    return {team_->messages(from, to).find(call.sequence, make), sends ? 0 : 1};
  }

  std::shared_ptr<Team> team_;
  std::shared_ptr<Unfinished> unfinished_;
};

}  // namespace
}  // namespace threads

void run_ranks(int ranks, const ThreadOptions& options, const std::function<void(Group& world)>& rank_main) {
  require(ranks >= 1, "run_ranks", ranks, " ranks; at least one is needed");
  const auto world = std::make_shared<threads::World>(ranks, options);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto team = std::make_shared<threads::Team>(world, members);
  const int width = options.threads_per_rank > 0 ? options.threads_per_rank : std::max(1, compute_threads() / ranks);
  const auto run = [&](int rank) {
    omp_set_num_threads(width);
    std::optional<std::string> cause;
    try {
      threads::ThreadGroup group("world", rank, team, std::make_shared<threads::Unfinished>());
      rank_main(group);
    } catch (const std::exception& e) {
      cause = e.what();
    } catch (...) {
      cause = "an exception that is no std::exception";
    }
    world->left(rank, cause ? &*cause : nullptr);
  };
  {
    std::vector<std::jthread> running;  // joined at the end of this block
    try {
      for (int r = 0; r < ranks; ++r) running.emplace_back(run, r);
    } catch (const std::exception& e) {
      world->fail(static_cast<int>(running.size()), "a thread for rank " + std::to_string(running.size()) + " of " +
                                                        std::to_string(ranks) + " can't be started: " + e.what());
    }
  }
  if (world->failed()) throw Error(world->cause());
}

}  // namespace chorus
