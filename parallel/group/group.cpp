#include <chorus/parallel/group/group.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <sstream>

namespace chorus {
namespace {

std::string list(std::span<const std::int64_t> counts) {
  std::ostringstream text;
  for (std::size_t i = 0; i < std::min<std::size_t>(counts.size(), 16); ++i) text << (i ? "," : "") << counts[i];
  if (counts.size() > 16) text << ",...";
  return text.str();
}

/// What arguments are checked against: the call and who makes it, for messages.
struct Checked {
  const Group& group;
  const Call& call;

  template <class... Parts>
  void require(bool ok, const Parts&... parts) const {
    if (!ok) [[unlikely]]
      fail(name(call.op).data(), "group '", group.name(), "', rank ", group.rank(), ": ", parts...);
  }
  void memory(const char* which, const void* data, std::int64_t count) const {
    require(count >= 0, which, " has ", count, " elements");
    require(count == 0 || data, which, " has ", count, " elements, but no memory");
  }
  void rank_of_group(int rank) const {
    require(rank >= 0 && rank < group.size(), "there is no rank ", rank, "; its ranks are 0 to ", group.size() - 1);
  }
  void same_type() const { require(call.in.dtype == call.out.dtype, "reads ", call.in.dtype, " and writes ", call.out.dtype); }
  void reducible() const {
    require(call.dtype() != DType::u8, "can't reduce ", call.dtype(), "; it takes f32, bf16, f64, i32 and i64");
  }
  void counts(std::span<const std::int64_t> given, std::int64_t total, const char* which) const {
    require(static_cast<int>(given.size()) == group.size(), given.size(), " counts for ", group.size(), " ranks");
    for (const auto c : given) require(c >= 0, "counts ", list(given), ": none may be negative");
    const auto sum = std::accumulate(given.begin(), given.end(), std::int64_t{0});
    require(sum == total, which, " has ", total, " elements, but its counts are ", list(given), ", together ", sum);
  }
  /// `part`, the smaller side, is either apart from `whole` or exactly where this rank's part of it lies.
  void overlap(ConstElements part, ConstElements whole, std::span<const std::int64_t> counts) const {
    const auto bytes = static_cast<std::int64_t>(size_of(part.dtype));
    const auto* a = static_cast<const char*>(part.data);
    const auto* b = static_cast<const char*>(whole.data);
    if (part.count == 0 || whole.count == 0 || a + part.count * bytes <= b || b + whole.count * bytes <= a) return;
    const auto offset = counts.empty() ? -1 : std::accumulate(counts.begin(), counts.begin() + group.rank(), std::int64_t{0});
    require(offset >= 0 && a == b + offset * bytes,
            "the memory that it reads and writes overlaps, and not exactly in this rank's part");
  }
};

}  // namespace

std::string Call::describe() const {
  std::ostringstream text;
  text << name(op);
  if (op == Op::barrier || op == Op::split) return text.str();
  if (op == Op::all_reduce) {
    constexpr const char* names[] = {"(sum)", "(max)", "(min)"};
    text << names[static_cast<int>(reduce)];
  }
  text << " of ";
  if (op == Op::all_reduce || op == Op::broadcast || op == Op::receive) text << out.count << ' ';
  if (op == Op::send) text << in.count << ' ';
  if (op == Op::all_gather || op == Op::reduce_scatter) text << list(receive) << ' ';
  text << dtype();
  if (op == Op::broadcast || op == Op::receive) text << " from rank " << peer;
  if (op == Op::send) text << " to rank " << peer;
  return text.str();
}

Pending& Pending::operator=(Pending&& other) noexcept {
  if (this == &other) return *this;
  drop();
  work_ = std::move(other.work_), recorder_ = other.recorder_, ticket_ = other.ticket_;
  return *this;
}

void Pending::wait() {
  const auto work = std::move(work_);
  if (!work) return;
  try {
    work->wait();
  } catch (...) {
    if (recorder_) recorder_->set(ticket_, FlightRecorder::State::failed);
    throw;
  }
  if (recorder_) recorder_->set(ticket_, FlightRecorder::State::done);
}

void Pending::drop() noexcept {
  if (!work_) return;
  if (std::uncaught_exceptions() > 0) {
    std::move(work_)->leave();
    if (recorder_) recorder_->set(ticket_, FlightRecorder::State::failed);
    return;
  }
  try {
    wait();
  } catch (...) {  // the group has ended, which its next call says again
  }
}

Group::Group(std::string name, int rank, std::vector<int> members, GroupOptions options,
             std::shared_ptr<FlightRecorder> recorder)
    : name_(std::move(name)),
      rank_(rank),
      members_(std::move(members)),
      options_(std::move(options)),
      recorder_(std::move(recorder)),
      sent_(members_.size()),
      received_(members_.size()) {
  const auto printable = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  require(!name_.empty() && std::ranges::all_of(name_, printable), "Group", "a name of printable characters, not '", name_,
          "'");
  require(rank_ >= 0 && rank_ < size(), "Group", "rank ", rank_, " of ", size());
}
Group::~Group() = default;

std::vector<int> Group::world_ranks(const std::vector<int>& members) const {
  std::vector<int> ranks;
  for (const int m : members) ranks.push_back(members_[static_cast<std::size_t>(m)]);
  return ranks;
}

Pending Group::begin(Call call) {
  call.group = this;
  const auto peer = static_cast<std::size_t>(call.peer);
  call.sequence = call.op == Op::send ? ++sent_[peer] : call.op == Op::receive ? ++received_[peer] : ++collectives_;
  call.ticket =
      recorder_->post(name_, call.sequence, call.op, call.dtype(), std::max(call.in.count, call.out.count), call.peer);
  if (options_.observe) options_.observe(call, members_[static_cast<std::size_t>(rank_)]);
  try {
    if (auto work = start(call)) return Pending(std::move(work), recorder_.get(), call.ticket);
  } catch (...) {
    recorder_->set(call.ticket, FlightRecorder::State::failed);
    throw;
  }
  recorder_->set(call.ticket, FlightRecorder::State::done);
  return {};
}

Pending Group::start_all_reduce(Elements x, Reduce reduce) {
  const Call call{.op = Op::all_reduce, .reduce = reduce, .in = x, .out = x};
  const Checked check{*this, call};
  check.memory("x", x.data, x.count);
  check.reducible();
  return begin(call);
}

Pending Group::start_all_gather(ConstElements in, Elements out, std::span<const std::int64_t> counts) {
  const Call call{.op = Op::all_gather, .in = in, .out = out, .receive = counts};
  const Checked check{*this, call};
  check.memory("in", in.data, in.count);
  check.memory("out", out.data, out.count);
  check.same_type();
  check.counts(counts, out.count, "out");
  const auto own = counts[static_cast<std::size_t>(rank_)];
  check.require(in.count == own, "in has ", in.count, " elements, its part is ", own, " of ", list(counts));
  check.overlap(in, out, counts);
  return begin(call);
}

Pending Group::start_reduce_scatter(ConstElements in, Elements out, std::span<const std::int64_t> counts) {
  const Call call{.op = Op::reduce_scatter, .in = in, .out = out, .receive = counts};
  const Checked check{*this, call};
  check.memory("in", in.data, in.count);
  check.memory("out", out.data, out.count);
  check.same_type();
  check.reducible();
  check.counts(counts, in.count, "in");
  const auto own = counts[static_cast<std::size_t>(rank_)];
  check.require(out.count == own, "out has ", out.count, " elements, its part is ", own, " of ", list(counts));
  check.overlap(out, in, counts);
  return begin(call);
}

Pending Group::start_all_to_all(ConstElements in, std::span<const std::int64_t> send, Elements out,
                                std::span<const std::int64_t> receive) {
  const Call call{.op = Op::all_to_all, .in = in, .out = out, .send = send, .receive = receive};
  const Checked check{*this, call};
  check.memory("in", in.data, in.count);
  check.memory("out", out.data, out.count);
  check.same_type();
  check.counts(send, in.count, "in");
  check.counts(receive, out.count, "out");
  const auto own = static_cast<std::size_t>(rank_);
  check.require(send[own] == receive[own], "sends ", send[own], " elements to itself, but receives ", receive[own]);
  check.overlap(in, out, {});
  return begin(call);
}

Pending Group::start_broadcast(Elements x, int root) {
  const Call call{.op = Op::broadcast, .in = x, .out = x, .peer = root};
  const Checked check{*this, call};
  check.memory("x", x.data, x.count);
  check.rank_of_group(root);
  return begin(call);
}

Pending Group::start_send(ConstElements x, int to) {
  const Call call{.op = Op::send, .in = x, .peer = to};
  const Checked check{*this, call};
  check.memory("x", x.data, x.count);
  check.rank_of_group(to);
  check.require(to != rank_, "a rank doesn't send to itself");
  return begin(call);
}

Pending Group::start_receive(Elements x, int from) {
  const Call call{.op = Op::receive, .out = x, .peer = from};
  const Checked check{*this, call};
  check.memory("x", x.data, x.count);
  check.rank_of_group(from);
  check.require(from != rank_, "a rank doesn't receive from itself");
  return begin(call);
}

void Group::barrier() {
  std::int32_t nothing = 0;
  const Elements x{&nothing, 1, DType::i32};
  begin({.op = Op::barrier, .in = x, .out = x}).wait();
}

std::unique_ptr<Group> Group::split(int color, int key, const std::string& name) {
  struct Choice {
    std::int64_t color, key, name;
  };
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  const Choice own{color, key, static_cast<std::int64_t>(hash)};
  std::vector<Choice> all(members_.size());
  const std::vector<std::int64_t> counts(all.size(), 3);
  begin({.op = Op::split,
         .in = {&own, 3, DType::i64},
         .out = {all.data(), 3 * static_cast<std::int64_t>(all.size()), DType::i64},
         .receive = counts})
      .wait();
  if (color < 0) return nullptr;
  std::vector<int> chosen;
  for (int r = 0; r < size(); ++r) {
    const Choice& c = all[static_cast<std::size_t>(r)];
    if (c.color != color) continue;
    require(c.name == own.name, "split", "rank ", r, " of group '", name_, "' gives color ", color, " another name than '",
            name, "', which rank ", rank_, " gives");
    chosen.push_back(r);
  }
  std::ranges::stable_sort(chosen, {}, [&](int r) { return all[static_cast<std::size_t>(r)].key; });
  const auto place = std::ranges::find(chosen, rank_) - chosen.begin();
  return make(name, static_cast<int>(place), chosen);
}

}  // namespace chorus
