#include <chorus/parallel/group/nccl.h>
#include <chorus/parallel/group/nccl/communicator.h>

#include <algorithm>
#include <numeric>

namespace chorus {
namespace nccl {
namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f64: return ncclFloat64;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    case DType::u8: return ncclUint8;
  }
  fail("nccl", "does not take ", dtype);
}
ncclRedOp_t operation_of(Reduce reduce) { return reduce == Reduce::sum ? ncclSum : reduce == Reduce::max ? ncclMax : ncclMin; }
bool on_device(const void* memory) {
  cudaPointerAttributes attributes{};
  if (memory == nullptr || cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    cudaGetLastError();  // older drivers report unknown memory as an error
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

/// A call of the group that host memory goes over.
class HostWork final : public Pending::Work {
 public:
  explicit HostWork(Pending pending) : pending_(std::move(pending)) {}
  void wait() override { pending_.wait(); }
  void leave() noexcept override {}  // the pending call goes with this, and knows why

 private:
  Pending pending_;
};

class DeviceWork final : public Pending::Work {
 public:
  DeviceWork(std::shared_ptr<Communicator> communicator, Op op) : communicator_(std::move(communicator)), op_(op) {
    check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check(cudaEventRecord(done_, communicator_->stream()), "cudaEventRecord");
  }
  ~DeviceWork() override { cudaEventDestroy(done_); }
  void wait() override { communicator_->wait(done_, name(op_).data()); }
  void leave() noexcept override {
    communicator_->abort();
    cudaStreamSynchronize(communicator_->stream());
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  Op op_;
  cudaEvent_t done_ = nullptr;
};

class NcclGroup final : public Group {
 public:
  NcclGroup(std::unique_ptr<Group> host, const Cuda& device, const GroupOptions& options)
      : Group(
            host->name(), host->rank(), host->members(), options,
            std::make_shared<FlightRecorder>(host->members()[static_cast<std::size_t>(host->rank())], options.recorded_calls)),
        host_(std::move(host)) {
    ncclUniqueId id{};
    if (rank() == 0) {
      const ncclResult_t code = ncclGetUniqueId(&id);
      require(code == ncclSuccess, "ncclGetUniqueId", ncclGetErrorString(code));
    }
    host_->broadcast({&id, sizeof(id), DType::u8}, 0);
    communicator_ = std::make_shared<Communicator>(id, rank(), size(), device, options.time_limit);
  }

  void end_all(const std::string& cause) override {
    communicator_->abort();
    host_->end_all(cause);
    if (!options().record_folder.empty()) recorder().write(options().record_folder);
  }

 protected:
  std::unique_ptr<Pending::Work> start(const Call& call) override {
    if (call.op == Op::barrier) {
      check(cudaStreamSynchronize(static_cast<cudaStream_t>(communicator_->device().stream)), "cudaStreamSynchronize");
      host_->barrier();
      return nullptr;
    }
    const void* memory = call.in.count > 0 ? call.in.data : call.out.data;
    if (call.op == Op::split || (memory && !on_device(memory))) return std::make_unique<HostWork>(on_host(call));
    require(communicator_->get() != nullptr, chorus::name(call.op).data(), "group '", name(), "', call ", call.sequence,
            ": the communicator has been aborted");
    communicator_->follow_device();
    const auto started = [&](ncclResult_t result, const char* what) { communicator_->settle(result, what); };
    started(ncclGroupStart(), "ncclGroupStart");
    enqueue(call);
    started(ncclGroupEnd(), "ncclGroupEnd");
    return std::make_unique<DeviceWork>(communicator_, call.op);
  }

  std::unique_ptr<Group> make(const std::string& name, int, const std::vector<int>& members) override {
    // The members split the group under this one too, in the same order.
    auto host = host_->split(members.front(), static_cast<int>(rank_among(members)), name);
    return std::make_unique<NcclGroup>(std::move(host), communicator_->device(), options());
  }

 private:
  std::ptrdiff_t rank_among(const std::vector<int>& members) const {
    return std::find(members.begin(), members.end(), rank()) - members.begin();
  }

  Pending on_host(const Call& call) {
    switch (call.op) {
      case Op::all_reduce: return host_->start_all_reduce(call.out, call.reduce);
      case Op::all_gather:
      case Op::split: return host_->start_all_gather(call.in, call.out, call.receive);
      case Op::reduce_scatter: return host_->start_reduce_scatter(call.in, call.out, call.receive);
      case Op::all_to_all: return host_->start_all_to_all(call.in, call.send, call.out, call.receive);
      case Op::broadcast: return host_->start_broadcast(call.out, call.peer);
      case Op::send: return host_->start_send(call.in, call.peer);
      case Op::receive: return host_->start_receive(call.out, call.peer);
      case Op::barrier: break;
    }
    return {};
  }

  /// Between ncclGroupStart and ncclGroupEnd. Uneven parts are messages between pairs, or one reduction for each part.
  void enqueue(const Call& call) {
    const ncclComm_t comm = communicator_->get();
    const cudaStream_t stream = communicator_->stream();
    const ncclDataType_t type = type_of(call.dtype());
    const std::size_t bytes = size_of(call.dtype());
    const auto* in = static_cast<const char*>(call.in.data);
    auto* out = static_cast<char*>(call.out.data);
    const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    const auto ask = [&](ncclResult_t result, const char* what) {
      require(result == ncclSuccess || result == ncclInProgress, what, ncclGetErrorString(result));
    };
    const auto pairs = [&](auto sent) {  // sent(r): this rank's part for r as {first element, elements}
      std::int64_t at = 0;
      for (int r = 0; r < size(); ++r) {
        const auto [from, elements] = sent(r);
        const std::int64_t expected = call.receive[count(r)];
        const char* source = in + count(from) * bytes;
        char* target = out + count(at) * bytes;
        at += expected;
        if (r == rank()) {
          if (source != target && elements > 0)
            check(cudaMemcpyAsync(target, source, count(elements) * bytes, cudaMemcpyDeviceToDevice, stream),
                  "cudaMemcpyAsync");
          continue;
        }
        if (elements > 0) ask(ncclSend(source, count(elements), type, r, comm, stream), "ncclSend");
        if (expected > 0) ask(ncclRecv(target, count(expected), type, r, comm, stream), "ncclRecv");
      }
    };
    switch (call.op) {
      case Op::all_reduce:
        ask(ncclAllReduce(in, out, count(call.out.count), type, operation_of(call.reduce), comm, stream), "ncclAllReduce");
        break;
      case Op::all_gather: pairs([&](int) { return std::pair(std::int64_t{0}, call.in.count); }); break;
      case Op::all_to_all:
        pairs([&](int r) {
          return std::pair(std::accumulate(call.send.begin(), call.send.begin() + r, std::int64_t{0}), call.send[count(r)]);
        });
        break;
      case Op::reduce_scatter:
        for (int r = 0; r < size(); ++r) {
          const std::int64_t elements = call.receive[count(r)];
          if (elements > 0) ask(ncclReduce(in, out, count(elements), type, ncclSum, r, comm, stream), "ncclReduce");
          in += count(elements) * bytes;
        }
        break;
      case Op::broadcast:
        ask(ncclBroadcast(in, out, count(call.out.count), type, call.peer, comm, stream), "ncclBroadcast");
        break;
      case Op::send: ask(ncclSend(in, count(call.in.count), type, call.peer, comm, stream), "ncclSend"); break;
      case Op::receive: ask(ncclRecv(out, count(call.out.count), type, call.peer, comm, stream), "ncclRecv"); break;
      case Op::barrier:
      case Op::split: break;  // over the host
    }
  }

  std::unique_ptr<Group> host_;
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace
}  // namespace nccl

bool nccl_built() { return true; }

std::unique_ptr<Group> nccl_group(Group& host, const Cuda& device, const GroupOptions& options) {
  return std::make_unique<nccl::NcclGroup>(host.split(0, host.rank(), host.name()), device, options);
}

}  // namespace chorus
