// Small workloads of training, each between two marks at which callgrind starts and stops counting instructions (count.cpp).
//   instruction_workloads              runs all and prints their names in order
//   instruction_workloads conditions   prints what the numbers depend on besides the project
#include <chorus/io/features.h>
#include <chorus/nn/optim/optimizer.h>
#include <chorus/parallel/grad_norm.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/tensor/kernels/optimizer.h>
#include <chorus/tensor/ops/attention.h>
#include <chorus/tensor/ops/conv.h>
#include <chorus/tensor/ops/ctc.h>
#include <chorus/tensor/ops/dropout.h>
#include <chorus/tensor/ops/linear.h>
#include <chorus/tensor/ops/linear_cross_entropy.h>
#include <chorus/tensor/ops/norm.h>
#include <chorus/tensor/ops/pointwise.h>
#include <chorus/tensor/ops/rope.h>
#include <gnu/libc-version.h>
#include <unit/models/salm_fixture.h>

#include <Eigen/Core>
#include <cstdio>
#include <dnnl.hpp>

#include "gradients.h"

// Found by their names: they must stay functions of their own.
extern "C" {
[[gnu::noinline]] void chorus_counting_begins() { asm volatile(""); }
[[gnu::noinline]] void chorus_counting_ends() { asm volatile(""); }
}

