// Properties of the whole model in f64: who shares a batch, and how it is cut into microbatches, changes nothing.
#include <gmock/gmock.h>

#include "gradients.h"
#include "salm_fixture.h"

namespace chorus::testing {
namespace {

class SalmForms : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Forms, SalmForms, ::testing::Values("nemo", "small"),
                         [](const auto& info) { return std::string(info.param); });

struct Built {
  Context context;
  SalmConfig config;
  Salm model;
  ParamStore store;
  explicit Built(const std::string& form, DType dtype = DType::f64)
      : config(small_config(form)), model(config, vocabulary + 1) {
    store = materialize(model, context, {.dtype = dtype, .seed = 5, .freeze = {}});
  }
};

/// Largest difference relative to the largest value of b.
double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  EXPECT_GT(largest, 0);
  return worst / largest;
}

TEST_P(SalmForms, AloneEqualsInBatch) {
  Built built(GetParam());
  const auto samples = some_samples();
  const Pass pass{.training = true, .seed = 9, .step = 4};
  const auto heard =
      built.model.hear(features_of(built.context, samples, 10, DType::f64), batch_of(built.context, samples, 10).frames, pass);
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const auto alone = batch_of(built.context, {samples[s]}, 10);
    const auto one = built.model.hear(alone.features, alone.frames, pass);
    const auto& rows = heard.encoded.rows;
    const auto i = static_cast<std::int64_t>(s);
    ASSERT_EQ(one.encoded.rows.count(), rows.length(i));
    EXPECT_LE(relative_difference(one.encoded.x.to_doubles(),
                                  heard.encoded.x.rows_view(rows.begin(i), rows.begin(i + 1)).to_doubles()),
              1e-12);
  }
}

TEST_P(SalmForms, LossOfABatchIsTheSumOverItsSamplesAlone) {
  Built built(GetParam());
  const auto samples = some_samples();
  const auto options = loss_options(counts_of(samples, built.config.encoder.subsampling_factor));
  const Pass pass{.training = true, .seed = 9, .step = 4};
  const SalmLoss together = built.model.loss(batch_of(built.context, samples, 10), options, pass);
  double llm = 0, ctc = 0;
  for (const auto& s : samples) {
    const SalmLoss alone = built.model.loss(batch_of(built.context, {s}, 10), options, pass);
    llm += alone.llm;
    ctc += alone.ctc;
  }
  EXPECT_NEAR(together.llm, llm, 1e-12 * together.llm);
  EXPECT_NEAR(together.ctc, ctc, 1e-12 * together.ctc);
}

TEST_P(SalmForms, RegroupingMicrobatchesLeavesGradients) {
  Built built(GetParam());
  auto samples = some_samples();
  const auto options = loss_options(counts_of(samples, built.config.encoder.subsampling_factor));
  const Pass pass{.training = true, .seed = 9, .step = 4};
  const auto gradients = [&](const std::vector<std::vector<std::size_t>>& groups) {
    built.store.start_step();
    for (const auto& group : groups) {
      std::vector<Sample> part;
      for (const auto i : group) part.push_back(samples[i]);
      const SalmLoss loss = built.model.loss(batch_of(built.context, part, 10), options, pass);
      backward(loss.total);
    }
    built.store.finish_step();
    return gradients_of(built.store);
  };
  const auto whole = gradients({{0, 1, 2, 3, 4}});
  EXPECT_LE(relative_difference(gradients({{3, 1}, {4, 0, 2}}), whole), 1e-12);
  EXPECT_LE(relative_difference(gradients({{2}, {1, 4}, {}, {0, 3}}), whole), 1e-12);
}

