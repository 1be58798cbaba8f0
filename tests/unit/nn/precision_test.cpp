// Types of single units, against the same written out with casts.
#include <chorus/nn/layers/feed_forward.h>
#include <chorus/nn/layers/norm.h>
#include <chorus/nn/optim/optimizer.h>
#include <chorus/tensor/ops/pointwise.h>
#include <gmock/gmock.h>

#include <cmath>

#include "gradients.h"

namespace chorus {
namespace {

using ::testing::HasSubstr;

struct Block {
  RmsNorm norm{6};
  SwiGluMlp mlp{6, 10};
  Unit unit;
  Tensor body(const Tensor& x) const { return add(x, mlp(norm(x))); }
  Tensor operator()(const Tensor& x) const {
    return unit(x, [this](const Tensor& t) { return body(t); });
  }
  template <class V>
  void fields(V&& v) {
    v("norm", norm);
    v("mlp", mlp);
    v("unit", unit);
  }
};

struct Stack {
  std::vector<Block> blocks{3};
  Linear out{6, 3};
  template <class V>
  void fields(V&& v) {
    v("blocks", blocks);
    v("out", out);
  }
};

struct Built {
  explicit Built(const MaterializeOptions& options) : store(materialize(stack, context, options)) {}
  /// Rows that are exact in bf16.
  Tensor input(DType dtype) {
    Tensor x = Tensor::empty(context, {5, 6}, dtype);
    dispatch_floating(dtype, "test", [&]<class T>() {
      for (int i = 0; i < 30; ++i) x.as<T>()[i] = static_cast<T>(static_cast<float>(i % 7) - 3);
    });
    return x;
  }
  Context context;
  Stack stack;
  ParamStore store;
};

MaterializeOptions options_of(DType dtype, Precision precision) {
  return {.dtype = dtype, .seed = 7, .precision = std::move(precision)};
}

const Precision wide_middle{.units = {{"blocks.1", DType::f32, std::nullopt, std::nullopt}}};

TEST(PrecisionOfUnits, ValuesAndMastersHaveTheTypesThatWereAskedFor) {
  Built mixed(options_of(DType::bf16, wide_middle)), exact(options_of(DType::f32, {})), narrow(options_of(DType::bf16, {}));
  std::int64_t with_masters = 0;
  for (std::size_t i = 0; i < mixed.store.trainable.size(); ++i) {
    const auto &entry = mixed.store.trainable[i], &in_f32 = exact.store.trainable[i], &in_bf16 = narrow.store.trainable[i];
    const bool middle = entry.path.starts_with("blocks.1.");
    EXPECT_EQ(entry.value.dtype(), middle ? DType::f32 : DType::bf16) << entry.path;
    EXPECT_EQ(entry.master.dtype(), DType::f32) << entry.path;
    EXPECT_EQ(entry.master.data() == entry.value.data(), middle) << entry.path;
    EXPECT_EQ(entry.param->value.dtype(), entry.value.dtype()) << entry.path;
    EXPECT_EQ(entry.master.to_doubles(), in_f32.value.to_doubles()) << entry.path;
    EXPECT_EQ(entry.value.to_doubles(), (middle ? in_f32 : in_bf16).value.to_doubles()) << entry.path;
    EXPECT_EQ(entry.first, in_f32.first) << "state lies as ever";
    if (!middle) with_masters += (entry.count + 63) / 64 * 64;
  }
  // Stacked parts share their alignment, so this is an upper bound.
  EXPECT_LE(mixed.store.masters.numel(), with_masters);
  EXPECT_LT(mixed.store.masters.numel(), narrow.store.masters.numel());
  const StoreSize size = store_size(mixed.stack, {}, DType::bf16, wide_middle);
  EXPECT_EQ(size.trainable.narrow, mixed.store.masters.numel());
  EXPECT_EQ(size.trainable.all, mixed.store.state_size);
}

/// Loss and gradients with the types of units, and the same with casts written out, bit for bit.
void expect_as_written_out(const Precision& precision, DType entered, DType left) {
  Built units(options_of(DType::bf16, precision)), written(options_of(DType::bf16, precision));
  const auto run = [&](Built& built, bool by_hand) {
    built.store.start_step();
    Tensor x = built.input(DType::bf16);
    for (const Block& block : built.stack.blocks) {
      const bool middle = &block == &built.stack.blocks[1];
      if (!by_hand) {
        x = block(x);
        EXPECT_EQ(x.dtype(), middle ? left : DType::bf16);
      } else {
        x = block.body(cast(x, middle ? entered : DType::bf16));
        x = cast(x, middle ? left : DType::bf16);
      }
    }
    const Tensor loss = sum(built.stack.out(cast(x, DType::bf16)));
    backward(loss);
    built.store.finish_step();
    return loss.item();
  };
  EXPECT_EQ(run(units, false), run(written, true));
  for (std::size_t i = 0; i < units.store.trainable.size(); ++i)
    EXPECT_EQ(units.store.gradient(units.store.trainable[i]).to_doubles(),
              written.store.gradient(written.store.trainable[i]).to_doubles())
        << units.store.trainable[i].path;
}

TEST(PrecisionOfUnits, ActivationsAreConvertedAtTheirBorders) {
  expect_as_written_out(wide_middle, DType::f32, DType::bf16);
  expect_as_written_out({.units = {{"blocks.1", DType::f32, std::nullopt, DType::f32}}}, DType::f32, DType::f32);
  expect_as_written_out({.units = {{"blocks.1", std::nullopt, std::nullopt, DType::f32}}}, DType::bf16, DType::f32);
}

TEST(PrecisionOfUnits, TheFirstEntryThatSaysATypeCounts) {
  const Precision precision{.units = {{"blocks.2", std::nullopt, DType::bf16, std::nullopt},
                                      {"blocks.*", DType::f32, std::nullopt, std::nullopt},
                                      {"blocks.2", DType::bf16, DType::f32, std::nullopt},
                                      {"root", std::nullopt, DType::bf16, std::nullopt}}};
  Stack stack;
  const auto types = detail::types_of_units(detail::declare(stack).units, DType::bf16, precision);
  ASSERT_EQ(types.size(), 4u);
  EXPECT_EQ(types.at("blocks.2").values, DType::f32);
  EXPECT_EQ(types.at("blocks.2").reduce, DType::bf16);
  EXPECT_EQ(types.at("blocks.0").reduce, DType::f32);
  EXPECT_EQ(types.at("blocks.0").output, DType::bf16);
  EXPECT_EQ(types.at("").values, DType::bf16);
  EXPECT_EQ(types.at("").reduce, DType::bf16);
}

TEST(PrecisionOfUnits, WithoutEntriesNothingIsConverted) {
  Built plain(options_of(DType::bf16, {}));
  for (const Block& block : plain.stack.blocks) EXPECT_FALSE(block.unit.computes || block.unit.gives);
}

TEST(PrecisionOfUnits, ShardsHoldThePartsOfTheWhole) {
  for (const Precision& precision : {wide_middle, Precision{.masters = false, .units = wide_middle.units}}) {
    Built whole(options_of(DType::bf16, precision));
    for (const bool values : {false, true}) {
      std::map<std::string, std::int64_t> found;
      for (int rank = 0; rank < 3; ++rank) {
        MaterializeOptions options = options_of(DType::bf16, precision);
        options.shard = StoreShard{.rank = rank, .size = 3, .values = values};
        Built part(options);
        for (std::size_t i = 0; i < whole.store.trainable.size(); ++i) {
          const auto &mine = part.store.trainable[i], &all = whole.store.trainable[i];
          EXPECT_EQ(mine.value.dtype(), all.value.dtype()) << mine.path;
          EXPECT_EQ(mine.master.dtype(), all.master.dtype()) << mine.path;
          EXPECT_EQ(mine.value.to_doubles(), all.value.flat_view(mine.offset, {mine.count}).to_doubles()) << mine.path;
          EXPECT_EQ(mine.master.to_doubles(), all.master.flat_view(mine.offset, {mine.count}).to_doubles()) << mine.path;
          found[mine.path] += mine.count;
        }
      }
      for (const auto& entry : whole.store.trainable) EXPECT_EQ(found[entry.path], entry.count) << entry.path;
    }
  }
}

TEST(PrecisionOfUnits, WhatCannotBeIsAnErrorThatSaysSo) {
  const auto error_of = [](DType dtype, std::vector<UnitPrecision> units) -> std::string {
    try {
      Built(options_of(dtype, {.units = std::move(units)}));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of(DType::bf16, {{"blocks.7", DType::f32, std::nullopt, std::nullopt}}),
              HasSubstr("'blocks.7' matches no unit; units are blocks.*"));
  EXPECT_THAT(error_of(DType::bf16, {{"blocks.*", DType::f64, std::nullopt, std::nullopt}}), HasSubstr("f64 stands alone"));
  EXPECT_THAT(error_of(DType::f64, {{"blocks.*", std::nullopt, DType::bf16, std::nullopt}}), HasSubstr("f64 stands alone"));
  EXPECT_THAT(error_of(DType::bf16, {{"root", DType::f32, std::nullopt, std::nullopt}}), HasSubstr("only the type of sums"));
}

/// Each update is made in f32 and rounded to bf16.
TEST(WithoutMasters, UpdatesAreRounded) {
  for (const char* name : {"adamw", "sgd"}) {
    const OptimizerConfig config{.name = name, .weight_decay = 0.1, .momentum = std::string(name) == "sgd" ? 0.9 : 0.0};
    Built narrow(options_of(DType::bf16, {.masters = false})), wide_one(options_of(DType::f32, {}));
    Optimizer optimizer(config, narrow.store), in_f32(config, wide_one.store);
    EXPECT_EQ(narrow.store.masters.data(), narrow.store.values.data());
    // The oracle is an f32 model whose weights are rounded before every step: moments are f32 in both.
    for (const auto& entry : wide_one.store.trainable)
      for (float& w : entry.master.span<float>()) w = static_cast<float>(bf16(w));
    for (int step = 0; step < 4; ++step) {
      for (ParamStore* store : {&narrow.store, &wide_one.store}) {
        testing::fill_gradients(*store, 0);
        for (const auto& entry : store->trainable)
          for (std::int64_t i = 0; i < entry.count; ++i)
            store->gradient(entry).as<float>()[i] =
                static_cast<float>(std::sin(0.1 * static_cast<double>(entry.first + i) + step));
      }
      optimizer.step(narrow.store, 0.01, 0.7);
      in_f32.step(wide_one.store, 0.01, 0.7);
      for (std::size_t i = 0; i < narrow.store.trainable.size(); ++i) {
        const auto& entry = wide_one.store.trainable[i];
        for (float& w : entry.master.span<float>()) w = static_cast<float>(bf16(w));
        EXPECT_EQ(narrow.store.trainable[i].value.to_doubles(), entry.master.to_doubles()) << entry.path << ", step " << step;
      }
    }
  }
}

TEST(WithoutMasters, SmallUpdatesAreLost) {
  Built narrow(options_of(DType::bf16, {.masters = false}));
  Optimizer optimizer({.weight_decay = 0}, narrow.store);
  const auto before = narrow.store.trainable.front().value.to_doubles();  // norm weights: ones
  for (int step = 0; step < 20; ++step) {
    testing::fill_gradients(narrow.store, 1);
    optimizer.step(narrow.store, 1e-5);
  }
  EXPECT_EQ(narrow.store.trainable.front().value.to_doubles(), before);
}

}  // namespace
}  // namespace chorus
