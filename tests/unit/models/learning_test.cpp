// Training as a whole: the types that it runs in agree, and the loss falls.
#include <chorus/nn/optim/optimizer.h>
#include <chorus/parallel/grad_norm.h>
#include <chorus/parallel/group/solo.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "gradients.h"
#include "salm_fixture.h"

namespace chorus::testing {
namespace {

/// One thread: on a busy machine two would wait for each other longer than these small models compute.
class SalmLearning : public ::testing::TestWithParam<const char*> {
  void SetUp() override { omp_set_num_threads(1); }
};
INSTANTIATE_TEST_SUITE_P(Forms, SalmLearning, ::testing::Values("nemo", "small"),
                         [](const auto& info) { return std::string(info.param); });

struct Learner {
  Context context;
  Salm model;
  ParamStore store;
  Learner(const SalmConfig& config, DType dtype) : model(config, vocabulary + 1) {
    store = materialize(model, context, {.dtype = dtype, .seed = 5, .freeze = {}});
  }
};

/// No dropout; no compressor where types are compared: its choice of the best label is not continuous in the weights.
SalmConfig plain_config(const std::string& form, bool compressor) {
  SalmConfig config = small_config(form);
  config.encoder.dropout = config.encoder.dropout_att = config.encoder.dropout_pre_encoder = 0;
  config.llm.dropout = config.llm.attention_dropout = 0;
  config.ctc_compressor = config.ctc_compressor && compressor;
  return config;
}

SalmLossOptions plain_options(const std::vector<Sample>& samples, int factor) {
  SalmLossOptions options = loss_options(counts_of(samples, factor));
  options.corruption = {};
  return options;
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

TEST_P(SalmLearning, SinglePrecisionAndBf16FollowDouble) {
  struct Result {
    double loss;
    std::vector<double> grads;
    std::vector<std::pair<std::string, std::vector<double>>> parts;  // by path
  };
  const auto samples = some_samples();
  const auto run = [&](DType dtype) {
    const SalmConfig config = plain_config(GetParam(), false);
    Learner built(config, dtype);
    built.store.start_step();
    const SalmLoss loss = built.model.loss(batch_of(built.context, samples, 10, dtype),
                                           plain_options(samples, config.encoder.subsampling_factor), {.training = true});
    backward(loss.total);
    built.store.finish_step();
    Result result{loss.total.item(), gradients_of(built.store), {}};
    for (const auto& entry : built.store.trainable) result.parts.emplace_back(entry.path, entry.param->grad().to_doubles());
    return result;
  };
  const Result exact = run(DType::f64);
  struct Limit {
    DType dtype;
    double loss, cosine;
  };
  for (const auto& [dtype, loss_tolerance, least_cosine] :
       std::vector<Limit>{{DType::f32, 1e-6, 1 - 1e-10}, {DType::bf16, 0.01, 0.998}}) {
    const Result got = run(dtype);
    EXPECT_NEAR(got.loss, exact.loss, loss_tolerance * exact.loss) << dtype;
    ASSERT_EQ(got.grads.size(), exact.grads.size());
    for (std::size_t i = 0; i < got.grads.size(); ++i) ASSERT_TRUE(std::isfinite(got.grads[i])) << dtype << " gradient " << i;
    EXPECT_GT(cosine(got.grads, exact.grads), least_cosine) << dtype;
    // Parameter by parameter too: a small one that went wrong would not show in the whole.
    for (std::size_t p = 0; p < exact.parts.size(); ++p) {
      if (exact.parts[p].first.find("attention.k.bias") != std::string::npos) continue;  // zero but for rounding
      const double part = cosine(got.parts[p].second, exact.parts[p].second);
      EXPECT_GT(part, dtype == DType::f32 ? 1 - 1e-8 : 0.98) << dtype << ' ' << exact.parts[p].first;
    }
  }
}

/// Loss of the fixture's five samples after each of `steps` steps.
std::vector<double> train(Learner& built, const OptimizerConfig& optimizer_config, double lr, int steps) {
  const auto samples = some_samples();
  auto options = plain_options(samples, built.model.config.encoder.subsampling_factor);
  options.label_smoothing = 0;  // so that the loss can come near zero
  Optimizer optimizer(optimizer_config, built.store);
  SoloGroup group;
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    built.store.start_step();
    // Two microbatches, as a training step has them.
    double total = 0;
    for (const auto& part :
         {std::vector<Sample>(samples.begin(), samples.begin() + 2), std::vector<Sample>(samples.begin() + 2, samples.end())}) {
      const SalmLoss loss = built.model.loss(batch_of(built.context, part, 10, built.store.values.dtype()), options,
                                             {.training = true, .seed = 1, .step = static_cast<std::uint64_t>(step)});
      total += loss.total.item();
      backward(loss.total);
    }
    built.store.finish_step();
    losses.push_back(total);
    optimizer.step(built.store, lr, clip_factor(grad_norm(built.store, group), 1.0));
  }
  return losses;
}

/// After learning, greedy decoding says the texts.
TEST_P(SalmLearning, AdamWLearnsFiveSamplesByHeart) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Learner built(plain_config(GetParam(), true), dtype);
    const auto losses = train(built, {.name = "adamw", .weight_decay = 0}, 1e-2, 60);
    EXPECT_LT(losses.back(), 0.01 * losses.front()) << dtype << " from " << losses.front() << " to " << losses.back();
    const auto samples = some_samples();
    SalmBatch batch = batch_of(built.context, samples, 10, dtype);
    for (auto& c : batch.conversations) {
      c.tokens.resize(2);
      c.answer.resize(2);
    }
    const auto heard = built.model.hear(batch.features, batch.frames, {});
    const auto answers = built.model.generate(heard, batch, std::vector<std::int64_t>(samples.size(), 10), eos);
    for (std::size_t s = 0; s < samples.size(); ++s) EXPECT_EQ(answers[s], samples[s].text) << dtype << " sample " << s;
  }
}

TEST_P(SalmLearning, SgdLowersTheLoss) {
  Learner built(plain_config(GetParam(), true), DType::f32);
  const auto losses = train(built, {.name = "sgd", .weight_decay = 0, .momentum = 0.9}, 5e-2, 60);
  EXPECT_LT(losses.back(), 0.05 * losses.front()) << "from " << losses.front() << " to " << losses.back();
}

}  // namespace
}  // namespace chorus::testing
