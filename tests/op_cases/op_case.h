// One harness for every op. A case says what the inputs look like and calls the op; `check` then tests, for each size,
//   - f64: the value against a plain loop, gradients against central differences, element by element and along a direction;
//   - f32 and bf16: value and gradients against f64, within c * eps * sqrt(terms) * scale (the largest value);
//   - gradients of leaves, of tensors that other ops made, of one input alone, and a second backward that adds to the first;
//   - that nothing is written beside a gradient or a value, outside a block of memory or into an input; memory nobody wrote
//     reads as NaN;
//   - that an op outside recording gives the same bits;
//   - once, at a size that uses all threads: equal bits with 1 and 2 threads and on a second run.
//
//   TEST(Pointwise, Silu) {
//     check({.name = "silu",
//            .shapes = [](Size s) { return std::vector<Shape>{{s.rows, s.cols}}; },
//            .op = [](Context&, const Tensors& x) { return silu(x[0]); },
//            .reference = [](const Values& x, Size) { return map(x[0], [](double v) { return v / (1 + std::exp(-v)); }); }});
//   }
#pragma once
#include <chorus/tensor/autograd/node.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace chorus::testing {

struct Size {
  std::int64_t rows, cols;
};
using Tensors = std::vector<Tensor>;
using Values = std::vector<std::vector<double>>;

struct OpCase {
  std::string name;
  std::function<std::vector<Shape>(Size)> shapes;      ///< of the differentiable inputs
  std::function<Tensor(Context&, const Tensors&)> op;  ///< may make constants (rows, ids) of its own from the shapes
  std::function<std::vector<double>(const Values&, Size)> reference = {};  ///< optional: the value by plain loops
  std::vector<Size> sizes = {{0, 17}, {1, 1}, {1, 3}, {3, 17}, {17, 3}, {65, 130}};
  Size threads_size = {517, 130};                                ///< large enough to use all threads
  std::function<double(Size)> terms = [](Size) { return 1.0; };  ///< addends of one output element
  std::function<double(Size)> grad_terms = [](Size s) { return static_cast<double>(std::max<std::int64_t>(s.rows, 1)); };
  double c = 4;                        ///< of the tolerance c * eps * sqrt(terms) * scale
  double reference_tolerance = 1e-13;  ///< of f64 against the reference, relative to the scale
  double difference_tolerance = 1e-7;  ///< of f64 against central differences, relative to the scale
  double floor = 0;                    ///< lower limit of scale, where results cancel to rounding noise
  double range = 1;                    ///< inputs lie in (-range, range), never at 0; a power of two
  std::function<double(std::size_t input, double value)> adjust =
      {};                  ///< optional: changes an input value (e.g. makes it positive)
  bool pads_rows = false;  ///< the value comes from a product, which may write the spare rows behind it (see padded_rows)
  std::vector<DType> types = {DType::f32, DType::bf16};  ///< compared with f64
};

/// Runs every check; failures name op, size, type, worst index, both values and their ratio.
void check(const OpCase& op_case);

/// Values of a case's inputs and cotangents: odd multiples of range/256, so every type holds them exactly and none is 0.
double test_value(std::uint64_t stream, std::uint64_t index, double range);

template <class F>
std::vector<double> map(const std::vector<double>& x, const F& f) {
  std::vector<double> y;
  for (const double v : x) y.push_back(f(v));
  return y;
}

/// Reports the worst element with |got - want| > tolerance * scale; scale is the largest |want| but at least `floor`, or 1 if
/// both are 0.
void expect_close(const std::string& what, const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                  double floor = 0);

}  // namespace chorus::testing