namespace chorus::testing {
namespace {

/// Counts what `work` does once everything it needs is warm.
template <class Work>
void count(const char* name, const Work& work) {
  std::printf("%s\n", name);
  work();
  work();
  chorus_counting_begins();
  work();
  chorus_counting_ends();
}

Tensor random(Context& context, const Shape& shape, DType dtype, const char* stream) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  fill_uniform(random_key(3, stream), 0, values, -1, 1);
  Tensor t = Tensor::empty(context, shape, dtype);
  dispatch<float, bf16>(dtype, "random", [&]<class T>() {
    std::transform(values.begin(), values.end(), t.as<T>(), [](float x) { return static_cast<T>(x); });
  });
  return t;
}

/// An op forward and backward, all inputs being leaves.
template <class Op>
void count_op(const char* name, const std::vector<Shape>& shapes, DType dtype, const Op& op) {
  Context context;
  std::vector<Tensor> x;
  for (const Shape& shape : shapes) {
    x.push_back(random(context, shape, dtype, name));
    make_leaf(x.back(), Tensor::zeros(context, shape, wide(dtype)));
  }
  const std::vector<std::int64_t> lengths{170, 22, 128}, ids{5, 6, 7};
  const Rows rows = make_rows(context, lengths, ids);
  count(name, [&] { backward(op(x, rows)); });
}

void count_ops(DType t, const std::string& suffix) {
  constexpr std::int64_t n = 320;  // rows of count_op
  const auto called = [&](const char* name) { return name + suffix; };
  const AttentionOptions heads{.heads = 4, .kv_heads = 2, .head_dim = 32, .causal = true, .dropout = 0.1, .key = {1}};
  AttentionOptions relative = heads;
  relative.kv_heads = 4, relative.causal = false;
  count_op(called("attention").c_str(), {{n, 256}}, t,
           [&](const auto& x, const Rows& rows) { return attention(x[0], rows, heads); });
  count_op(called("relative_attention").c_str(), {{n, 384}, {128}, {128}, {2 * 170 - 1, 128}}, t,
           [&](const auto& x, const Rows& rows) { return relative_attention(x[0], x[1], x[2], x[3], rows, relative); });
  count_op(called("norms").c_str(), {{n, 256}, {256}, {256}}, t,
           [](const auto& x, const Rows&) { return rms_norm(layer_norm(x[0], x[1], x[2], 1e-5), x[1], 1e-5); });
  count_op(called("pointwise").c_str(), {{n, 512}, {n, 256}}, t,
           [](const auto& x, const Rows&) { return add_scaled(silu(swiglu(x[0])), mul(glu(x[0]), x[1]), 0.5); });
  count_op(called("dropout").c_str(), {{n, 256}}, t,
           [](const auto& x, const Rows& rows) { return dropout(x[0], rows, 0.1, {1}); });
  count_op(called("rope").c_str(), {{n, 256}}, t, [](const auto& x, const Rows& rows) { return rope(x[0], rows, 6, 32, 1e4); });
  count_op(called("depthwise_conv1d").c_str(), {{n, 128}, {9, 128}, {128}}, t,
           [](const auto& x, const Rows& rows) { return depthwise_conv1d(x[0], rows, x[1], x[2], 4); });
  count_op(called("subsampling").c_str(), {{n, 40}, {16, 9}, {16}, {9, 16}, {16}}, t, [](const auto& x, const Rows& rows) {
    const auto halved = [](const Rows& all) {
      std::vector<std::int64_t> lengths;
      for (std::int64_t s = 0; s < all.sequences(); ++s) lengths.push_back(conv_length(all.length(s), 3, 2, 1));
      return with_lengths(all, lengths);
    };
    const Rows half = halved(rows), quarter = halved(half);
    return depthwise_conv2d_subsample(relu(conv2d_subsample(x[0], rows, half, x[1], x[2], 40)), half, quarter, x[3], x[4], 20);
  });
  count_op(called("linear").c_str(), {{n, 192}, {256, 192}, {256}}, t,
           [](const auto& x, const Rows&) { return linear(x[0], x[1], x[2]); });
  count_op(called("linear_cross_entropy").c_str(), {{n, 64}, {512, 64}}, t, [](const auto& x, const Rows& rows) {
    std::vector<std::int32_t> labels;
    for (std::int32_t i = 0; i < n; ++i) labels.push_back(i % 7 == 3 ? ignored_label : i);
    return linear_cross_entropy(x[0], x[1], Tensor::of(rows.ids.context(), {n}, labels), {1.0 / n, 0.1});
  });
  count_op(called("ctc_loss").c_str(), {{n, 48}}, t, [](const auto& x, const Rows& rows) {
    std::vector<std::int32_t> labels, offsets{0};
    for (const int many : {60, 8, 40}) {
      for (std::int32_t i = 0; i < many; ++i) labels.push_back(i % 46);
      offsets.push_back(static_cast<std::int32_t>(labels.size()));
    }
    Context& context = rows.ids.context();
    return ctc_loss(x[0], rows, Tensor::of(context, {std::ssize(labels)}, labels),
                    Tensor::of(context, {std::ssize(offsets)}, offsets), 0.01);
  });
}

struct Flat {
  Param weight{{512, 256}, Init::gaussian(1)};
  template <class V>
  void fields(V&& v) {
    v("weight", weight);
  }
};

void count_optimizer(const char* name, const OptimizerConfig& config, DType dtype) {
  Context context;
  Flat flat;
  ParamStore store = materialize(flat, context, {.dtype = dtype, .seed = 1, .freeze = {}});
  testing::fill_gradients(store, 0.5);
  Optimizer optimizer(config, store);
  SoloGroup group;
  count(name, [&] { optimizer.step(store, 1e-3, clip_factor(grad_norm(store, group), 1.0)); });
}

/// A whole training step of a speech-LLM in two microbatches.
void count_step(const char* name, const std::string& form, DType dtype) {
  SalmConfig config = small_config(form);
  config.encoder.d_model = 48, config.encoder.conv_kernel_size = 9;
  config.llm.hidden_size = 40, config.llm.head_dim = 8, config.llm.intermediate_size = 96;
  Context context;
  Salm model(config, vocabulary + 1);
  ParamStore store = materialize(model, context, {.dtype = dtype, .seed = 5, .freeze = {}});
  Optimizer optimizer({}, store);
  SoloGroup group;
  const auto samples = some_samples();
  const SalmLossOptions options = loss_options(counts_of(samples, config.encoder.subsampling_factor));
  const std::vector<Sample> first(samples.begin(), samples.begin() + 2), second(samples.begin() + 2, samples.end());
  const SalmBatch batches[] = {batch_of(context, first, config.encoder.features, dtype),
                               batch_of(context, second, config.encoder.features, dtype)};
  count(name, [&] {
    store.start_step();
    for (const SalmBatch& batch : batches) backward(model.loss(batch, options, {.training = true, .seed = 1, .step = 1}).total);
    store.finish_step();
    optimizer.step(store, 1e-6, clip_factor(grad_norm(store, group), 1.0));
  });
}

void count_frontend() {
  std::vector<float> sound(16000);
  fill_normal(random_key(1, "sound"), 0, std::span<float>(sound), 0.0, 0.1);
  const Frontend frontend{FeatureConfig{}};
  count("frontend", [&] {
    std::vector<float> dithered = sound;
    add_dither(dithered, 1e-5, 1, 0, 7);
    frontend(std::span<const float>(dithered));
  });
}

void run() {
  count_ops(DType::f32, "_f32");
  count_ops(DType::bf16, "_bf16");
  count_optimizer("adamw_f32", {}, DType::f32);
  count_optimizer("adamw_bf16", {}, DType::bf16);
  count_frontend();
  count_step("small_step_f32", "small", DType::f32);
  count_step("nemo_step_bf16", "nemo", DType::bf16);
}

/// AVX2 decides which of its routines glibc takes, under valgrind too.
void print_conditions() {
  const dnnl_version_t& onednn = *dnnl::version();
  std::printf("g++ %s, glibc %s, oneDNN %d.%d.%d, Eigen %d.%d.%d, %s\n", __VERSION__, gnu_get_libc_version(), onednn.major,
              onednn.minor, onednn.patch, EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION,
              __builtin_cpu_supports("avx2") ? "AVX2" : "no AVX2");
}

}  // namespace
}  // namespace chorus::testing

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "conditions") return chorus::testing::print_conditions(), 0;
  chorus::testing::run();
}
