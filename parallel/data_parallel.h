#pragma once
#include <chorus/nn/materialize.h>

namespace chorus {

/// How the ranks that have different samples come to the same gradients, and what each keeps of the model's state. Per step:
/// `start_step`; for each microbatch forward and `backward`; `finish_step`; then what `ParamStore::gradient` gives is the sum
/// over all ranks. All ranks call the same, in the same order, whatever their samples use of the model.
class DataParallel {
 public:
  DataParallel() = default;
  virtual ~DataParallel() = default;
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// In place of the store's.
  virtual void start_step() = 0;
  /// Adds to the gradients what one microbatch gives. `loss` may be empty or without a graph: a microbatch without rows.
  /// `last`: no other follows in this step.
  virtual void backward(const Tensor& loss, bool last, BackwardOptions options = {}) = 0;
  /// In place of the store's: waits for all sums. Gradients that no rank has are zero.
  virtual void finish_step() = 0;
  /// Euclidean norm of all gradients, each logical element counted once; equal on all ranks, bit for bit.
  virtual double norm() const = 0;
  /// Frees the gradients, without a step.
  virtual void free_gradients() = 0;

  /// What this rank owns of the trainable values has changed, by an optimizer. All ranks call it.
  virtual void values_changed() {}
  /// What it owns of any values has changed.
  virtual void values_loaded() {}
  /// From `hold_values` to `let_go` every rank has all values, for whatever it does with them alone: evaluation.
  virtual void hold_values() {}
  virtual void let_go() {}
};

/// Holds values for its lifetime.
class HeldValues {
 public:
  explicit HeldValues(DataParallel& parallel) : parallel_(parallel) { parallel_.hold_values(); }
  ~HeldValues() { parallel_.let_go(); }
  HeldValues(const HeldValues&) = delete;
  HeldValues& operator=(const HeldValues&) = delete;

 private:
  DataParallel& parallel_;
};

}  // namespace chorus
