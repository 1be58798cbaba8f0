#include <chorus/parallel/group/reduce.h>
#include <chorus/parallel/group/thread_call.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace chorus::threads {
namespace {

// Shares of a reduction begin at multiples of this, so that ranks write no cache line in common.
constexpr std::int64_t line_elements = 64;

std::int64_t before(const std::vector<std::int64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
}
bool reduces(Op op) { return op == Op::all_reduce || op == Op::reduce_scatter || op == Op::barrier; }

}  // namespace

SharedCall::SharedCall(World& world, const std::string& group, std::vector<int> parties_in_world,
                       std::vector<int> parties_in_group, std::uint64_t sequence)
    : world_(world),
      group_(group),
      parties_(std::move(parties_in_world)),
      numbers_(std::move(parties_in_group)),
      sequence_(sequence) {
  for (std::size_t i = 0; i < parties_.size(); ++i) party_.push_back(std::make_unique<Party>());
}

void SharedCall::post(int party, const Call& call) {
  Party& own = *party_[static_cast<std::size_t>(party)];
  own.call = call;
  own.send.assign(call.send.begin(), call.send.end());
  own.receive.assign(call.receive.begin(), call.receive.end());
  own.call.send = own.send, own.call.receive = own.receive;
  own.posted.store(true);
  const auto who = [&](std::size_t i) {
    const std::string number = "rank " + std::to_string(numbers_[i]);
    return numbers_[i] == parties_[i] ? number : number + " (" + std::to_string(parties_[i]) + " of the world)";
  };
  int first = -1;
  if (first_.compare_exchange_strong(first, party)) first = party;
  // Who agrees with the first agrees with all; only exchanges are an affair of pairs.
  const bool pairs = call.op == Op::all_to_all;
  const std::size_t begin = pairs ? 0 : static_cast<std::size_t>(first), end = pairs ? party_.size() : begin + 1;
  for (std::size_t i = begin; i < end; ++i) {
    if (party_[i].get() == &own || !party_[i]->posted.load()) continue;
    const std::string difference = mismatch(own, *party_[i]);
    if (difference.empty()) continue;
    world_.fail(world_rank(party), "group '" + group_ + "', call " + std::to_string(sequence_) + ": " +
                                       who(static_cast<std::size_t>(party)) + " makes " + call.describe() + ", but " + who(i) +
                                       " makes " + party_[i]->call.describe() + difference);
    return;
  }
  if (posted_.fetch_add(1) + 1 < static_cast<int>(party_.size())) return;
  plan(party);
  if (!complete()) wake_all();
}

std::string SharedCall::describe(int party) const {
  return party_[static_cast<std::size_t>(party)]->call.describe() + ", call " + std::to_string(sequence_) + " of group '" +
         group_ + "'";
}

/// Not empty if the calls can't belong together; then what the descriptions don't tell.
std::string SharedCall::mismatch(const Party& a, const Party& b) const {
  const auto one_way = [](const Party& s, const Party& r) { return s.call.op == Op::send && r.call.op == Op::receive; };
  if (one_way(a, b) || one_way(b, a)) {
    const bool equal = a.call.dtype() == b.call.dtype() &&
                       std::max(a.call.in.count, a.call.out.count) == std::max(b.call.in.count, b.call.out.count);
    return equal ? "" : " (type or count differ)";
  }
  if (a.call.op != b.call.op || a.call.dtype() != b.call.dtype() || a.call.peer != b.call.peer ||
      a.call.reduce != b.call.reduce)
    return " (operation, type or root differ)";
  if (a.call.op == Op::all_to_all) {
    const auto number = [&](const Party& p) {
      return static_cast<std::size_t>(std::ranges::find(party_, &p, [](const auto& q) { return q.get(); }) - party_.begin());
    };
    const auto clash = [&](const Party& from, const Party& to) -> std::string {
      const auto sends = from.send[number(to)], expects = to.receive[number(from)];
      if (sends == expects) return "";
      return " (rank " + std::to_string(number(from)) + " sends " + std::to_string(sends) + " elements, rank " +
             std::to_string(number(to)) + " expects " + std::to_string(expects) + ")";
    };
    const std::string there = clash(a, b);
    return there.empty() ? clash(b, a) : there;
  }
  if (a.receive != b.receive) return " (counts differ)";
  const bool equal = !(a.call.op == Op::all_reduce || a.call.op == Op::broadcast) || a.call.out.count == b.call.out.count;
  return equal ? "" : " (counts differ)";
}

