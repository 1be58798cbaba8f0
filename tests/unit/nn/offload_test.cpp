// Optimizer state in files: the same bits as in memory, and a bounded part of it in memory.
#include <chorus/nn/layers/linear.h>
#include <chorus/nn/optim/optimizer.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "gradients.h"
#include "resident.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::process_bytes;
using testing::resident_bytes_of;

/// Layers of a unit and of none, one of them frozen; a sharded store orders them by unit.
struct Three {
  Linear last{9, 4};
  Linear inner{70, 50};
  Linear frozen{9, 4};
  Linear first{13, 9};
  Unit inner_unit;
  template <class V>
  void fields(V&& v) {
    v("last", last);
    v("inner", inner);
    v("frozen", frozen);
    v("first", first);
    v("inner_unit", inner_unit);
  }
};

struct Offload : ::testing::Test {
  fs::path folder = fs::temp_directory_path() / ("chorus_state." + std::to_string(getpid()));
  Offload() { fs::create_directories(folder); }
  ~Offload() override { fs::remove_all(folder); }
};

std::string bits(const Tensor& tensor) {
  std::string out(tensor.bytes(), '\0');
  if (!out.empty()) std::memcpy(out.data(), tensor.data(), out.size());
  return out;
}

struct OffloadCase {
  OptimizerConfig optimizer;
  DType dtype = DType::f32;
  std::optional<StoreShard> shard = {};
  Precision precision = {};
};

/// What four steps leave: values, masters and state, one after another.
std::string after_steps(const OffloadCase& c, const fs::path& folder, std::int64_t window) {
  Context context;
  Three model;
  ParamStore store = materialize(model, context,
                                 {.dtype = c.dtype,
                                  .seed = 3,
                                  .freeze = {{"frozen"}, {}},
                                  .shard = c.shard,
                                  .precision = c.precision,
                                  .offload_folder = folder});
  Optimizer optimizer(c.optimizer, store, window);
  if (c.shard) store.grads = Tensor::zeros(context, {store.state_size}, wide(c.dtype));
  for (int step = 0; step < 4; ++step) {
    if (!c.shard) testing::fill_gradients(store, 0);
    for (const auto& entry : store.trainable) {
      const Tensor gradient = store.gradient(entry);
      dispatch<float, double>(gradient.dtype(), "test", [&]<class T>() {
        for (std::int64_t i = 0; i < entry.count; ++i)
          gradient.as<T>()[i] = static_cast<T>(std::sin(0.1 * static_cast<double>(entry.first + i) + step) * 0.3);
      });
    }
    optimizer.step(store, 0.01 * (step + 1), 0.7);
  }
  std::string all;
  for (const auto& entry : store.trainable) all += bits(entry.value) + bits(entry.master);
  for (const auto& [kind, state] : optimizer.state()) all += bits(state);
  return all;
}

TEST_F(Offload, ChangesNoBit) {
  const OptimizerConfig adamw{.weight_decay = 0.1, .decay_matrices_only = true},
      sgd{.name = "sgd", .weight_decay = 0.1, .momentum = 0.9, .nesterov = true};
  // All of a store, the middle third of one, and that of one whose values are shared out too.
  const std::optional<StoreShard> shards[] = {{}, StoreShard{1, 3, false}, StoreShard{1, 3, true}};
  // In the last two some parameters have masters and others none.
  const std::pair<DType, Precision> types[] = {{DType::f32, {}},
                                               {DType::bf16, {}},
                                               {DType::f64, {}},
                                               {DType::bf16, {.masters = false}},
                                               {DType::bf16, {.units = {{"inner", DType::f32, std::nullopt, std::nullopt}}}},
                                               {DType::f32, {.units = {{"inner", DType::bf16, std::nullopt, std::nullopt}}}}};
  for (const auto& optimizer : {adamw, sgd}) {
    for (const auto& [dtype, precision] : types) {
      for (const auto& shard : shards) {
        const OffloadCase c{optimizer, dtype, shard, precision};
        const std::string expected = after_steps(c, {}, 1);
        EXPECT_GT(expected.size(), 1000u);
        // Windows end within parameters, between them and behind the last.
        for (const std::int64_t window : {101, 1000, 1024, 1 << 22}) {
          EXPECT_TRUE(after_steps(c, folder, window) == expected)
              << optimizer.name << ' ' << dtype << (shard ? shard->values ? " all shared" : " state shared" : "")
              << ", windows of " << window;
        }
      }
    }
  }
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(Offload, IsCountedOnDiskAndUnderNoLimit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Context context(MemoryOptions{.limit = 200'000});
    Linear layer(100, 100);
    const ParamStore store =
        materialize(layer, context, {.dtype = dtype, .seed = 1, .freeze = {}, .shard = {}, .offload_folder = folder});
    const std::size_t before = context.memory.stats().total;
    {
      const Optimizer optimizer({}, store);
      const auto now = context.memory.stats();
      const auto of = [&](Category category) { return now.current[static_cast<std::size_t>(category)]; };
      // AdamW's two moments, and the masters of bf16; values of f32 are their own masters.
      EXPECT_EQ(of(Category::disk), static_cast<std::size_t>(store.state_size) * (dtype == DType::bf16 ? 12 : 8)) << dtype;
      EXPECT_EQ(of(Category::optimizer), 0u);
      EXPECT_EQ(now.total, before);
      EXPECT_THAT(context.memory.report(), HasSubstr("disk: "));
    }
    EXPECT_EQ(context.memory.stats().current[static_cast<std::size_t>(Category::disk)],
              static_cast<std::size_t>(store.state_size) * (dtype == DType::bf16 ? 4 : 0));
  }
}

TEST_F(Offload, KeepsTwoWindowsInMemoryAtMost) {
  Context context;
  Linear layer(2048, 2048);
  const ParamStore store =
      materialize(layer, context, {.dtype = DType::bf16, .seed = 3, .freeze = {}, .shard = {}, .offload_folder = folder});
  constexpr std::int64_t elements = 1 << 18, arrays = 3, window = elements * arrays * 4;  // bytes
  Optimizer optimizer({}, store, elements);
  testing::fill_gradients(store, 1);
  const auto resident = [&] {
    std::int64_t sum = resident_bytes_of(store.masters.data());
    for (const auto& [kind, state] : optimizer.state()) sum += resident_bytes_of(state.data());
    return sum;
  };
  ASSERT_GE(resident_bytes_of(store.masters.data()), 0);
  EXPECT_EQ(resident(), 0) << "after first values were made";
  ASSERT_TRUE(testing::reset_most_resident());
  const std::int64_t before = process_bytes("VmRSS");
  for (int step = 0; step < 2; ++step) optimizer.step(store, 1e-3);
  EXPECT_LT(process_bytes("VmHWM") - before, 2 * window) << "of " << 3 * store.masters.bytes() << " bytes";
  EXPECT_LT(resident(), window);
  store.masters_to_values();
  EXPECT_LT(resident(), window);
}

TEST_F(Offload, NamesTheFolderThatIsMissing) {
  Context context;
  Linear layer(3, 2);
  try {
    const ParamStore store = materialize(
        layer, context, {.dtype = DType::bf16, .seed = 1, .freeze = {}, .shard = {}, .offload_folder = folder / "no"});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot create " + (folder / "no" / "masters.").string()));
  }
}

}  // namespace
}  // namespace chorus
