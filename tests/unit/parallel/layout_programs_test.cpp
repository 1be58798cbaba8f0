// Random programs over two uneven axes equal one rank's, and what the rules don't allow is refused. The rules are written down
// once more here, as the table of rows that they are.
#include <chorus/core/rng.h>
#include <chorus/parallel/group/threads.h>
#include <chorus/parallel/redistribute.h>
#include <chorus/tensor/ops/linear.h>
#include <chorus/tensor/ops/norm.h>
#include <chorus/tensor/ops/pointwise.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace chorus {
namespace {

using placement::copy;
using placement::dual;
using placement::same;
using placement::shard;

/// One row of the table: how the inputs and the result lie along one axis.
struct Row {
  std::vector<Placement> inputs;
  Placement result;
};
struct Operation {
  const char* name;
  std::vector<Row> rows;
  std::function<Tensor(const std::vector<Tensor>&)> run;
};

const Placement everything[] = {same, copy, placement::sum, shard(0), shard(1)};

std::vector<Row> unary_rows() { return {{{same}, same}, {{copy}, copy}, {{shard(0)}, shard(0)}, {{shard(1)}, shard(1)}}; }

std::vector<Operation> operations() {
  auto unary = unary_rows(), linear_unary = unary_rows();
  linear_unary.push_back({{placement::sum}, placement::sum});
  std::vector<Row> addition, products;
  for (const Placement p : everything) addition.push_back({{p, p}, p});
  for (const Placement p : {same, copy, shard(0), shard(1)}) products.push_back({{p, p}, p});
  products.push_back({{placement::sum, copy}, placement::sum});
  products.push_back({{copy, placement::sum}, placement::sum});
  return {
      {"silu", unary, [](const auto& x) { return silu(x[0]); }},
      {"scale", linear_unary, [](const auto& x) { return scale(x[0], 0.7); }},
      {"add", addition, [](const auto& x) { return add(x[0], x[1]); }},
      {"mul", products, [](const auto& x) { return mul(x[0], x[1]); }},
      {"add_row",
       {{{same, same}, same},
        {{copy, copy}, copy},
        {{shard(0), copy}, shard(0)},
        {{shard(1), shard(0)}, shard(1)},
        {{placement::sum, placement::sum}, placement::sum}},
       [](const auto& x) { return add_row(x[0], x[1]); }},
      {"rms_norm",
       {{{same, same}, same}, {{copy, copy}, copy}, {{shard(0), copy}, shard(0)}},
       [](const auto& x) { return rms_norm(x[0], x[1], 1e-3); }},
      {"softmax", {{{same}, same}, {{copy}, copy}, {{shard(0)}, shard(0)}}, [](const auto& x) { return softmax(x[0]); }},
      {"linear",
       {{{same, same}, same},
        {{copy, copy}, copy},
        {{shard(0), copy}, shard(0)},
        {{copy, shard(0)}, shard(1)},
        {{shard(1), shard(1)}, placement::sum},
        {{placement::sum, copy}, placement::sum},
        {{copy, placement::sum}, placement::sum}},
       [](const auto& x) { return linear(x[0], x[1]); }},
  };
}

/// The result's placement, or nothing.
const Placement* allowed(const Operation& op, const std::vector<Placement>& inputs) {
  for (const auto& row : op.rows)
    if (row.inputs == inputs) return &row.result;
  return nullptr;
}

/// The two axes: 2 and 3 ranks, and sizes that neither divides.
constexpr int outer_ranks = 2, inner_ranks = 3;
constexpr std::int64_t rows_of_all = 7, features = 5;

struct Pair {
  const Axis *outer, *inner;
};

/// A value of one rank and of the whole; `same` and `copy` on the solo side of things mean nothing.
struct Twin {
  Tensor part, whole;
  bool matrix = true;  ///< [rows, features]; otherwise a weight [features, features] or a row [features]
};

Placement lies(const Tensor& t, const Axis& axis) {
  for (const auto& at : *t.layout())
    if (at.axis == axis.name) return at.placement;
  ADD_FAILURE() << axis.name;
  return same;
}

/// `whole` as both axes want it, outer first: a leaf of this rank.
Tensor part_of_leaf(const Tensor& whole, const Pair& axes, Placement outer, Placement inner) {
  Tensor part = whole;
  Layout layout;
  for (const auto& [axis, p] : {std::pair{axes.outer, outer}, {axes.inner, inner}}) {
    const std::int64_t size = p.kind == Placement::shard_kind ? part.size(p.dim) : 0;
    part = moved(part, *axis, copy, p);
    layout.push_back({axis->name, p, size, 1});
  }
  part = part.clone();
  part.set_layout(std::make_shared<const Layout>(layout));
  return part;
}

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : stream_(random_key(seed, "programs")) {}
  int below(int n) { return static_cast<int>(stream_.below(static_cast<std::uint64_t>(n))); }
  Tensor matrix(Context& context, const Shape& shape) {
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    for (auto& v : values) v = stream_.normal();
    return Tensor::of(context, shape, values);
  }
  Placement placement(int dims) { return everything[below(3 + dims)]; }

