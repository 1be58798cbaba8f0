// Runs in the types that trainer.precision, lm_head_precision and mp_policy choose.
#include <gmock/gmock.h>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;
using ::testing::HasSubstr;

struct Chosen {
  const char* name;
  std::vector<std::string> keys;
};

const std::vector<Chosen>& choices() {
  static const std::vector<Chosen> all{
      {"head_in_f32", {"trainer.precision=bf16-mixed", "trainer.lm_head_precision=fp32"}},
      {"tied_head_in_f32",
       {"trainer.precision=bf16-mixed", "trainer.lm_head_precision=fp32", "model.llm.tie_word_embeddings=true"}},
      {"units",
       {"trainer.precision=bf16-mixed",
        "trainer.mp_policy=[{units=\"llm.layers.*\", output_dtype=\"fp32\", reduce_dtype=\"bf16\"}, "
        "{units=\"encoder.layers.*\", "
        "param_dtype=\"float32\"}, {units=\"encoder.subsampling\", output_dtype=\"fp32\"}]"}},
      {"embedding_gives_f32", {"trainer.precision=bf16-mixed", "trainer.mp_policy=[{units=\"llm.*\", output_dtype=\"fp32\"}]"}},
      {"units_in_bf16", {"trainer.mp_policy=[{units=\"encoder.layers.*|llm.layers.*\", param_dtype=\"bfloat16\"}]"}},
      {"without_masters", {"trainer.precision=bf16-true", "trainer.allow_bf16_true=true"}},
  };
  return all;
}

