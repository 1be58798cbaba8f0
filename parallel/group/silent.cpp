#include <chorus/parallel/group/silent.h>

#include <cstring>
#include <numeric>

namespace chorus {
namespace {

std::size_t bytes_before(std::span<const std::int64_t> counts, int rank, DType dtype) {
  return static_cast<std::size_t>(std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0})) * size_of(dtype);
}

}  // namespace

SilentGroup::SilentGroup(std::string name, int rank, std::vector<int> members)
    : Group(std::move(name), rank, std::move(members), GroupOptions{}, std::make_shared<FlightRecorder>(rank, 1)) {}

void SilentGroup::end_all(const std::string& cause) { fail("group", "rank ", rank(), " ended the world: ", cause); }

std::unique_ptr<Pending::Work> SilentGroup::start(const Call& call) {
  const DType dtype = call.dtype();
  const auto* in = static_cast<const char*>(call.in.data);
  auto* out = static_cast<char*>(call.out.data);
  const std::size_t size = static_cast<std::size_t>(call.out.count) * size_of(dtype);
  if (call.op == Op::all_reduce || call.op == Op::barrier || call.op == Op::send || size == 0) return nullptr;
  if (call.op == Op::broadcast) {
    if (call.peer != rank()) std::memset(out, 0, size);
    return nullptr;
  }
  if (call.op == Op::reduce_scatter) {  // `out` may be where its part lies in `in`
    std::memmove(out, in + bytes_before(call.receive, rank(), dtype), size);
    return nullptr;
  }
  // Gathers and exchanges: its own part comes to its place, which may be where it is already.
  const auto me = static_cast<std::size_t>(rank());
  const std::size_t from = call.op == Op::all_to_all ? bytes_before(call.send, rank(), dtype) : 0,
                    to = call.receive.empty() ? 0 : bytes_before(call.receive, rank(), dtype),
                    own = call.receive.empty() ? 0 : static_cast<std::size_t>(call.receive[me]) * size_of(dtype);
  if (own > 0) std::memmove(out + to, in + from, own);
  std::memset(out, 0, to);
  std::memset(out + to + own, 0, size - to - own);
  return nullptr;
}

std::unique_ptr<Group> SilentGroup::make(const std::string& name, int rank, const std::vector<int>& members) {
  return std::make_unique<SilentGroup>(name, rank, world_ranks(members));
}

}  // namespace chorus
