// [data]: the short form, mixtures, and what doesn't go together.
#include <chorus/apps/run_config.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

DataConfig parse(const std::string& text) {
  return parse_config<RunConfig>(text + "\n[batches]\nglobal_batch_size = 4\n", "run.toml").value.data;
}
std::string error(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(DataKeys, ShortAndLongForm) {
  const DataConfig brief = parse("[data]\ntrain = 'a.jsonl'\n");
  ASSERT_EQ(brief.inputs().size(), 1u);
  EXPECT_EQ(brief.inputs()[0].manifest_filepath, "a.jsonl");
  EXPECT_THAT(brief.mixing().weights, ElementsAre(1));

  const DataConfig mixed = parse(R"(
[data]
reweight_temperature = 0.5
[[data.input_cfg]]
manifest_filepath = "en.jsonl"
weight = 3
lang = "en"
[[data.input_cfg]]
manifest_filepath = "m_{0..3}.jsonl"
tarred_audio_filepaths = "audio__OP_0..3_CL_.tar"
weight = 0.5
)");
  EXPECT_THAT(mixed.mixing().weights, ElementsAre(3, 0.5));
  EXPECT_EQ(mixed.mixing().temperature, 0.5);
  EXPECT_EQ(mixed.inputs()[0].lang, "en");
  EXPECT_EQ(mixed.inputs()[1].tarred_audio_filepaths, "audio__OP_0..3_CL_.tar");
  EXPECT_THAT(parse("[data]\ninput_cfg = [{manifest_filepath = 'a'}, {manifest_filepath = 'b'}]").mixing().weights,
              ElementsAre(1, 1));
}

TEST(DataKeys, WhatDoesNotGoTogetherIsRefusedAtItsPlace) {
  EXPECT_THAT(error("[trainer]\nseed = 2\n"),
              AllOf(HasSubstr("run.toml"), HasSubstr("data.train: is missing, and so is input_cfg")));
  EXPECT_THAT(error("[data]\ntrain = 'a'\ninput_cfg = [{manifest_filepath = 'b'}]"),
              HasSubstr("run.toml:2:9: data.train: and input_cfg are both given"));
  for (const char* weight : {"0", "-1.5", "nan", "inf"})
    EXPECT_THAT(error(std::string("[data]\n[[data.input_cfg]]\nmanifest_filepath = 'a'\nweight = ") + weight),
                AllOf(HasSubstr("run.toml:4:10: data.input_cfg[0].weight"), HasSubstr("expected a finite number")))
        << weight;
  EXPECT_THAT(
      error("[data]\ninput_cfg = [{manifest_filepath = 'a', weight = 1}, {manifest_filepath = 'b'}]"),
      AllOf(HasSubstr("run.toml:2:"), HasSubstr("'b' has no weight and 'a' has one: expected weights for all or none")));
  EXPECT_THAT(error("[data]\ntrain = 'a'\nreweight_temperature = -0.1"),
              HasSubstr("run.toml:3:24: data.reweight_temperature = -0.1"));
  EXPECT_THAT(error("[data]\n[[data.input_cfg]]\nweight = 1"), HasSubstr("data.input_cfg[0].manifest_filepath: is missing"));
  EXPECT_THAT(error("[data]\n[[data.input_cfg]]\nmanifest_filepath = 'a'\nwheight = 1"), HasSubstr("weight"));
}

TEST(DataKeys, MissingManifestsAndBadRangesAreNamedAtTheirPlace) {
  const auto error_of = [](const std::string& text) -> std::string {
    const auto loaded = parse_config<RunConfig>(text + "\n[batches]\nglobal_batch_size = 4\n", "run.toml");
    try {
      check_paths(loaded);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  const std::string both = error_of(
      "[[data.input_cfg]]\nmanifest_filepath = 'm_{0..1}.jsonl'\n"
      "[[data.input_cfg]]\nmanifest_filepath = '/dev/null'\ntarred_audio_filepaths = 'a_{3..1}.tar'");
  EXPECT_THAT(both, HasSubstr("run.toml:2:21: data.input_cfg[0].manifest_filepath = \"m_0.jsonl\": there is no such file"));
  EXPECT_THAT(both, HasSubstr("m_1.jsonl"));
  EXPECT_THAT(both, HasSubstr("run.toml:5:26: data.input_cfg[1].tarred_audio_filepaths: "));
  EXPECT_THAT(both, HasSubstr("'3..1' is no range"));
}

}  // namespace
}  // namespace chorus
