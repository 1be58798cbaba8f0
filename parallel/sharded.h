// Sharded data parallelism: ranks share out the optimizer state, the gradients and the parameters of every unit. Rajbhandari et
// al. (2020), "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"; Zhao et al. (2023), "PyTorch FSDP".
#pragma once
#include <chorus/core/config.h>
#include <chorus/parallel/data_parallel.h>
#include <chorus/parallel/grad_sums.h>
#include <chorus/parallel/leaves.h>
#include <chorus/parallel/unit_schedule.h>

#include <thread>

namespace chorus {

struct ShardingOptions {
  std::string reshard_after_forward = "auto";
  bool defer_grad_sync = false, overlap = true;
  template <class V>
  void fields(V&& v) {
    v("reshard_after_forward", reshard_after_forward,
      "whether a unit's gathered values are let go of between forward and backward; auto: all but the last unit's",
      one_of("auto", "always", "never"));
    v("defer_grad_sync", defer_grad_sync,
      "gradients are summed in the last microbatch of a step only, and kept whole until then; false: in each");
    v("overlap", overlap, "the next unit is gathered, and gradients are summed, while this one is computed");
  }
};

/// What is shared out: ZeRO-1, ZeRO-2, ZeRO-3.
enum class Sharding : std::uint8_t { none, optimizer, gradients, full };
Sharding sharding_of(const std::string& name);
std::string_view name(Sharding sharding);

/// Which part of a store the ranks of the mesh give this one; nothing for Sharding::none. For `materialize`.
std::optional<StoreShard> store_shard(Sharding sharding, const Mesh& mesh);

/// Each unit's parameters lie in flat buffers that the ranks of dp_shard_cp cut into slices; ranks of dp_replicate have the
/// same slices. Every rank keeps masters and optimizer state of its slices, and
/// - `optimizer`: all values, and all gradients until a step's last microbatch;
/// - `gradients`: all values; gradients of one unit at a time, and the sums of its slices;
/// - `full`: as `gradients`; of values those of the unit that is computed and of the next. An op waits for the values that it
/// reads.
///   The root, what lies in no unit, stays for a whole microbatch; a unit that runs twice stays between its backward passes;
///   where an op's input is made again in backward by the unit before (a norm over a norm), both are there beside the next.
/// An op reads values of one unit and the root at most.
///
/// The order of all gathers and sums is that of a walk through the model with a batch without rows, on every rank: where a
/// rank's samples leave a unit out it takes part all the same. Sums are made in the type that the unit's precision says, and
/// added to slices of their own, in f32 (f64), in order of microbatches.
class ShardedDataParallel final : public DataParallel, private Keeper {
 public:
  /// `store` was materialised with `store_shard`; `group` is dp_shard_cp's. `forward` gives the loss of a batch without rows.
  ShardedDataParallel(ParamStore& store, Sharding sharding, const Mesh& mesh, Group& group, const ShardingOptions& options,
                      const std::function<Tensor()>& forward);
  ~ShardedDataParallel() override;

  void start_step() override;
  void backward(const Tensor& loss, bool last, BackwardOptions options = {}) override;
  void finish_step() override;
  double norm() const override;
  void free_gradients() override;
  void values_changed() override;
  void values_loaded() override;
  void hold_values() override;
  void let_go() override;

  const UnitSchedule& schedule() const { return schedule_; }
  const std::vector<std::string>& units() const { return walked_.paths; }  ///< by their numbers in the schedule

 private:
  enum class Phase : std::uint8_t { idle, forward, backward, held };
  struct BufferState {
    std::vector<std::int64_t> counts;   // elements of each rank's slice
    Tensor landing;                     // where values arrive
    Tensor gradients;                   // [elements], of this rank's samples
    Tensor summing;                     // the same, while it is summed
    Tensor reduced;                     // where the sum arrives, if the slice has one of earlier microbatches or another type
    Tensor replicated;                  // the slice in the type in which replicas sum it
    Pending gather, reduce, replicate;  // after what they write to: an exception ends them before that goes
    bool gathering = false;
    bool final = false;    // whether that is the sum of the step's last microbatch
    bool written = false;  // whether the slice has a sum of this step
  };

  void fetch(Storage& storage) override;
  const std::string& path(int unit) const { return walked_.paths[static_cast<std::size_t>(unit)]; }
  const std::vector<std::size_t>& buffers_of(int unit) const { return buffers_of_[static_cast<std::size_t>(unit)]; }
  bool shards_values() const { return sharding_ == Sharding::full; }
  bool reduces_always() const;
  void start_gather(std::size_t buffer);
  void start_gather_of(int unit);
  void arrive(int unit);
  void release(int unit);
  void start_forward();
  void forward_to(std::size_t end);
  void finish_forward();
  bool kept(int unit) const;
  void start_next_gather();
  void run(const UnitSchedule::Event& event);
  void backward_to(std::size_t end);
  void run_ready();
  void ran(const Node& node);
  Tensor& gradients_of(std::size_t buffer);
  void start_reduce(int unit);
  void start_reduce_buffer(std::size_t buffer);
  void finish_reduces();
  Tensor slice(std::size_t buffer) const;

  ParamStore& store_;
  Context& context_;
  const Sharding sharding_;
  const ShardingOptions options_;
  Group& group_;     // that shares the store out
  Group& replicas_;  // that have the same slices
  Group& model_;
  const std::vector<GradSum> sums_;
  const std::thread::id thread_;

  std::vector<std::vector<std::size_t>> buffers_of_;  // a unit
  std::vector<BufferState> buffers_;
  WalkedUnits walked_;
  UnitSchedule schedule_;

  Phase phase_ = Phase::idle;
  std::size_t next_ = 0;                   // in the schedule's list of the phase
  std::size_t issued_ = 0;                 // entries of it whose gather has begun
  std::vector<bool> there_;                // whether a unit's values are there
  std::vector<std::size_t> last_forward_;  // where a unit comes for the last time in the schedule's forward list
  std::optional<LeafUses> uses_;           // in the running backward pass
  std::vector<std::size_t> reducing_;
  bool last_ = false;
};

}  // namespace chorus