TEST_P(SalmForms, DeferredWeightGradientsAreTheSame) {
  Built built(GetParam());
  const auto samples = some_samples();
  const auto options = loss_options(counts_of(samples, built.config.encoder.subsampling_factor));
  const auto gradients = [&](bool defer) {
    built.store.start_step();
    DeferredGrads later;
    backward(built.model.loss(batch_of(built.context, samples, 10), options, {.training = true}).total,
             {.cotangent = {}, .deferred = defer ? &later : nullptr});
    if (defer) {
      EXPECT_GT(later.size(), 20u);
      later.run();
    }
    built.store.finish_step();
    return gradients_of(built.store);
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

TEST_P(SalmForms, EveryParameterLearns) {
  Built built(GetParam());
  const auto samples = some_samples();
  built.store.start_step();
  backward(built.model
               .loss(batch_of(built.context, samples, 10),
                     loss_options(counts_of(samples, built.config.encoder.subsampling_factor)), {})
               .total);
  built.store.finish_step();
  for (const auto& entry : built.store.trainable) {
    // The softmax doesn't see what is added to every key alike.
    if (entry.path.find("attention.k.bias") != std::string::npos) continue;
    const auto g = entry.param->grad().to_doubles();
    EXPECT_TRUE(std::any_of(g.begin(), g.end(), [](double x) { return std::abs(x) > 1e-9; })) << entry.path;
  }
}

TEST_P(SalmForms, CachedDecodingEqualsRunningTheWholeSequence) {
  Built built(GetParam());
  auto samples = some_samples();
  // A prompt may end in text or in audio, whose rotary positions can differ from those of the text that follows.
  for (const std::vector<std::int32_t>& prompt : {std::vector<std::int32_t>{audio_tag, bos}, {bos, audio_tag}}) {
    SalmBatch batch = batch_of(built.context, samples, 10);
    for (auto& c : batch.conversations) {
      c.tokens = prompt;
      c.answer = {0, 0};
    }
    const auto answers = built.model.generate(built.model.hear(batch.features, batch.frames, {}), batch,
                                              std::vector<std::int64_t>(samples.size(), 6), eos);
    // Running the whole sequence on what was generated must predict it again, token by token.
    for (std::size_t s = 0; s < samples.size(); ++s) {
      std::vector<std::int32_t> tokens = prompt, predicted;
      for (std::size_t n = 0; n <= answers[s].size() && n < 6; ++n) {
        SalmBatch one = batch_of(built.context, {samples[s]}, 10);
        one.conversations[0].tokens = tokens;
        one.conversations[0].answer.assign(tokens.size(), 0);
        const auto next = built.model.generate(built.model.hear(one.features, one.frames, {}), one, {1}, eos);
        if (next[0].empty()) break;
        predicted.push_back(next[0][0]);
        tokens.push_back(next[0][0]);
      }
      EXPECT_EQ(predicted, answers[s]) << "sample " << s << ", prompt of " << prompt[0] << ' ' << prompt[1];
    }
  }
}

TEST(Salm, TermWithoutTargetsAddsNothing) {
  Built built("small");
  const auto samples = some_samples();
  auto options = loss_options({.labels = 0, .ctc_targets = 0});
  EXPECT_FALSE(static_cast<bool>(built.model.loss(batch_of(built.context, samples, 10), options, {}).total));
}

TEST(Splice, CountsOfTagsAndAudiosMustAgree) {
  Context context;
  try {
    splice(context, {{1, {audio_tag, 3}, {0, 1}}}, {4, 5}, {.audio_tag = audio_tag});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("1 audio tags in the text, but 2 audios"));
  }
}

TEST(Splice, LabelsShiftWithinEachSequenceAndKeepTheEnd) {
  Context context;
  // Token 2 ends answers and would be the padding token of many models: its supervision must stay.
  const Splice s = splice(context, {{1, {audio_tag, bos, 5, 2}, {0, 0, 1, 1}}, {2, {bos, 6, audio_tag, 7, 2}, {0, 0, 0, 1, 1}}},
                          {2, 3}, {.audio_tag = audio_tag, .restart_text_positions = false, .targets = true});
  const auto ints = [](const Tensor& t) {
    const auto v = t.span<const std::int32_t>();
    return std::vector<int>(v.begin(), v.end());
  };
  EXPECT_EQ(ints(s.rows.offsets), (std::vector<int>{0, 4, 10}));
  EXPECT_EQ(ints(s.token_ids), (std::vector<int>{bos, 5, bos, 6, 7}));
  EXPECT_EQ(ints(s.index), (std::vector<int>{5, 6, 0, 1, 2, 3, 7, 8, 9, 4}));
  const int x = ignored_label;
  EXPECT_EQ(ints(s.labels), (std::vector<int>{x, x, 5, 2, x, x, x, x, 7, 2}));
  EXPECT_EQ(ints(s.rows.positions), (std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3, 4, 5}));
}

TEST(Splice, RestartedPositionsCountTextAndEachAudioFromZero) {
  Context context;
  const Splice s = splice(context, {{2, {bos, audio_tag, 7, audio_tag, 2, 3}, {0, 0, 0, 0, 1, 1}}}, {2, 1},
                          {.audio_tag = audio_tag, .restart_text_positions = true, .targets = true});
  const auto v = s.rows.positions.span<const std::int32_t>();
  EXPECT_EQ(std::vector<int>(v.begin(), v.end()), (std::vector<int>{0, 0, 1, 1, 0, 2}));
}

TEST(Splice, AnAnswerGoesOnWhereItsPositionsWouldInTraining) {
  Context context;
  const std::vector<Conversation> asked{{1, {bos, audio_tag}, {0, 0}}, {2, {audio_tag, bos}, {0, 0}}};
  const auto next = [&](bool restart) {
    return splice(context, asked, {4, 3}, {.audio_tag = audio_tag, .restart_text_positions = restart, .targets = false})
        .next_positions;
  };
  EXPECT_EQ(next(true), (std::vector<std::int32_t>{1, 1}));
  EXPECT_EQ(next(false), (std::vector<std::int32_t>{5, 4}));
}

}  // namespace
}  // namespace chorus::testing
