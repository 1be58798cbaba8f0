// What each sharding takes of a rank's memory for parameters, gradients and optimizer state, beside the formulas of ZeRO.
#include <chorus/models/llm/model.h>
#include <chorus/nn/optim/optimizer.h>
#include <chorus/parallel/grad_norm.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/parallel/group/threads.h>
#include <chorus/parallel/make_data_parallel.h>
#include <gtest/gtest.h>

#include <mutex>

namespace chorus::testing {
namespace {

struct StateCase {
  Sharding sharding;
  DType dtype;
  double whole, shared;  ///< bytes per parameter: on every rank, and over all of them
};

void PrintTo(const StateCase& c, std::ostream* out) { *out << name(c.sharding) << ' ' << c.dtype; }

LlmConfig decoder(int layers) {
  LlmConfig config{.vocab_size = 300, .hidden_size = 96, .num_hidden_layers = layers};
  config.num_attention_heads = 6, config.num_key_value_heads = 2, config.intermediate_size = 200;
  return config;
}

Tensor loss_of(const Llm& model, Context& context, const std::vector<std::int32_t>& ids) {
  const Tensor tokens = Tensor::of(context, {std::ssize(ids)}, ids);
  const Rows rows =
      ids.empty() ? make_rows(context, {}, {}) : make_rows(context, std::vector{std::ssize(ids)}, std::vector<std::int64_t>{0});
  return model.loss(model(model.embedding(tokens), rows, {.training = true}), tokens, {});
}

class StateMemory : public ::testing::TestWithParam<StateCase> {};
// f32: 4 value, 4 gradient, 8 AdamW. bf16: 2 value, 4 gradient, 4 master, 8 AdamW.
INSTANTIATE_TEST_SUITE_P(
    Modes, StateMemory,
    ::testing::Values(StateCase{Sharding::none, DType::f32, 16, 0}, StateCase{Sharding::optimizer, DType::f32, 8, 8},
                      StateCase{Sharding::gradients, DType::f32, 4, 12}, StateCase{Sharding::full, DType::f32, 0, 16},
                      StateCase{Sharding::none, DType::bf16, 18, 0}, StateCase{Sharding::optimizer, DType::bf16, 6, 12},
                      StateCase{Sharding::gradients, DType::bf16, 2, 16}, StateCase{Sharding::full, DType::bf16, 0, 18}));

TEST_P(StateMemory, IsWithinTwoPercentOfTheFormula) {
  const auto [sharding, dtype, whole, shared] = GetParam();
  const LlmConfig config = decoder(4);
  for (const int d : {2, 4, 8}) {
    std::mutex mutex;
    double most = 0, count = 0;
    run_ranks(d, {}, [&, sharding = sharding, dtype = dtype](Group& world) {
      Context context;
      const Mesh mesh(world, mesh_shape({}, d));
      Llm model(config);
      ParamStore store = materialize(model, context, {.dtype = dtype, .seed = 1, .shard = store_shard(sharding, mesh)});
      const auto loss = [&](const std::vector<std::int32_t>& ids) { return loss_of(model, context, ids); };
      const auto ranks = make_data_parallel(store, mesh, {.sharding = sharding}, [&] { return loss({}); });
      const Optimizer optimizer({}, store);
      const auto bytes = [&] {
        const auto now = context.memory.stats().current;
        double sum = 0;
        for (const Category c : {Category::parameters, Category::gradients, Category::optimizer})
          sum += static_cast<double>(now[static_cast<std::size_t>(c)]);
        return sum;
      };
      ranks->start_step();
      ranks->backward(loss({1, 2, 3}), false);
      double own = bytes();  // whole gradients are there, where they are kept until the last microbatch
      ranks->backward(loss({4, 5}), true);
      ranks->finish_step();
      if (sharding != Sharding::optimizer) own = bytes();  // no unit's gradients are on their way any more
      const std::lock_guard lock(mutex);
      most = std::max(most, own);
      count = static_cast<double>(store.trainable_count());
    });
    const double formula = count * (whole + shared / d);
    EXPECT_NEAR(most / formula, 1, 0.02) << d << " ranks: " << most << " bytes, " << formula << " by the formula";
  }
}

/// A decoder whose state one rank may not hold: eight that shard it train it, one is refused with the report by category.
TEST(StateMemoryLimit, EightRanksTrainWhatOneIsRefused) {
  const LlmConfig config = decoder(12);
  const auto step = [&](Group& world, Sharding sharding, std::size_t limit) {
    Context context(MemoryOptions{.limit = limit});
    const Mesh mesh(world, mesh_shape({}, world.size()));
    Llm model(config);
    ParamStore store = materialize(model, context, {.dtype = DType::f32, .seed = 1, .shard = store_shard(sharding, mesh)});
    const auto loss = [&](const std::vector<std::int32_t>& ids) { return loss_of(model, context, ids); };
    const auto ranks = make_data_parallel(store, mesh, {.sharding = sharding}, [&] { return loss({}); });
    Optimizer optimizer({}, store);
    for (int i = 0; i < 2; ++i) {
      ranks->start_step();
      ranks->backward(loss({1, 2, 3, 4, 5}), true);
      ranks->finish_step();
      optimizer.step(store, 1e-3, clip_factor(ranks->norm(), 1));
      ranks->values_changed();
    }
    return store.trainable_count();
  };
  SoloGroup alone;
  const auto limit = static_cast<std::size_t>(step(alone, Sharding::none, 0)) * 16 / 2;  // half the state
  run_ranks(8, {}, [&](Group& world) { step(world, Sharding::full, limit); });
  try {
    step(alone, Sharding::none, limit);
    FAIL() << "one rank took twice as much as it may";
  } catch (const Error& error) {
    for (const char* word : {"parameters", "gradients", "optimizer", "activations"})
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace chorus::testing
