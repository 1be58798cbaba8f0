// Parts of the graph that backward computes again: the same bits, and nothing kept but what must be.
#include <chorus/core/rng.h>
#include <chorus/tensor/autograd/activation_file.h>
#include <chorus/tensor/autograd/recompute.h>
#include <chorus/tensor/ops/attention.h>
#include <chorus/tensor/ops/dropout.h>
#include <chorus/tensor/ops/linear.h>
#include <chorus/tensor/ops/norm.h>
#include <chorus/tensor/ops/pointwise.h>
#include <gmock/gmock.h>

#include <cmath>

namespace chorus {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t part_rows = 37, part_width = 24;  // three heads of eight

RecomputeOptions named(std::vector<std::string> kept_ops = {}, std::shared_ptr<ActivationFile> file = nullptr) {
  return {.name = "layers.3.unit", .kept_ops = std::move(kept_ops), .file = std::move(file)};
}

/// Leaves of a small pre-norm block, which runs in two parts (or none) between a norm and a product.
struct PartRun {
  Context context;
  std::vector<Tensor> leaves;
  Rows rows = make_rows(context, std::vector<std::int64_t>{20, 17}, std::vector<std::int64_t>{4, 5});

  PartRun() { context.trace.sum(true); }
  Tensor leaf(const Shape& shape, double phase) {
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(phase + 0.7 * static_cast<double>(i)) / 2;
    Tensor x = Tensor::of(context, shape, values);
    make_leaf(x, Tensor::zeros(context, shape, DType::f64));
    leaves.push_back(x);
    return x;
  }
  std::vector<std::vector<double>> gradients() const {
    std::vector<std::vector<double>> all;
    for (const auto& x : leaves) all.push_back(x.node()->sink.grad.to_doubles());
    return all;
  }
  std::int64_t calls(const std::string& op) const {
    const auto totals = context.trace.totals();
    return totals.contains(op) ? totals.at(op).count : 0;
  }
  std::size_t in_use() const { return context.memory.stats().total; }

