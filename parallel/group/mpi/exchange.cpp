#include <chorus/parallel/group/mpi/exchange.h>
#include <chorus/parallel/group/reduce.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace chorus::mpi {
namespace {
using Clock = std::chrono::steady_clock;
}  // namespace

Exchange::Exchange(Engine& engine, MPI_Comm communicator, int tag_bound, const Call& call, int rank,
                   const std::vector<int>& members, const std::string& name)
    : engine_(engine),
      communicator_(communicator),
      group_(name),
      rank_(rank),
      size_(static_cast<int>(members.size())),
      members_(members),
      op_(call.op),
      reduce_(call.reduce),
      dtype_(call.dtype()),
      bytes_(static_cast<std::int64_t>(size_of(dtype_))),
      peer_(call.peer),
      in_(call.in),
      out_(call.out),
      own_(call),
      tags_(tag_bound, call.sequence, own_.hash(), call.op == Op::send || call.op == Op::receive) {
  chunk_ = std::max<std::int64_t>(1, engine.options.chunk_bytes / bytes_);
  two_steps_ = (op_ == Op::all_reduce || op_ == Op::broadcast) && size_ > 1 &&
               (size_ - 1) * out_.count * bytes_ > engine.options.small_bytes;
  // What doesn't fit into one round is added while it is in the cache. (Two ranks, Open MPI: 4 MiB took a fifth longer in
  // rounds of 1 MiB than in one; 16 MiB took a third longer in rounds of 4.)
  if (two_steps_ && out_.count > chunk_ * size_) chunk_ = std::max<std::int64_t>(1, chunk_ / 4);
  set_parts(call);
  if (!reduces() || size_ == 1) {  // what a rank gives itself
    const Part from = send_[static_cast<std::size_t>(rank_)], to = receive_[static_cast<std::size_t>(rank_)];
    if (to.count > 0 && in(from.begin) != out(to.begin))
      std::memcpy(out(to.begin), in(from.begin), static_cast<std::size_t>(to.count * bytes_));
  }
  greet();
  for (int l = 0; l < Tags::lanes; ++l) {
    lanes_[static_cast<std::size_t>(l)].round = l - Tags::lanes;
    begin_round(l);
  }
}

/// Which elements go to and come from each rank, and in how many rounds.
void Exchange::set_parts(const Call& call) {
  const auto n = static_cast<std::size_t>(size_);
  send_.resize(n), receive_.resize(n);
  std::int64_t sent = 0, received = 0;
  for (std::size_t r = 0; r < n; ++r) {
    const bool is_peer = static_cast<int>(r) == peer_, myself = static_cast<int>(r) == rank_;
    switch (op_) {
      case Op::all_reduce:
      case Op::barrier: send_[r] = receive_[r] = {0, out_.count}; break;
      case Op::all_gather:
      case Op::split:
        send_[r] = {0, in_.count};
        receive_[r] = {received, call.receive[r]};
        break;
      case Op::reduce_scatter:
        send_[r] = {sent, call.receive[r]};
        receive_[r] = {0, out_.count};
        sent += call.receive[r];
        break;
      case Op::all_to_all:
        send_[r] = {sent, call.send[r]};
        receive_[r] = {received, call.receive[r]};
        sent += call.send[r];
        break;
      case Op::broadcast:
        if (rank_ == peer_ && !myself) send_[r] = {0, in_.count};
        if (is_peer && !myself) receive_[r] = {0, out_.count};
        break;
      case Op::send:
        if (is_peer) send_[r] = {0, in_.count};
        break;
      case Op::receive:
        if (is_peer) receive_[r] = {0, out_.count};
        break;
    }
    received += receive_[r].count;
    if (!myself)
      rounds_ = std::max({rounds_, (send_[r].count + chunk_ - 1) / chunk_, (receive_[r].count + chunk_ - 1) / chunk_});
  }
  stride_ = std::min(chunk_, std::max(in_.count, out_.count)) * bytes_;
  if (two_steps_) rounds_ = (out_.count + chunk_ * size_ - 1) / (chunk_ * size_);
}

void Exchange::greet() {
  std::vector<int> to, from;
  const int next = (rank_ + 1) % size_, last = (rank_ + size_ - 1) % size_;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const bool all = op_ == Op::all_to_all, message = op_ == Op::send || op_ == Op::receive;
    if (op_ == Op::send ? r == peer_ : !message && (all || r == next)) to.push_back(r);
    if (op_ == Op::receive ? r == peer_ : !message && (all || r == last)) from.push_back(r);
  }
  told_.assign(to.size(), own_), heard_.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) receive(greeting_, from[i], &heard_[i], sizeof(Signature), tags_.signature());
  for (std::size_t i = 0; i < to.size(); ++i) {
    told_[i].between = send_[static_cast<std::size_t>(to[i])].count;
    send(greeting_, to[i], &told_[i], sizeof(Signature), tags_.signature());
  }
}

