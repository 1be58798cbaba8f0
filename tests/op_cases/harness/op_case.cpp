#include "op_cases/op_case.h"

#include <chorus/core/rng.h>
#include <omp.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace chorus::testing {

double test_value(std::uint64_t stream, std::uint64_t index, double range) {
  const auto bits =
      philox(RandomKey{stream}, {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0})[0];
  return (2.0 * static_cast<double>(bits % 256) - 255.0) / 256.0 * range;  // bf16 holds eight bits of mantissa
}

void expect_close(const std::string& what, const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                  double floor) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double scale = floor, worst = 0;
  for (const double v : want) scale = std::max(scale, std::abs(v));
  const double limit = tolerance * (scale > 0 ? scale : 1);
  std::size_t at = 0, failures = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double error = std::abs(got[i] - want[i]);
    if (got[i] == want[i]) error = 0;  // equal infinities
    if (!(error <= limit)) ++failures;
    if (!(error <= worst)) {
      worst = error;
      at = i;
    }
  }
  if (failures)
    ADD_FAILURE() << what << ": " << failures << " of " << got.size() << " elements differ; worst at " << at << ": got "
                  << got[at] << ", want " << want[at] << ", difference " << worst << " = " << worst / limit
                  << " times the limit " << limit;
}

namespace {

constexpr std::int64_t guard_elements = 64;
constexpr int guard_byte = 0xFF;  // as any floating type NaN, so that whoever reads unwritten memory shows it
constexpr std::size_t guard_bytes = 256;

bool untouched(const void* first, std::size_t bytes) {
  const auto* b = static_cast<const unsigned char*>(first);
  return std::all_of(b, b + bytes, [](unsigned char v) { return v == guard_byte; });
}

std::atomic<int> overruns = 0;

/// Blocks between guards that are looked at when the block goes; full of guard bytes at first.
void* take_guarded(std::size_t bytes) {
  void* all = std::aligned_alloc(64, bytes + 2 * guard_bytes);
  std::memset(all, guard_byte, bytes + 2 * guard_bytes);
  return static_cast<char*>(all) + guard_bytes;
}
void give_back_guarded(void* block, std::size_t bytes) noexcept {
  char* all = static_cast<char*>(block) - guard_bytes;
  if (!untouched(all, guard_bytes) || !untouched(all + guard_bytes + bytes, guard_bytes)) ++overruns;
  std::free(all);
}
const MemoryOptions guarded_memory{.limit = 0, .pooled = false, .source = {take_guarded, give_back_guarded}};

/// A tensor between two guards in one storage. Its own bytes are guard bytes too until they are written.
struct Guarded {
  Tensor all, tensor;
  Guarded(Context& context, const Shape& shape, DType dtype)
      : all(Tensor::empty(context, {shape.numel() + 2 * guard_elements}, dtype)), tensor(all.flat_view(guard_elements, shape)) {
    std::memset(all.data(), guard_byte, all.bytes());
  }
  bool intact() const {
    const std::size_t guard = guard_elements * size_of(all.dtype());
    const auto* bytes = static_cast<const char*>(all.data());
    return untouched(bytes, guard) && untouched(bytes + all.bytes() - guard, guard);
  }
};

void write(const Tensor& to, const std::vector<double>& values) {
  dispatch_floating(to.dtype(), "write", [&]<class T>() {
    std::transform(values.begin(), values.end(), to.as<T>(), [](double v) { return static_cast<T>(v); });
  });
}

/// Between a leaf and the op under test: makes the op's input an ordinary tensor, and looks at the gradient it gets.
Tensor pass_through(const Tensor& x) {
  return record("pass_through", x.detach(), {x}, {}, [dtype = x.dtype()](const Backward& b) {
    require(b.dy.dtype() == dtype, "pass_through", "gradient ", b.dy, " of a tensor of type ", dtype);
    return Grads{b.dy};
  });
}

struct How {
  DType dtype = DType::f64;
  bool leaves = true;     ///< inputs are leaves; else other ops made them
  int only = -1;          ///< the one input that wants a gradient; -1: all
  bool deferred = false;  ///< weight gradients wait until after backward
};

struct Outcome {
  std::vector<double> y, cotangent;
  Values grads, twice;  ///< of each input, after one and after two backward passes
};

struct Runner {
  const OpCase& op_case;
  Size size;
  Values inputs;
  std::vector<Shape> shapes;