 private:
  RandomStream stream_;
};

/// What a value's gradient lies as has to be brought to `copy` before it can be compared.
Tensor everywhere(Tensor t, const Pair& axes, const Layout& layout, bool gradient) {
  for (const Axis* axis : {axes.inner, axes.outer})
    for (const auto& at : layout)
      if (at.axis == axis->name) t = moved(t, *axis, gradient ? dual(at.placement) : at.placement, copy, at.whole);
  return t;
}

double worst_difference(const Tensor& a, const Tensor& b) {
  const auto x = a.to_doubles(), y = b.to_doubles();
  double worst = 0, scale = 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, std::abs(x[i] - y[i]));
    scale = std::max(scale, std::abs(y[i]));
  }
  return x.size() == y.size() ? worst / scale : INFINITY;
}

struct Tally {
  int programs = 0, refused = 0, allowed = 0, wrong_verdicts = 0, wrong = 0;
  double worst = 0;
};

/// A graph of up to eight ops on matrices that lie as dice say; ops whose inputs no row allows must throw.
void run_program(std::uint64_t seed, Context& context, const Pair& axes, const std::vector<Operation>& ops, Tally& tally) {
  Dice dice(seed);
  std::vector<Twin> leaves, values;
  const auto leaf = [&](const Shape& shape, Placement outer, Placement inner) {
    Twin t{{}, dice.matrix(context, shape), false};
    t.part = part_of_leaf(t.whole, axes, outer, inner);
    make_leaf(t.whole);
    make_leaf(t.part);
    leaves.push_back(t);
    return t;
  };
  for (int i = 0; i < 2; ++i) {
    values.push_back(leaf({rows_of_all, features}, dice.placement(2), dice.placement(2)));
    values.back().matrix = true;
  }
  for (int step = 0; step < 8; ++step) {
    Twin& x = values[static_cast<std::size_t>(dice.below(static_cast<int>(values.size())))];
    if (dice.below(2) == 0) {  // another placement along one axis
      const Axis& axis = dice.below(2) ? *axes.outer : *axes.inner;
      const Placement to = dice.placement(2);
      const Placement other = lies(x.part, *axes.inner), from = lies(x.part, axis);
      const bool inner_divides =
          &axis == axes.outer && other.kind == Placement::shard_kind && (other == to || other == from) && to != from;
      bool threw = false;
      Tensor y;
      try {
        y = redistribute(x.part, axis, to);
      } catch (const Error&) {
        threw = true;
      }
      tally.wrong_verdicts += threw != inner_divides;
      if (!threw) values.push_back({y, x.whole, true});
      continue;
    }
    const Operation& op = ops[static_cast<std::size_t>(dice.below(static_cast<int>(ops.size())))];
    std::vector<Twin> inputs{x};
    const std::size_t arity = op.rows.front().inputs.size();
    const bool vector = std::string_view(op.name) == "add_row" || std::string_view(op.name) == "rms_norm";
    const bool weight = std::string_view(op.name) == "linear";
    if (arity == 2 && !vector && !weight)
      inputs.push_back(values[static_cast<std::size_t>(dice.below(static_cast<int>(values.size())))]);
    if (vector) inputs.push_back(leaf({features}, dice.placement(1), dice.placement(1)));
    if (weight) inputs.push_back(leaf({features, features}, dice.placement(2), dice.placement(2)));
    // Half of the time the second input is made to fit, so that programs get somewhere.
    if (arity == 2 && dice.below(2)) {
      std::vector<Placement> fitting[2];
      const Axis* both[] = {axes.outer, axes.inner};
      for (int a = 0; a < 2; ++a)
        for (const auto& row : op.rows)
          if (row.inputs[0] == lies(x.part, *both[a])) fitting[a].push_back(row.inputs[1]);
      if (!fitting[0].empty() && !fitting[1].empty() && (vector || weight)) {
        const Placement o = fitting[0][static_cast<std::size_t>(dice.below(static_cast<int>(fitting[0].size())))];
        const Placement i = fitting[1][static_cast<std::size_t>(dice.below(static_cast<int>(fitting[1].size())))];
        leaves.pop_back();
        inputs[1] = leaf(inputs[1].whole.shape(), o, i);
      }
    }
    bool legal = true;
    for (const Axis* axis : {axes.outer, axes.inner}) {
      std::vector<Placement> along;
      for (const auto& t : inputs) along.push_back(lies(t.part, *axis));
      legal = legal && allowed(op, along);
    }
    std::vector<Tensor> parts, wholes;
    for (const auto& t : inputs) parts.push_back(t.part), wholes.push_back(t.whole);
    bool threw = false;
    Tensor y;
    try {
      y = op.run(parts);
    } catch (const Error&) {
      threw = true;
    }
    // Operands of other sizes (one is sharded, one isn't) are refused before their layouts are looked at.
    tally.wrong_verdicts += threw == legal;
    ++(legal ? tally.allowed : tally.refused);
    if (threw || !legal) continue;
    for (const Axis* axis : {axes.outer, axes.inner}) {
      std::vector<Placement> along;
      for (const auto& t : inputs) along.push_back(lies(t.part, *axis));
      tally.wrong_verdicts += lies(y, *axis) != *allowed(op, along);
    }
    values.push_back({y, op.run(wholes), true});
  }
  // L = sum over all values of <c, y>, each cotangent lying as its value's gradient does.
  for (const auto& t : values) {
    if (!t.part.requires_grad()) continue;
    tally.worst = std::max(tally.worst, worst_difference(everywhere(t.part.detach(), axes, *t.part.layout(), false), t.whole));
  }
  const Twin& last = values.back();
  const Tensor cotangent = dice.matrix(context, last.whole.shape());
  Tensor part = cotangent;
  for (const Axis* axis : {axes.outer, axes.inner}) part = moved(part, *axis, copy, dual(lies(last.part, *axis)));
  for (const auto& t : leaves) t.part.node()->sink = {{}, DType::f64, false}, t.whole.node()->sink = {{}, DType::f64, false};
  backward(last.whole, {.cotangent = cotangent});
  backward(last.part, {.cotangent = part});
  for (const auto& t : leaves) {
    const auto& sink = t.part.node()->sink;
    tally.wrong += sink.written != t.whole.node()->sink.written;
    if (!sink.written) continue;
    tally.worst =
        std::max(tally.worst, worst_difference(everywhere(sink.grad, axes, *t.part.layout(), true), t.whole.node()->sink.grad));
  }
  ++tally.programs;
}