class PrecisionRun : public ::testing::TestWithParam<Chosen> {};
INSTANTIATE_TEST_SUITE_P(Choices, PrecisionRun, ::testing::ValuesIn(choices()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(PrecisionRun, LearnsEvaluatesAndGoesOnBitForBit) {
  const Folder folder(std::string("precision_") + GetParam().name);
  const auto corpus = write_corpus(folder.path);
  auto keys = GetParam().keys;
  keys.push_back("data.validation=" + corpus.string());
  Heard whole, begun, ended;
  const TrainingResult expected = train(tiny(corpus, folder.path / "whole", keys), whole.hooks());
  EXPECT_EQ(expected.outcome, Outcome::finished);
  ASSERT_EQ(whole.steps.size(), 30u);
  EXPECT_LT(whole.steps[13].loss, whole.steps[0].loss) << "the first phase learns nothing";
  EXPECT_EQ(whole.evaluations.size(), 1u);

  auto paused = keys;
  paused.push_back("trainer.stop_after_steps=17");
  EXPECT_EQ(train(tiny(corpus, folder.path / "run", paused), begun.hooks()).outcome, Outcome::paused);
  const TrainingResult result = train(tiny(corpus, folder.path / "run", keys), ended.hooks());
  EXPECT_EQ(result.weight_hash, expected.weight_hash);

  auto again = keys;
  for (const char* model : {"llm", "perception"})
    again.push_back(std::string("trainer.activation_checkpointing_") + model + "=full");
  EXPECT_EQ(train(tiny(corpus, folder.path / "again", again), {}).weight_hash, expected.weight_hash);
  keys.push_back("trainer.optimizer_offload_folder=" + (folder.path / "state").string());
  EXPECT_EQ(train(tiny(corpus, folder.path / "offloaded", keys), {}).weight_hash, expected.weight_hash);
}

/// Whether types reach every kind of sharding: f32 units beside bf16 ones, masters or none.
TEST_P(PrecisionRun, ShardingChangesNoBit) {
  const Folder folder(std::string("precision_ranks_") + GetParam().name);
  const auto corpus = write_corpus(folder.path);
  const auto hash_of = [&](const std::string& sharding) {
    auto keys = GetParam().keys;
    for (const std::string& key : {"parallel.sharding=" + sharding, std::string("trainer.gradient_clip_val=0"),
                                   std::string("phases[0].steps=4"), std::string("phases[1].steps=4")})
      keys.push_back(key);
    return train_on_threads(tiny(corpus, folder.path / sharding, keys), {}, 3).weight_hash;
  };
  const std::string expected = hash_of("none");
  for (const char* sharding : {"optimizer", "gradients", "full"}) EXPECT_EQ(hash_of(sharding), expected) << sharding;
}

/// Eight elements that have masters are shared out among nine ranks.
TEST(PrecisionRun, ARankMayHaveNoMaster) {
  const Folder folder("precision_no_master");
  const auto corpus = write_corpus(folder.path);
  const auto run = [&](const std::string& sharding, std::vector<std::string> more = {}) {
    for (const std::string& key :
         {std::string("trainer.precision=bf16-mixed"), "parallel.sharding=" + sharding,
          std::string("trainer.gradient_clip_val=0"), std::string("model.llm.hidden_size=8"),
          std::string("phases[0].llm_weight=1"), std::string("phases[0].ctc_weight=0"), std::string("phases[0].steps=4"),
          std::string("phases[1].steps=4"), std::string("trainer.mp_policy=[{units=\"*\", param_dtype=\"fp32\"}]")})
      more.push_back(key);
    for (const char* phase : {"phases[0].", "phases[1]."}) {
      more.push_back(std::string(phase) + "freeze_params=[\".*\"]");
      more.push_back(std::string(phase) + "prevent_freeze_params=[\"llm.norm.weight\"]");
    }
    return train_on_threads(tiny(corpus, folder.path / sharding, more), {}, 9).weight_hash;
  };
  const std::string expected = run("none");
  for (const char* sharding : {"optimizer", "gradients", "full"}) {
    const std::string state = "trainer.optimizer_offload_folder=" + (folder.path / "state").string();
    run(sharding, {"trainer.stop_after_steps=2"});
    EXPECT_EQ(run(sharding, {state}), expected) << sharding;
  }
}

/// A head in f32 is another computation than one in bf16.
TEST(PrecisionRun, TheHeadsTypeMatters) {
  const Folder folder("precision_head");
  const auto corpus = write_corpus(folder.path);
  const auto losses = [&](const std::string& name, std::vector<std::string> keys) {
    for (const char* key : {"trainer.precision=bf16-mixed", "phases[0].steps=4", "phases[1].steps=4"}) keys.push_back(key);
    Heard heard;
    train(tiny(corpus, folder.path / name, keys), heard.hooks());
    return heard.steps.at(4).loss;
  };
  const double narrow = losses("narrow", {}), in_f32 = losses("f32", {"trainer.lm_head_precision=fp32"});
  EXPECT_NE(narrow, in_f32);
  EXPECT_NEAR(narrow, in_f32, 0.02 * in_f32);
}

TEST(PrecisionRun, AResumedRunKeepsItsTypes) {
  const Folder folder("precision_changed");
  const auto corpus = write_corpus(folder.path);
  const auto with = [&](std::vector<std::string> keys) {
    for (const char* key : {"trainer.precision=bf16-mixed", "trainer.stop_after_steps=2"}) keys.push_back(key);
    return tiny(corpus, folder.path / "run", keys);
  };
  EXPECT_EQ(train(with({}), {}).outcome, Outcome::paused);
  for (const auto& [key, named] :
       {std::pair{"trainer.lm_head_precision=fp32", "now: trainer.lm_head_precision = \"fp32\""},
        {"trainer.mp_policy=[{units=\"llm.*\", reduce_dtype=\"bf16\"}]", "now: trainer.mp_policy[0].units = \"llm.*\""}}) {
    try {
      train(with({key}), {});
      FAIL() << "no error for " << key;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("holds a run with another configuration"), HasSubstr(named)));
      EXPECT_THAT(error.what(), Not(HasSubstr("phases"))) << "keys after the one that differs";
    }
  }
}

TEST(PrecisionRun, AUnitThatIsNotThereIsNamed) {
  const Folder folder("precision_wrong");
  const auto corpus = write_corpus(folder.path);
  try {
    train(tiny(corpus, folder.path / "run", {"trainer.mp_policy=[{units=\"llm.layer.*\", param_dtype=\"bf16\"}]"}), {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("'llm.layer.*' matches no unit; units are encoder.subsampling, encoder.layers.*, llm."));
  }
}

}  // namespace
}  // namespace chorus