  Runner(const OpCase& op_case, Size size) : op_case(op_case), size(size), shapes(op_case.shapes(size)) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      std::vector<double> values(static_cast<std::size_t>(shapes[i].numel()));
      for (std::size_t k = 0; k < values.size(); ++k) {
        values[k] = test_value(i + 1, k, op_case.range);
        if (op_case.adjust) values[k] = op_case.adjust(i, values[k]);
      }
      inputs.push_back(std::move(values));
    }
  }

  std::string text(const std::string& what, DType dtype = DType::f64) const {
    std::ostringstream out;
    out << op_case.name << " (" << size.rows << " rows, " << size.cols << " cols, " << dtype << ") " << what;
    return out.str();
  }

  static std::vector<double> cotangent(std::int64_t n) {
    std::vector<double> values(static_cast<std::size_t>(n));
    for (std::size_t k = 0; k < values.size(); ++k) values[k] = test_value(1000, k, 1);
    return values;
  }

  Outcome run(const How& how) const {
    Context context(guarded_memory);
    std::vector<Guarded> values, sinks;
    Tensors leaves;
    Values before;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      values.emplace_back(context, shapes[i], how.dtype);
      write(values[i].tensor, inputs[i]);
      sinks.emplace_back(context, shapes[i], wide(how.dtype));
      leaves.push_back(values[i].tensor);
      before.push_back(leaves[i].to_doubles());
      if (how.only < 0 || how.only == static_cast<int>(i)) make_leaf(leaves[i], sinks[i].tensor);
    }
    Outcome outcome;
    for (int pass = 0; pass < 2; ++pass) {
      Tensors x = leaves;
      if (!how.leaves) std::transform(leaves.begin(), leaves.end(), x.begin(), pass_through);
      const Tensor y = op_case.op(context, x);
      EXPECT_TRUE(y.requires_grad()) << text("records nothing", how.dtype);
      if (!y.requires_grad()) return outcome;
      outcome.y = y.to_doubles();
      const bool spare_untouched = untouched(static_cast<const char*>(y.data()) + y.bytes(), y.capacity() - y.bytes());
      EXPECT_TRUE(op_case.pads_rows || spare_untouched) << text("wrote beyond the end of its value", how.dtype);
      outcome.cotangent = cotangent(y.numel());
      Tensor dy = Tensor::empty(context, y.shape(), y.dtype());
      write(dy, outcome.cotangent);
      DeferredGrads later;
      backward(y, {.cotangent = dy, .deferred = how.deferred ? &later : nullptr});
      later.run();
      EXPECT_EQ(dy.to_doubles(), outcome.cotangent) << text("changed the gradient it was given", how.dtype);
      auto& grads = pass ? outcome.twice : outcome.grads;
      for (const Tensor& leaf : leaves) {
        // A sink that nobody wrote to stands for zero.
        const bool written = leaf.node() && leaf.node()->sink.written;
        grads.push_back(written ? leaf.node()->sink.grad.to_doubles()
                                : std::vector<double>(static_cast<std::size_t>(leaf.numel()), 0.0));
      }
    }
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      EXPECT_TRUE(values[i].intact() && leaves[i].to_doubles() == before[i]) << text("wrote into input ", how.dtype) << i;
      EXPECT_TRUE(sinks[i].intact()) << text("wrote beside the gradient of input ", how.dtype) << i;
    }
    return outcome;
  }

  /// The value alone, in f64 and outside recording.
  std::vector<double> value(const Values& at) const {
    Context context(guarded_memory);
    const NoGrad quiet(context);
    Tensors x;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      x.push_back(Tensor::empty(context, shapes[i], DType::f64));
      write(x[i], at[i]);
    }
    return op_case.op(context, x).to_doubles();
  }

  /// d(sum(cotangent * y)) along `direction`, by a central difference.
  double difference(const Values& direction, const std::vector<double>& cotangent) const {
    const double h = 4e-6 * op_case.range;
    Values up = inputs, down = inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      for (std::size_t k = 0; k < inputs[i].size(); ++k) {
        up[i][k] += h * direction[i][k];
        down[i][k] -= h * direction[i][k];
      }
    const auto high = value(up), low = value(down);
    double total = 0;
    for (std::size_t k = 0; k < high.size(); ++k) total += cotangent[k] * (high[k] - low[k]);
    return total / (2 * h);
  }

  void check_differences(const Outcome& exact) const {
    Values direction = inputs;
    for (auto& d : direction) std::fill(d.begin(), d.end(), 0.0);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      constexpr std::size_t samples = 60;
      std::vector<double> want, got;
      double scale = op_case.floor;
      for (const double g : exact.grads[i]) scale = std::max(scale, std::abs(g));
      const std::size_t n = inputs[i].size();
      for (std::size_t s = 0; s < std::min(n, samples); ++s) {
        const std::size_t k = n <= samples ? s : philox(RandomKey{7}, {static_cast<std::uint32_t>(s), 0, 0, 0})[0] % n;
        direction[i][k] = 1;
        want.push_back(difference(direction, exact.cotangent));
        got.push_back(exact.grads[i][k]);
        direction[i][k] = 0;
      }
      expect_close(text("gradient against central differences, sampled elements of input ") + std::to_string(i), got, want,
                   op_case.difference_tolerance, scale);
    }
    double along = 0, squares = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      for (std::size_t k = 0; k < inputs[i].size(); ++k) {
        direction[i][k] = test_value(500 + i, k, 1);
        const double term = direction[i][k] * exact.grads[i][k];
        along += term;
        squares += term * term;
      }
    expect_close(text("gradient along a direction"), {along}, {difference(direction, exact.cotangent)},
                 op_case.difference_tolerance, std::max(std::sqrt(squares), op_case.floor));
  }

  void compare_grads(const std::string& what, DType dtype, const Values& got, const Values& want, double tolerance,
                     int only = -1) const {
    for (std::size_t i = 0; i < want.size(); ++i)
      if (only < 0 || only == static_cast<int>(i))
        expect_close(text("gradient of input ", dtype) + std::to_string(i) + what, got[i], want[i], tolerance, op_case.floor);
  }

  double tolerance(DType dtype, double terms) const {
    const double eps = dtype == DType::f64 ? 0x1p-53 : dtype == DType::f32 ? 0x1p-24 : 0x1p-8;
    return op_case.c * eps * std::sqrt(terms);
  }
};

