// What each sharding takes of a rank's memory for parameters, gradients and optimizer state, beside the formulas of ZeRO
// (parallel/memory_formulas.h). What is gathered, and gradients that aren't summed yet, are in a category of their own.
#include <chorus/models/llm/model.h>
#include <chorus/nn/optim/optimizer.h>
#include <chorus/parallel/grad_norm.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/parallel/group/threads.h>
#include <chorus/parallel/make_data_parallel.h>
#include <chorus/parallel/memory_formulas.h>
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

double count_of(const ParamStore& store) { return static_cast<double>(store.trainable_count()); }

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
    StateBytes most;
    double count = 0;
    run_ranks(d, {}, [&, sharding = sharding, dtype = dtype](Group& world) {
      Context context;
      const Mesh mesh(world, mesh_shape({}, d));
      Llm model(config);
      ParamStore store = materialize(model, context, {.dtype = dtype, .seed = 1, .shard = store_shard(sharding, mesh)});
      const auto loss = [&](const std::vector<std::int32_t>& ids) { return loss_of(model, context, ids); };
      const auto ranks = make_data_parallel(store, mesh, {.sharding = sharding}, [&] { return loss({}); });
      const Optimizer optimizer({}, store);
      const auto bytes = [&](Category c) {
        return static_cast<double>(context.memory.stats().current[static_cast<std::size_t>(c)]);
      };
      const auto held = [&] {
        return StateBytes{bytes(Category::parameters), bytes(Category::gradients), bytes(Category::optimizer)};
      };
      ranks->start_step();
      ranks->backward(loss({1, 2, 3}), false);
      StateBytes own = held();  // whole gradients are there, where they are kept until the last microbatch
      ranks->backward(loss({4, 5}), true);
      ranks->finish_step();
      if (sharding != Sharding::optimizer) own = held();  // no unit's gradients are on their way any more
      // Between steps nothing that was gathered is left, and of gradients the sums of the rank's slices.
      EXPECT_LE(bytes(Category::communication), sharding == Sharding::optimizer ? 1.02 * count_of(store) * 4 / d : 0);
      const std::lock_guard lock(mutex);
      most.values = std::max(most.values, own.values);
      most.gradients = std::max(most.gradients, own.gradients);
      most.optimizer = std::max(most.optimizer, own.optimizer);
      count = count_of(store);
    });
    const double formula = count * (whole + shared / d);
    EXPECT_NEAR(most.total() / formula, 1, 0.02)
        << d << " ranks: " << most.total() << " bytes, " << formula << " by the formula";
    const StateBytes each = shared_state(whole_state(dtype, 2), sharding, d);
    EXPECT_NEAR(most.values / (count * each.values), 1, 0.02) << d << " ranks";
    EXPECT_NEAR(most.gradients / (count * each.gradients), 1, 0.02) << d << " ranks";
    EXPECT_NEAR(most.optimizer / (count * each.optimizer), 1, 0.02) << d << " ranks";
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