TEST(LayoutPrograms, LegalOnesEqualOneRankAndIllegalRowsAreRefused) {
  constexpr int programs = 1500;
  run_ranks(outer_ranks * inner_ranks, {}, [&](Group& world) {
    Mesh mesh(world, mesh_shape({.tp = inner_ranks}, outer_ranks * inner_ranks));
    mesh.split_sums(11);
    const Pair axes{&mesh.axis("dp_shard"), &mesh.axis("tp")};
    Context context;
    const auto ops = operations();
    Tally tally;
    for (int p = 0; p < programs; ++p) run_program(static_cast<std::uint64_t>(p), context, axes, ops, tally);
    EXPECT_EQ(tally.programs, programs);
    EXPECT_EQ(tally.wrong_verdicts, 0);
    EXPECT_EQ(tally.wrong, 0);
    EXPECT_LT(tally.worst, 1e-11);
    EXPECT_GT(tally.allowed, programs);  // most programs do something
    EXPECT_GT(tally.refused, programs);
  });
}

/// Every pair of placements along one axis, whatever the other: <dy, f(x)> = <f*(dy), x>, summed over ranks, over one where
/// `same`.
TEST(LayoutPrograms, RedistributeHasItsAdjoint) {
  run_ranks(outer_ranks * inner_ranks, {}, [&](Group& world) {
    Mesh mesh(world, mesh_shape({.tp = inner_ranks}, outer_ranks * inner_ranks));
    mesh.split_sums(3);
    const Pair axes{&mesh.axis("dp_shard"), &mesh.axis("tp")};
    Context context;
    Dice dice(5);
    int cases = 0;
    const auto inner_product = [&](const Tensor& a, const Tensor& b, const Layout& layout) {
      double value = 0;
      const auto x = a.to_doubles(), y = b.to_doubles();
      EXPECT_EQ(x.size(), y.size());
      for (std::size_t i = 0; i < x.size(); ++i) value += x[i] * y[i];
      for (const auto& at : layout)
        if (at.placement == same && mesh.axis(at.axis).rank != 0) value = 0;
      world.all_reduce(std::span<double>(&value, 1));
      return value;
    };
    for (const Placement outer : everything)
      for (const Placement from : everything)
        for (const Placement to : everything)
          for (const bool along_outer : {false, true}) {
            const Axis& axis = along_outer ? *axes.outer : *axes.inner;
            const Tensor whole = dice.matrix(context, {rows_of_all, features});
            Tensor x = along_outer ? part_of_leaf(whole, axes, from, outer) : part_of_leaf(whole, axes, outer, from);
            make_leaf(x);
            Tensor y;
            try {
              y = redistribute(x, axis, to);
            } catch (const Error&) {
              EXPECT_TRUE(along_outer && outer.kind == Placement::shard_kind && (outer == from || outer == to)) << from << to;
              continue;
            }
            ++cases;
            EXPECT_LT(worst_difference(everywhere(y.detach(), axes, *y.layout(), false), whole), 1e-14);
            Tensor dy = dice.matrix(context, whole.shape());
            for (const Axis* each : {axes.outer, axes.inner}) dy = moved(dy, *each, copy, dual(lies(y, *each)));
            if (y.node() == x.node()) continue;  // nothing was to do
            const double left = inner_product(dy, y.detach(), *y.layout());
            backward(y, {.cotangent = dy});
            EXPECT_NEAR(left, inner_product(x.node()->sink.grad, x.detach(), *x.layout()), 1e-12) << outer << from << to;
          }
    EXPECT_EQ(cases, 250 - 16);
  });
}

}  // namespace
}  // namespace chorus