  /// `options` null: without parts. Norms and gates before products, dropout, a norm as input of a part and as its output.
  Tensor forward(const RecomputeOptions* options) {
    const std::int64_t n = part_width;
    const Tensor x = leaf({part_rows, n}, 0), scale = leaf({n}, 1), qkv = leaf({3 * n, n}, 2), out = leaf({n, n}, 3),
                 gate_up = leaf({2 * n, n}, 4), down = leaf({n, n}, 5), last = leaf({n, n}, 6);
    const auto body = [=, rows = rows](Tensor h) {
      const AttentionOptions heads{
          .heads = 3, .kv_heads = 3, .head_dim = 8, .causal = true, .dropout = 0.2, .key = random_key(1, "a")};
      h = add(h, linear(attention(linear(rms_norm(h, scale, 1e-6), qkv), rows, heads), out));
      h = add(h, dropout(linear(swiglu(linear(rms_norm(h, scale, 1e-6), gate_up)), down), rows, 0.25, random_key(2, "d")));
      return rms_norm(h, scale, 1e-6);
    };
    Tensor y = rms_norm(x, scale, 1e-6);
    for (int i = 0; i < 2; ++i) y = options ? recomputed(*options, body, y) : body(y);
    return linear(y, last);
  }
  void walk(const Tensor& y, bool deferred = false) {
    DeferredGrads later;
    backward(sum(mul(y, y)), {.cotangent = {}, .deferred = deferred ? &later : nullptr});
    later.run();
  }
};

std::vector<std::vector<double>> gradients_of(const RecomputeOptions* options, bool deferred) {
  PartRun run;
  run.walk(run.forward(options), deferred);
  return run.gradients();
}

TEST(RecomputedParts, GiveTheBitsOfWhatWasKept) {
  const auto file = std::make_shared<ActivationFile>(std::filesystem::temp_directory_path());
  for (const bool deferred : {false, true}) {
    const auto expected = gradients_of(nullptr, deferred);
    for (const auto& options : {named(), named({"attention"}), named({}, file), named({"attention"}, file)})
      EXPECT_EQ(expected, gradients_of(&options, deferred)) << deferred << options.kept_ops.size();
    EXPECT_EQ(file->waiting(), 0u);
  }
}

TEST(RecomputedParts, KeepTheirInputsOnly) {
  const RecomputeOptions full = named(), selective = named({"attention"});
  const auto held = [](const RecomputeOptions* options) {
    PartRun run;
    const Tensor before = run.forward(nullptr);  // so that leaves are counted on both sides, and rows' tables are there
    run.leaves.clear();
    const std::size_t at = run.in_use();
    const Tensor y = run.forward(options);
    std::size_t leaves = 0;
    for (const auto& x : run.leaves) leaves += 2 * x.capacity();
    return run.in_use() - at - leaves - y.capacity();
  };
  // The first norm's input is a leaf, which is there anyway; its statistics are a number a row. The last product keeps only the
  // way to make the second part's result again.
  const std::size_t rows = static_cast<std::size_t>(padded_rows(part_rows)), x = rows * part_width * 8, slack = 1024;
  EXPECT_GE(held(&full), 2 * x);
  EXPECT_LE(held(&full), 2 * x + slack);
  const std::size_t results = x + static_cast<std::size_t>(padded_rows(3) * part_rows) * 8;
  EXPECT_GE(held(&selective), 2 * (x + results));
  EXPECT_LE(held(&selective), 2 * (x + results) + slack);
  EXPECT_GT(held(nullptr), 14 * x);
}

TEST(RecomputedParts, ComputeKeptResultsOnce) {
  for (const auto& [options, times] : {std::pair(named(), 2), std::pair(named({"attention"}), 1)}) {
    PartRun run;
    run.walk(run.forward(&options));
    EXPECT_EQ(run.calls("attention"), 2 * (times + 1)) << "and backward's";
    EXPECT_EQ(run.calls("recompute"), 2);
    EXPECT_EQ(run.calls("swiglu"), 2 * 4) << "forward, again, for the product's saved input, backward";
  }
}

/// One leaf through a body in a part; what is thrown, by either run.
std::string thrown_by(const std::function<Tensor(Tensor, Context&)>& body) {
  PartRun run;
  const Tensor x = run.leaf({part_rows, part_width}, 0);
  try {
    backward(recomputed(
        named(), [&](const Tensor& h) { return body(h, run.context); }, x));
  } catch (const Error& error) {
    EXPECT_TRUE(run.context.recording && !run.context.repeating && !run.context.recomputed_part);
    return error.what();
  }
  return "";
}

TEST(RecomputedParts, ThatRecordOtherOpsAreErrorsWithBothOps) {
  EXPECT_THAT(thrown_by([](Tensor h, Context& context) { return context.repeating ? silu(h) : scale(h, 2); }),
              HasSubstr("layers.3.unit recorded silu as op 1 when it was repeated; the first run recorded scale"));
  EXPECT_THAT(thrown_by([](Tensor h, Context& context) { return context.repeating ? scale(scale(h, 2), 2) : scale(h, 2); }),
              HasSubstr("recorded scale as op 2 when it was repeated; the first run recorded no more"));
  EXPECT_THAT(thrown_by([](Tensor h, Context& context) { return context.repeating ? silu(h) : scale(silu(h), 2); }),
              HasSubstr("recorded 2 ops when it was repeated, but 3 in the first run, then scale"));
  EXPECT_THAT(thrown_by([](Tensor h, Context& context) {
                const Tensor half = h.reshaped({part_rows * 2, part_width / 2});
                return context.repeating ? silu(half) : silu(h);
              }),
              HasSubstr("when it was repeated, (37, 24) in the first run"));
  EXPECT_EQ(thrown_by([](Tensor h, Context&) { return silu(h); }), "");
}

TEST(RecomputedParts, TellTheBodyThatItRepeats) {
  PartRun run;
  const Tensor x = run.leaf({part_rows, part_width}, 0);
  std::vector<bool> repeating;
  const Tensor y = recomputed(
      named(),
      [&](const Tensor& h) {
        repeating.push_back(h.context().repeating);
        return silu(h);
      },
      x);
  EXPECT_EQ(repeating, std::vector<bool>{false});
  backward(y);
  EXPECT_EQ(repeating, (std::vector<bool>{false, true}));
  EXPECT_TRUE(run.context.recording && !run.context.repeating && !run.context.recomputed_part);
}

TEST(RecomputedParts, InsideOthersAreTheirs) {
  PartRun run, plain;
  const Tensor x = run.leaf({part_rows, part_width}, 0), other = plain.leaf({part_rows, part_width}, 0);
  int outer = 0, inner = 0;
  const auto two = [&](const Tensor& h) {
    return ++inner, silu(rms_norm(silu(h), run.leaves[0].flat_view(0, {part_width}), 1e-6));
  };
  const auto one = [&](const Tensor& h) { return ++outer, silu(recomputed(named(), two, silu(h))); };
  backward(recomputed(named(), one, x));
  EXPECT_EQ(outer, 2);
  EXPECT_EQ(inner, 2);
  backward(one(other));
  EXPECT_EQ(run.gradients(), plain.gradients());
}

TEST(RecomputedParts, RunOnceWhereNothingIsRecorded) {
  PartRun run;
  const Tensor x = run.leaf({part_rows, part_width}, 0);
  int calls = 0;
  const auto body = [&](const Tensor& h) { return ++calls, silu(h); };
  const std::size_t before = run.in_use();
  {
    const NoGrad quiet(run.context);
    const Tensor y = recomputed(named(), body, x);
    EXPECT_FALSE(y.requires_grad());
    EXPECT_EQ(run.in_use(), before + y.capacity());
  }
  const Tensor y = recomputed(named(), body, x.detach());  // recording, but nobody wants a gradient
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(run.in_use(), before + y.capacity());
  EXPECT_EQ(calls, 2);
}

TEST(RecomputedParts, WithoutGradientOfTheInputTrainTheirLeaves) {
  PartRun parted, whole;
  for (PartRun* run : {&parted, &whole}) {
    const Tensor features = run->leaf({part_rows, part_width}, 0).detach(), weight = run->leaf({part_width, part_width}, 1);
    const auto body = [=](const Tensor& h) { return silu(linear(silu(linear(h, weight)), weight)); };
    backward(run == &parted ? recomputed(named(), body, features) : body(features));
  }
  EXPECT_EQ(parted.gradients(), whole.gradients());
}

TEST(RecomputedParts, LeaveTheContextAsItWasWhenTheFirstRunThrows) {
  EXPECT_THAT(thrown_by([](const Tensor& h, Context&) {
                return linear(h, h.reshaped({part_width, part_rows}));
              }),
              HasSubstr("linear"));
}

TEST(RecomputedParts, MayHaveResultsThatNobodyUses) {
  PartRun run;
  const Tensor x = run.leaf({part_rows, part_width}, 0);
  backward(recomputed(
      named(), [](const Tensor& h) { return silu(h), silu(scale(h, 2)); }, x));
  PartRun plain;
  backward(silu(scale(plain.leaf({part_rows, part_width}, 0), 2)));
  EXPECT_EQ(run.gradients(), plain.gradients());
}

}  // namespace
}  // namespace chorus
