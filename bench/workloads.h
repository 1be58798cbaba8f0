// The models whose whole training steps are measured, each with one batch of made-up input. bench/peers holds the same models
// in PyTorch; what they must share (sizes, weights, batch) travels in the file that `write_export` writes.
#pragma once
#include <chorus/nn/materialize.h>
#include <chorus/parallel/activation_checkpointing.h>
#include <chorus/parallel/mesh.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace chorus::bench {

struct Workload {
  std::string name, letter;  ///< "decoder", "c"
  ParamStore store;
  std::function<void(Recompute)> checkpoint;           ///< all units
  std::function<Tensor(const Pass&)> loss;             ///< of the batch
  std::function<Tensor()> walk;                        ///< of one without rows; the decoder's only
  double tokens = 0;                                   ///< what tokens_per_s counts
  double flops = 0;                                    ///< of one step, by the rule of flops.h
  std::vector<std::pair<std::string, Tensor>> inputs;  ///< batch (of all parts) and sizes, for the peer
};

/// The whole batch, or the sequences of one of several ranks.
struct Part {
  int rank = 0, ranks = 1;
  std::optional<StoreShard> shard = {};
};

/// "salm-small" (a): the model of configs/demo.toml on ten seconds of noise. "salm-110m" (b): FastConformer of 17 x 512 and a
/// decoder of 12 x 768 on 250 s of noise. "decoder" (c): 135M parameters on `tokens` tokens in sequences of 1,024. Throws for
/// other names. With a bf16 dtype weights have f32 masters, as in the trainer's bf16-mixed.
std::unique_ptr<Workload> make_workload(Context& context, const std::string& name, DType dtype, std::int64_t tokens);

/// Of a part, the loss is its share of the whole batch's, tokens and flops are its own.
std::unique_ptr<Workload> make_decoder(Context& context, DType dtype, std::int64_t tokens, const Part& part = {});
std::unique_ptr<Workload> make_salm_small(Context& context, DType dtype);
std::unique_ptr<Workload> make_salm_110m(Context& context, DType dtype);

/// The loss and the gradients of a step without dropout, which has just been made, with weights, batch and sizes, as HDF5:
/// loss; inputs/NAME, sizes/KEY, weights/PATH and gradients/PATH of every parameter.
void write_export(const Workload& work, const Tensor& loss, const std::string& file);
/// The same of a store that ranks share out: all of them call it, the first one writes.
void write_export(const Workload& work, const Tensor& loss, const std::string& file, const Mesh& mesh);

/// Adds the members of a configuration as scalars (texts as bytes) named prefix + key.
template <class Config>
void add_sizes(Context& context, const std::string& prefix, Config& config, std::vector<std::pair<std::string, Tensor>>& to) {
  config.fields([&]<class T>(const char* key, T& value, auto&&...) {
    if constexpr (std::is_arithmetic_v<T>) {
      to.push_back({prefix + key, Tensor::full(context, {}, DType::f64, static_cast<double>(value))});
    } else if constexpr (std::is_same_v<T, std::string>) {
      const std::vector<std::uint8_t> bytes(value.begin(), value.end());
      to.push_back({prefix + key, Tensor::of(context, {std::ssize(bytes)}, bytes)});
    }
  });
}

}  // namespace chorus::bench