/// Shares the work out. Everybody has posted, and only the last one comes here.
void SharedCall::plan(int party) {
  const Op op = party_[0]->call.op;
  const auto n = static_cast<std::int64_t>(party_.size());
  const auto bytes = static_cast<std::int64_t>(size_of(party_[0]->call.dtype()));
  per_piece_ = std::max<std::int64_t>(1, world_.options.piece_bytes / bytes);
  std::int64_t pieces = 0, elements = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    Party& p = *party_[static_cast<std::size_t>(i)];
    const std::int64_t all = op == Op::send || op == Op::receive ? party_[1]->call.out.count : p.call.out.count;
    const auto cut = [&](std::int64_t rank) { return rank == n ? all : all / line_elements * rank / n * line_elements; };
    const bool divided = op == Op::all_reduce || op == Op::barrier || op == Op::send || op == Op::receive;
    p.begin = divided ? cut(i) : 0;
    p.count = divided ? cut(i + 1) - p.begin : op == Op::broadcast && p.call.peer == i ? 0 : all;
    p.pieces = (p.count + per_piece_ - 1) / per_piece_;
    pieces += p.pieces;
    elements += p.count;
  }
  left_.store(pieces);
  if (pieces == 0) complete_.store(true);
  ready_.store(true);
  if (pieces == 0) return wake_all();
  const std::int64_t touched = elements * bytes * (op == Op::all_reduce ? 2 * n : reduces(op) ? n + 1 : 2);
  if (touched <= world_.options.small_bytes) work(party, true);
}

void SharedCall::work(int party, bool all) {
  if (!ready()) return;
  const int n = static_cast<int>(party_.size());
  for (int step = 0; step < (all ? n : 1); ++step) {
    const int owner = (party + step) % n;
    Party& share = *party_[static_cast<std::size_t>(owner)];
    for (;;) {
      if (share.next.load() >= share.pieces) break;
      bool more = true;
      const bool ran = world_.at_work(world_rank(party), [&] {
        const std::int64_t index = share.next.fetch_add(1);
        more = index < share.pieces;
        if (more) piece(owner, index);
      });
      if (!ran) return;
      if (!more) break;
      done(1);
    }
  }
}

void SharedCall::done(std::int64_t pieces) {
  if (left_.fetch_sub(pieces) != pieces) return;
  complete_.store(true);
  wake_all();
}

void SharedCall::wake_all() {
  for (const int rank : parties_) world_.wake(rank);
}

void SharedCall::piece(int owner, std::int64_t index) {
  Party& to = *party_[static_cast<std::size_t>(owner)];
  const Op op = to.call.op;
  const std::int64_t begin = to.begin + index * per_piece_, end = std::min(begin + per_piece_, to.begin + to.count);
  if (!reduces(op)) {
    const bool message = op == Op::send || op == Op::receive;
    return pull(message ? *party_[1] : to, message ? 1 : owner, begin, end);
  }
  const auto bytes = static_cast<std::int64_t>(size_of(to.call.dtype()));
  const std::int64_t offset = op == Op::reduce_scatter ? before(to.receive, owner) : 0;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const auto& p : party_) {
    inputs.push_back(static_cast<const char*>(p->call.in.data) + (offset + begin) * bytes);
    if (op != Op::reduce_scatter || p.get() == &to) outputs.push_back(static_cast<char*>(p->call.out.data) + begin * bytes);
  }
  reduce(to.call.dtype(), to.call.reduce, inputs, outputs, end - begin);
}

/// Fills elements [begin, end) of a party's `out` from where they lie.
void SharedCall::pull(Party& to, int party, std::int64_t begin, std::int64_t end) {
  const auto bytes = static_cast<std::int64_t>(size_of(to.call.dtype()));
  const auto copy = [&](const Party& from, std::int64_t from_begin, std::int64_t at, std::int64_t count) {
    const std::int64_t first = std::max(at, begin), last = std::min(at + count, end);
    if (first >= last) return;
    const char* source = static_cast<const char*>(from.call.in.data) + (from_begin + first - at) * bytes;
    char* target = static_cast<char*>(to.call.out.data) + first * bytes;
    if (source != target) std::memcpy(target, source, static_cast<std::size_t>((last - first) * bytes));
  };
  const Op op = to.call.op;
  if (op == Op::broadcast) return copy(*party_[static_cast<std::size_t>(to.call.peer)], 0, 0, to.call.out.count);
  if (op == Op::receive) return copy(*party_[0], 0, 0, to.call.out.count);
  std::int64_t at = 0;
  for (std::size_t s = 0; s < party_.size(); ++s) {
    const Party& from = *party_[s];
    copy(from, op == Op::all_to_all ? before(from.send, party) : 0, at, to.receive[s]);
    at += to.receive[s];
  }
}

bool SharedCall::deserted() const {
  for (std::size_t i = 0; i < party_.size(); ++i)
    if (world_.has_left(parties_[i]) && !party_[i]->posted.load()) return true;
  return false;
}

std::string SharedCall::missing() const {
  std::string text;
  const bool only_ended = deserted();
  for (std::size_t i = 0; i < party_.size(); ++i) {
    if (party_[i]->posted.load() || (only_ended && !world_.has_left(parties_[i]))) continue;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(numbers_[i]);
    if (numbers_[i] != parties_[i]) text += " (" + std::to_string(parties_[i]) + " of the world)";
    text += world_.has_left(parties_[i]) ? ", which has ended (its last call: " : " (its last call: ";
    text += world_.recorder(parties_[i])->last() + ")";
  }
  return text;
}

}  // namespace chorus::threads
