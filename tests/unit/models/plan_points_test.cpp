// Every port, slot and unit that a model declares is used in its forward pass, and one that changes nothing changes nothing.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "gradients.h"
#include "salm_fixture.h"

namespace chorus::testing {
namespace {

/// Sets hooks that count their calls by path and otherwise do what an empty one would.
struct Counters {
  std::map<std::string, int> calls;

  void at(const std::string& path, Port& port) {
    calls[path] = 0;
    port.hook = [this, path](Tensor x) {
      ++calls[path];
      return x;
    };
  }
  void at(const std::string& path, Unit& unit) {
    calls[path] = 0;
    unit.wrap = [this, path](const std::function<Tensor(Tensor)>& body, Tensor x) {
      ++calls[path];
      return body(std::move(x));
    };
  }
  void at(const std::string& path, Slot<Tensor(Tensor, const Rows&, const AttentionOptions&)>& core) {
    calls[path] = 0;
    core.replaced = [this, path](const Tensor& qkv, const Rows& rows, const AttentionOptions& options) {
      ++calls[path];
      return attention(qkv, rows, options);
    };
  }
  void at(const std::string& path, Slot<Tensor(Tensor, Tensor, Tensor, Tensor, const Rows&, const AttentionOptions&)>& core) {
    calls[path] = 0;
    core.replaced = [this, path](const Tensor& qkv, const Tensor& u, const Tensor& v, const Tensor& p, const Rows& rows,
                                 const AttentionOptions& options) {
      ++calls[path];
      return relative_attention(qkv, u, v, p, rows, options);
    };
  }
  void at(const std::string& path, Slot<Tensor(Tensor, Tensor, Tensor, const CrossEntropyOptions&)>& core) {
    calls[path] = 0;
    core.replaced = [this, path](const Tensor& states, const Tensor& weight, const Tensor& labels,
                                 const CrossEntropyOptions& options) {
      ++calls[path];
      return linear_cross_entropy(states, weight, labels, options);
    };
  }
  void at(const std::string&, Param&) {}
  void at(const std::string&, Stacked&) {}
  void at(const std::string&, Buffer&) {}
  void at(const std::string&, Dropout&) {}
  void at(const std::string&, StepStatistics&) {}
};

class PlanPoints : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Forms, PlanPoints, ::testing::Values("nemo", "small"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(PlanPoints, AreAllUsedOnceAndChangeNothing) {
  Context context;
  Counters counters;  // outlives the hooks
  SalmConfig config = small_config(GetParam());
  config.modality_adapter = "conformer";
  Salm model(config, vocabulary + 1);
  const ParamStore store = materialize(model, context, {.dtype = DType::f64, .seed = 5, .freeze = {}});
  const auto samples = some_samples();
  const auto options = loss_options(counts_of(samples, config.encoder.subsampling_factor));
  const auto run = [&] {
    store.start_step();
    const SalmLoss loss = model.loss(batch_of(context, samples, 10), options, {.training = true, .seed = 9, .step = 4});
    backward(loss.total);
    store.finish_step();
    auto result = gradients_of(store);
    result.push_back(loss.total.item());
    return result;
  };
  const auto plain = run();
  visit_fields(model, "", [&](const std::string& path, auto& leaf) { counters.at(path, leaf); });
  const auto hooked = run();
  EXPECT_GT(counters.calls.size(), 50u);
  // The head's product is part of the loss, which has a slot of its own; single rows and logits are for generation; tables are
  // gathered by themselves, but nothing runs in their units.
  const std::set<std::string> other{"llm.head.in",    "llm.head.out",       "llm.out",
                                    "llm.logits_out", "llm.embedding_unit", "llm.head_unit"};
  for (const auto& [path, calls] : counters.calls) EXPECT_EQ(calls, other.count(path) ? 0 : 1) << path;
  // A bias that is added after its port is rounded elsewhere: not the same bits.
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    largest = std::max(largest, std::abs(plain[i]));
    worst = std::max(worst, std::abs(plain[i] - hooked[i]));
  }
  EXPECT_LE(worst, 1e-12 * largest);
}

}  // namespace
}  // namespace chorus::testing