void Exchange::finish_greeting() {
  greeted_ = true;
  for (std::size_t i = 0; i < heard_.size(); ++i) {  // receives come first
    const int from = greeting_.peers[i];
    if (agrees(heard_[i], from)) continue;
    refused_ = true;
    const auto between = [&](const char* verb, std::int64_t elements) {
      return op_ == Op::all_to_all && heard_[i].op == op_
                 ? std::string(", which ") + verb + ' ' + std::to_string(elements) + " elements"
                 : "";
    };
    engine_.fail("group '" + group_ + "', call " + std::to_string(own_.sequence) + ": " + who(from) + " makes " +
                 heard_[i].describe() + between("sends", heard_[i].between) + ", but " + who(rank_) + " makes " +
                 own_.describe() + between("expects", receive_[static_cast<std::size_t>(from)].count));
    return;
  }
}

bool Exchange::agrees(const Signature& other, int from) const {
  return other.sequence == own_.sequence && other.hash() == own_.hash() &&
         (op_ != Op::all_to_all || other.between == receive_[static_cast<std::size_t>(from)].count);
}

Exchange::Part Exchange::chunk(Part whole, std::int64_t round) const {
  const std::int64_t begin = std::min(round * chunk_, whole.count), end = std::min(begin + chunk_, whole.count);
  return {whole.begin + begin, end - begin};
}

/// A rank's slice of what a round of two steps covers.
Exchange::Part Exchange::slice(std::int64_t round, int rank) const {
  const std::int64_t base = round * chunk_ * size_, length = std::min(chunk_ * size_, out_.count - base);
  const std::int64_t begin = length * rank / size_, end = length * (rank + 1) / size_;
  return {base + begin, end - begin};
}

void Exchange::begin_round(int l) {
  Lane& lane = lanes_[static_cast<std::size_t>(l)];
  lane.round += Tags::lanes;
  lane.step = lane.round < rounds_ ? Step::parts : Step::idle;
  if (lane.step == Step::idle) {
    if (lane.scratch.data) engine_.give_back(std::move(lane.scratch));
    return;
  }
  if (reduces() && !lane.scratch.data) lane.scratch = engine_.take(static_cast<std::size_t>(stride_ * size_));
  const auto tag = [&](const Part& whole) { return tags_.data(l, false, op_ == Op::all_to_all ? whole.count : 0); };
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || (two_steps_ && op_ == Op::broadcast && r != peer_)) continue;  // which gets all from the root
    const Part& whole = receive_[static_cast<std::size_t>(r)];
    const Part p = two_steps_ ? slice(lane.round, rank_) : chunk(whole, lane.round);
    receive(lane, r, reduces() ? scratch(lane, r) : out(p.begin), p.count * bytes_, tag(whole));
  }
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || (two_steps_ && op_ == Op::broadcast && rank_ != peer_)) continue;
    const Part& whole = send_[static_cast<std::size_t>(r)];
    const Part p = two_steps_ ? slice(lane.round, r) : chunk(whole, lane.round);
    send(lane, r, in(p.begin), p.count * bytes_, tag(whole));
  }
}

void Exchange::end_step(int l) {
  Lane& lane = lanes_[static_cast<std::size_t>(l)];
  if (lane.step == Step::results) return begin_round(l);
  if (reduces()) {
    const auto own = two_steps_ ? slice(lane.round, rank_) : chunk(send_[static_cast<std::size_t>(rank_)], lane.round);
    const auto to = op_ == Op::reduce_scatter ? chunk({0, out_.count}, lane.round) : own;
    add(lane, own.begin, to.begin, own.count);
  }
  if (!two_steps_) return begin_round(l);
  lane.step = Step::results;
  const int tag = tags_.data(l, true);
  const bool is_root = op_ == Op::broadcast && rank_ == peer_;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || is_root) continue;
    const Part p = slice(lane.round, r);
    receive(lane, r, out(p.begin), p.count * bytes_, tag);
  }
  const Part own = slice(lane.round, rank_);
  for (int r = 0; r < size_; ++r)
    if (r != rank_ && !(op_ == Op::broadcast && r == peer_)) send(lane, r, out(own.begin), own.count * bytes_, tag);
}

/// Adds what the ranks gave, in their order.
void Exchange::add(Lane& lane, std::int64_t own_begin, std::int64_t out_begin, std::int64_t count) {
  if (count == 0) return;
  std::vector<const void*> inputs;
  for (int r = 0; r < size_; ++r) inputs.push_back(r == rank_ ? in(own_begin) : scratch(lane, r));
  void* outputs[] = {out(out_begin)};
  reduce(dtype_, reduce_, inputs, outputs, count);
}

