// What the tensors of one rank share. There are no globals: every tensor knows its context.
#pragma once
#include <chorus/core/memory.h>
#include <chorus/core/trace.h>
#include <chorus/tensor/device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace chorus {

class Tensor;
namespace kernel {
struct Primitives;
}

class RecomputedPart;

/// One per rank; outlives its tensors. Not thread-safe except for memory and trace: one thread computes.
struct Context {
  explicit Context(MemoryOptions memory_options = {}, Device device = Cpu{}) : device(device), memory(memory_options) {}

  Device device;
  Memory memory;
  Trace trace;
  bool recording = true;  ///< whether ops write autograd nodes
  bool remake = true;     ///< whether backward makes cheap activations again instead of keeping them
  /// Whether backward runs a forward pass once more: what the first counted (statistics, tokens) isn't counted again.
  bool repeating = false;
  bool recompute = true;  ///< whether parts of the graph may be kept as their inputs alone (autograd/recompute.h)
  int kept_whole = 0;     ///< such parts, one in another, that run now without being so kept
  RecomputedPart* recomputed_part = nullptr;  ///< that runs now; see autograd/recompute.h
  std::uint64_t next_node = 0;                ///< numbers nodes in order of creation
  /// Called with the name and the inputs of every op; null: nobody watches.
  const std::function<void(const char*, const std::vector<Tensor>&)>* see_op = nullptr;
  std::shared_ptr<kernel::Primitives> primitives;  ///< matrix products prepared so far; see kernels/onednn.cpp
};

/// The tag of a context that must be on the CPU; elsewhere an error naming the op, which has no kernel there.
Cpu cpu(const Context& context, const char* op);

/// Switches recording off for its lifetime.
class NoGrad {
 public:
  explicit NoGrad(Context& context) : context_(context), before_(context.recording) { context.recording = false; }
  ~NoGrad() { context_.recording = before_; }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  Context& context_;
  bool before_;
};

}  // namespace chorus
