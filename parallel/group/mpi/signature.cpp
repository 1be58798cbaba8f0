#include <chorus/parallel/group/mpi/exchange.h>

#include <algorithm>
#include <bit>

namespace chorus::mpi {
namespace {

struct Hash {
  std::uint64_t value = 14695981039346656037u;
  void add(std::int64_t x) {  // the mixing of splitmix64
    value = (value ^ static_cast<std::uint64_t>(x)) + 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    value ^= value >> 31;
  }
};

bool message(Op op) { return op == Op::send || op == Op::receive; }

struct Bits {
  int hash, sequence;
  explicit Bits(int upper_bound) {
    const int free = std::min(30, static_cast<int>(std::bit_width(static_cast<unsigned>(upper_bound) + 1u)) - 1) - 5;
    hash = std::min(11, free / 3);
    sequence = std::min(14, free - hash);
  }
};

}  // namespace

// From the right: results or parts, lane, sequence, hash, data or signature, message or collective.
Tags::Tags(int upper_bound, std::uint64_t sequence, std::uint64_t hash, bool message) : hash_(hash) {
  const Bits bits(upper_bound);
  const auto number = static_cast<int>(sequence % (1u << bits.sequence));
  const int kind = 1 << (3 + bits.sequence + bits.hash);
  signature_ = (message ? 2 * kind : 0) + (number << 3);
  data_ = signature_ + kind;
  hash_shift_ = 3 + bits.sequence;
  hash_mask_ = (1 << bits.hash) - 1;
}

int Tags::data(int lane, bool results, std::int64_t count) const {
  Hash hash{hash_};
  hash.add(count);
  const int folded = static_cast<int>(hash.value ^ (hash.value >> 32)) & hash_mask_;
  return data_ + (folded << hash_shift_) + lane * 2 + (results ? 1 : 0);
}

std::uint64_t Tags::most_in_flight(int upper_bound) { return std::uint64_t{1} << Bits(upper_bound).sequence; }

Signature::Signature(const Call& call)
    : sequence(call.sequence),
      op(call.op),
      reduce(call.reduce),
      dtype(call.dtype()),
      peer(call.peer),
      count(call.op == Op::send ? call.in.count : call.out.count),
      parts_given(static_cast<std::int64_t>(call.receive.size())) {
  Hash all;
  for (const auto c : call.receive) all.add(c);
  parts = all.value;
  std::copy_n(call.receive.begin(), std::min(call.receive.size(), listed), part.begin());
}

std::uint64_t Signature::hash() const {
  Hash h;
  h.add(message(op) ? static_cast<int>(Op::send) : static_cast<int>(op));
  h.add(static_cast<int>(reduce));
  h.add(static_cast<int>(dtype));
  if (op == Op::broadcast) h.add(peer);
  if (op == Op::all_reduce || op == Op::broadcast || message(op)) h.add(count);
  if (op == Op::all_gather || op == Op::reduce_scatter) h.add(static_cast<std::int64_t>(parts));
  return h.value;
}

std::string Signature::describe() const {
  std::array<std::int64_t, listed + 1> shown{};  // one more than are listed shows that there are more
  std::ranges::copy(part, shown.begin());
  const auto given = std::min(static_cast<std::size_t>(parts_given), listed + 1);
  Call call{.op = op, .reduce = reduce, .receive = {shown.data(), given}, .peer = peer};
  call.in = {nullptr, count, dtype};
  call.out = {nullptr, count, dtype};
  return call.describe();
}

}  // namespace chorus::mpi