void check_size(const OpCase& op_case, Size size) {
  const Runner runner(op_case, size);
  const Outcome exact = runner.run({});
  if (::testing::Test::HasFailure()) return;
  if (op_case.reference)
    expect_close(runner.text("value against the reference"), exact.y, op_case.reference(runner.inputs, size),
                 op_case.reference_tolerance * std::sqrt(op_case.terms(size)), op_case.floor);
  EXPECT_EQ(runner.value(runner.inputs), exact.y) << runner.text("gives another value outside recording");
  runner.check_differences(exact);

  const double equal = runner.tolerance(DType::f64, 16 * op_case.grad_terms(size));
  const auto doubled = [](Values grads) {
    for (auto& g : grads)
      for (double& v : g) v *= 2;
    return grads;
  };
  runner.compare_grads(" after a second backward", DType::f64, exact.twice, doubled(exact.grads), equal);
  runner.compare_grads(", behind another op", DType::f64, runner.run({.leaves = false}).grads, exact.grads, equal);
  runner.compare_grads(", behind another op and deferred", DType::f64, runner.run({.leaves = false, .deferred = true}).grads,
                       exact.grads, equal);
  runner.compare_grads(", weight gradients deferred", DType::f64, runner.run({.deferred = true}).grads, exact.grads, 0);
  if (runner.shapes.size() > 1)
    for (int i = 0; i < static_cast<int>(runner.shapes.size()); ++i)
      runner.compare_grads(" alone", DType::f64, runner.run({.only = i}).grads, exact.grads, equal, i);

  for (const DType dtype : op_case.types) {
    const Outcome rounded = runner.run({.dtype = dtype});
    expect_close(runner.text("value", dtype), rounded.y, exact.y, runner.tolerance(dtype, op_case.terms(size)), op_case.floor);
    const double limit = runner.tolerance(dtype, op_case.grad_terms(size));
    runner.compare_grads("", dtype, rounded.grads, exact.grads, limit);
    runner.compare_grads(" after a second backward", dtype, rounded.twice, doubled(rounded.grads),
                         runner.tolerance(wide(dtype), 16 * op_case.grad_terms(size)));
    runner.compare_grads(", behind another op", dtype, runner.run({.dtype = dtype, .leaves = false}).grads, exact.grads,
                         2 * limit);
  }
}

void check_threads(const OpCase& op_case) {
  const Runner runner(op_case, op_case.threads_size);
  const int before = omp_get_max_threads();
  for (const DType dtype : op_case.types) {
    omp_set_num_threads(1);
    const Outcome one = runner.run({.dtype = dtype}), again = runner.run({.dtype = dtype});
    omp_set_num_threads(2);
    const Outcome two = runner.run({.dtype = dtype});
    for (const auto& [other, what] : {std::pair{&again, ", second run"}, std::pair{&two, ", two threads"}}) {
      expect_close(runner.text("value", dtype) + what, other->y, one.y, 0);
      runner.compare_grads(what, dtype, other->grads, one.grads, 0);
    }
  }
  omp_set_num_threads(before);
}

}  // namespace

void check(const OpCase& op_case) {
  overruns = 0;
  for (const Size size : op_case.sizes) check_size(op_case, size);
  check_threads(op_case);
  EXPECT_EQ(overruns, 0) << op_case.name << " wrote outside blocks of memory";
}

}  // namespace chorus::testing