void Exchange::send(Lane& lane, int to, const void* data, std::int64_t bytes, int tag) {
  if (bytes == 0) return;
  lane.requests.push_back(MPI_REQUEST_NULL);
  lane.peers.push_back(-1 - to);
  lane.bytes.push_back(bytes);
  check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, communicator_, &lane.requests.back()), "MPI_Isend");
}

void Exchange::receive(Lane& lane, int from, void* data, std::int64_t bytes, int tag) {
  if (bytes == 0) return;
  lane.requests.push_back(MPI_REQUEST_NULL);
  lane.peers.push_back(from);
  lane.bytes.push_back(bytes);
  check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, communicator_, &lane.requests.back()), "MPI_Irecv");
}

/// Whether everything of its step has ended; then the lane is empty.
bool Exchange::test(Lane& lane) {
  // One by one, since only then an error is the communicator's in every MPI.
  for (; lane.ended < lane.requests.size(); ++lane.ended) {
    const std::size_t i = lane.ended;
    int ended = 0, got = 0;
    MPI_Status status;
    check(MPI_Test(&lane.requests[i], &ended, &status), "MPI_Test");
    if (!ended) return false;
    if (lane.peers[i] < 0) continue;
    check(MPI_Get_count(&status, MPI_BYTE, &got), "MPI_Get_count");
    require(got == lane.bytes[i], "receive", "a message of ", got, " bytes from ", who(lane.peers[i]), ", not of ",
            lane.bytes[i]);
  }
  lane.ended = 0;
  lane.requests.clear();
  if (&lane != &greeting_) lane.peers.clear(), lane.bytes.clear();
  return true;
}

bool Exchange::progress() {
  if (done_ || refused_) return false;
  bool moved = false;
  if (!greeted_ && test(greeting_)) {
    finish_greeting();
    moved = true;
    if (refused_) return true;
  }
  bool idle = true;
  try {
    for (int l = 0; l < Tags::lanes; ++l) {
      Lane& lane = lanes_[static_cast<std::size_t>(l)];
      while (lane.step != Step::idle && test(lane)) {
        end_step(l);
        moved = true;
      }
      idle &= lane.step == Step::idle;
    }
  } catch (const std::exception&) {
    // Data that doesn't fit mostly belongs to another call: what the other rank calls says more.
    for (const auto begin = Clock::now(); !greeted_ && Clock::now() - begin < std::chrono::seconds(1);)
      if (test(greeting_)) finish_greeting();
    if (!engine_.failed()) throw;
  }
  done_ = idle && greeted_;
  return moved || done_;
}

std::string Exchange::who(int rank) const {
  const int world = members_[static_cast<std::size_t>(rank)];
  const std::string number = "rank " + std::to_string(rank);
  return world == rank ? number : number + " (" + std::to_string(world) + " of the world)";
}

std::string Exchange::describe() const {
  return own_.describe() + ", call " + std::to_string(own_.sequence) + " of group '" + group_ + "'";
}

std::string Exchange::waits_for() const {
  std::vector<int> late;
  const auto look = [&](const Lane& lane) {
    for (std::size_t i = 0; i < lane.requests.size(); ++i) {
      int arrived = 0;
      if (lane.requests[i] == MPI_REQUEST_NULL) continue;
      if (MPI_Request_get_status(lane.requests[i], &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS || arrived) continue;
      const int peer = lane.peers[i] < 0 ? -1 - lane.peers[i] : lane.peers[i];
      if (std::ranges::find(late, peer) == late.end()) late.push_back(peer);
    }
  };
  if (!greeted_) look(greeting_);
  for (const Lane& lane : lanes_) look(lane);
  std::ranges::sort(late);
  std::string text;
  for (const int r : late) text += (text.empty() ? "" : ", ") + who(r);
  return text.empty() ? "its last messages" : text;
}

void Exchange::release(std::vector<MPI_Request>& requests, std::vector<std::shared_ptr<void>>& memory) {
  const auto take = [&](Lane& lane) {
    for (std::size_t i = 0; i < lane.requests.size(); ++i) {
      if (lane.requests[i] == MPI_REQUEST_NULL) continue;
      if (lane.peers[i] >= 0) MPI_Cancel(&lane.requests[i]);
      requests.push_back(lane.requests[i]);
    }
    lane.requests.clear();
    memory.push_back(std::make_shared<Lane>(std::move(lane)));
  };
  take(greeting_);
  for (Lane& lane : lanes_) take(lane);
  for (auto* signatures : {&told_, &heard_}) memory.push_back(std::make_shared<std::vector<Signature>>(std::move(*signatures)));
}

}  // namespace chorus::mpi
