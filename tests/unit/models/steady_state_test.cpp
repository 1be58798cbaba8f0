// Training steps after the first ones take nothing from the system: no memory, no pages, no new products.
#include <chorus/models/llm/model.h>
#include <chorus/nn/optim/optimizer.h>
#include <chorus/parallel/grad_norm.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/tensor/kernels/matmul.h>
#include <chorus/tensor/kernels/onednn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

/// Of the blocks that `new` gave since it was last set to 0.
std::atomic<std::size_t> largest_block = 0;

}  // namespace

void* operator new(std::size_t bytes) {
  if (bytes > largest_block) largest_block = bytes;
  if (void* block = std::malloc(bytes)) return block;
  throw std::bad_alloc();
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }

namespace chorus::testing {
namespace {

/// What the system has been asked for so far.
struct Taken {
  std::size_t regions;      ///< of the pool
  std::int64_t primitives;  ///< products that oneDNN prepared
  long faults;              ///< pages touched for the first time
  std::size_t heap;         ///< bytes behind malloc

  explicit Taken(const Context& context)
      : regions(context.memory.stats().system_allocations), primitives(kernel::matmul_primitives_created(context)) {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    faults = usage.ru_minflt;
    const auto heap_now = mallinfo2();
    heap = heap_now.arena + heap_now.hblkhd;
  }
};

/// A decoder like that of `scripts/bench step c`: head tied to the embedding, three query heads per key, long sequences.
struct SmallDecoder {
  static constexpr std::int64_t tokens = 160;
  Context context{{.pooled = true}};
  Llm model;
  Rows rows;
  Tensor ids, labels;
  ParamStore store;
  Optimizer optimizer;
  SoloGroup group;  // keeps a record of its last calls
  std::uint64_t number = 0;

  explicit SmallDecoder(DType dtype) {
    LlmConfig config{.vocab_size = 16384, .tie_word_embeddings = true};
    config.hidden_size = 96, config.num_hidden_layers = 2, config.num_attention_heads = 6, config.num_key_value_heads = 2;
    config.intermediate_size = 160;
    model = Llm(config);
    store = materialize(model, context, {.dtype = dtype, .seed = 1, .freeze = {}});
    optimizer = Optimizer({}, store);
    rows = make_rows(context, std::vector<std::int64_t>{96, 64}, std::vector<std::int64_t>{0, 1});
    std::vector<std::int32_t> values;
    RandomStream draw(random_key(1, "steady"));
    for (std::int64_t t = 0; t <= tokens; ++t) values.push_back(static_cast<std::int32_t>(draw.below(16384)));
    const std::span<const std::int32_t> all(values);
    ids = Tensor::of(context, {tokens}, all.first(tokens));
    labels = Tensor::of(context, {tokens}, all.subspan(1));
  }

  void step() {
    const Pass pass{.training = true, .seed = 1, .step = number++};
    store.start_step();
    backward(model.loss(model(model.embedding(ids), rows, pass), labels, {.scale = 1.0 / tokens, .label_smoothing = 0}));
    store.finish_step();
    optimizer.step(store, 1e-4, clip_factor(grad_norm(store, group), 1.0));
  }
};

class SteadyState : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, SteadyState, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(SteadyState, StepsTakeNothingFromTheSystem) {
  SmallDecoder decoder(GetParam());
  for (int i = 0; i < 3; ++i) decoder.step();
  const Taken before(decoder.context);
  largest_block = 0;
  constexpr int steps = 8;
  for (int i = 0; i < steps; ++i) decoder.step();
  const Taken after(decoder.context);
  EXPECT_GT(before.regions, 0u);
  EXPECT_EQ(after.regions, before.regions) << "regions that the pool took";
  EXPECT_EQ(after.primitives, before.primitives) << "products that were prepared";
  // A hundredth of what is trained: blocks that grow with the model and come from the system there are this large here.
  EXPECT_LE(largest_block, 4u << 10) << "bytes of the largest block beside the pool";
  if (!kernel::onednn::has_avx512()) return;  // below it oneDNN's products take memory of their own and give it back each time
  EXPECT_EQ(after.heap, before.heap) << "bytes that malloc took";
  EXPECT_LE(after.faults - before.faults, 2 * steps) << "page faults in " << steps << " steps";
}

}  // namespace
}  // namespace chorus::testing
