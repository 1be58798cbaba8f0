// Puts the parameters of a golden case into a module of f64 and compares its gradients. Nothing is skipped: a path that only
// one side knows is an error.
#pragma once
#include <chorus/nn/materialize.h>
#include <golden/golden_file.h>
#include <op_cases/op_case.h>

#include <set>

namespace chorus::testing {

/// Relative to the largest value of the same dataset. Both sides compute in f64 and round differently only.
inline constexpr double golden_tolerance = 1e-9;

inline Tensor tensor_of(Context& context, const Golden& golden) {
  Shape shape = golden.shape.size() == 2 ? Shape{golden.shape[0], golden.shape[1]} : Shape{golden.shape.at(0)};
  return Tensor::of(context, shape, golden.values);
}

/// Sequences of `lengths` rows with sample ids 0, 1, ...
inline Rows golden_rows(Context& context, const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < lengths.size(); ++i) ids.push_back(static_cast<std::int64_t>(i));
  return make_rows(context, lengths, ids);
}

/// The dataset as a leaf, so that its gradient can be looked at: node()->sink.grad.
inline Tensor golden_input(Context& context, const GoldenFile& file, const std::string& group) {
  Tensor x = tensor_of(context, file.read(group + "/input"));
  make_leaf(x, Tensor::zeros(context, x.shape(), DType::f64));
  return x;
}

/// Calls f(path, tensor) for every logical parameter of a module whose own path is `at`, and for every buffer.
template <class M, class F>
void for_each_golden_state(M& module, const std::string& at, F&& f) {
  for_each_param(
      module, [&](const std::string& path, Param& p) { f(path, p.value); }, at);
  for_each_buffer(
      module, [&](const std::string& path, Buffer& b) { f(path, b.value); }, at);
}

template <class M>
void load_golden(const GoldenFile& file, const std::string& group, M& module, const std::string& at = "") {
  const auto names = file.names(group + "/parameters");
  std::set<std::string> unused(names.begin(), names.end());
  for_each_golden_state(module, at, [&](const std::string& path, const Tensor& value) {
    const Golden golden = file.read(group + "/parameters/" + path);
    require(value.dtype() == DType::f64, "golden", path, " is ", value.dtype());
    require(tensor_of(value.context(), golden).shape() == value.shape(), "golden", path, " has shape ", value.shape(),
            ", its values are ", golden.values.size());
    value.copy_from_host(golden.values.data());
    unused.erase(path);
  });
  for (const auto& path : unused) ADD_FAILURE() << group << ": the module has no " << path;
}

/// Compares the gradients of every parameter and of `input` with all gradients of the case. A gradient that is zero but for
/// rounding (of what the softmax doesn't see, as a bias of the keys) is held to a millionth of the largest gradient.
template <class M>
void expect_golden_gradients(const GoldenFile& file, const std::string& group, M& module, const Tensor& input,
                             const std::string& at = "") {
  const auto names = file.names(group + "/gradients");
  double largest = 0;
  for (const auto& name : names)
    for (const double v : file.values(group + "/gradients/" + name)) largest = std::max(largest, std::abs(v));
  std::set<std::string> unused(names.begin(), names.end());
  const auto compare = [&](const std::string& path, const Tensor& grad) {
    ASSERT_TRUE(static_cast<bool>(grad)) << group << ": no gradient of " << path;
    expect_close(group + ": gradient of " + path, grad.to_doubles(), file.values(group + "/gradients/" + path),
                 golden_tolerance, 1e-6 * largest);
    unused.erase(path);
  };
  compare("input", input.node()->sink.grad);
  for_each_param(
      module, [&](const std::string& path, Param& p) { compare(path, p.grad()); }, at);
  for (const auto& path : unused) ADD_FAILURE() << group << ": nobody computed the gradient of " << path;
}

}  // namespace chorus::testing
