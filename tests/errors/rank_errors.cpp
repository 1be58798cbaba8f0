// Sizes that ranks can't be laid out in, and types of units that aren't there.
#include <gtest/gtest.h>

#include <regex>

#include "errors/runs.h"
#include "errors/sections.h"

namespace chorus::errors {
namespace {

Seen ranks_refused(const Scene& scene, const std::vector<std::string>& more, std::initializer_list<std::string_view> parts) {
  scene.write("my.toml", testing::tiny_config);
  std::vector<std::string> arguments{"train", "my.toml", "data.train=train.jsonl", "trainer.output_dir=run"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ended ended = scene.chorus(arguments);
  EXPECT_EQ(ended.status, 2) << ended.err;
  expect_parts(ended.err, parts);
  EXPECT_FALSE(std::filesystem::exists("run"));
  return {ended.err, "nothing was started, made or changed; exit status 2"};
}

/// A plan and a training say the same, each before anything is read, made or changed.
Seen layout_refused(const Scene& scene, const std::vector<std::string>& more, std::initializer_list<std::string_view> parts,
                    const std::string& toml = std::string(testing::tiny_config)) {
  scene.write("my.toml", toml);
  std::vector<std::string> arguments{"plan", "layout", "my.toml", "data.train=my.toml", "trainer.output_dir=run"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ended planned = scene.chorus(arguments);
  EXPECT_EQ(planned.status, 2) << planned.err;
  expect_parts(planned.err, parts);
  arguments.erase(arguments.begin(), arguments.begin() + 2);
  arguments.insert(arguments.begin(), "train");
  const Ended trained = scene.chorus(arguments);
  EXPECT_EQ(trained.status, 2) << trained.err;
  EXPECT_EQ(planned.err, trained.err);
  EXPECT_FALSE(std::filesystem::exists("run"));
  return {planned.err, "nothing was started, made or changed; exit status 2"};
}

}  // namespace

void rank_errors(ErrorTable& table) {
  table.section("Ranks", "`chorus plan layout` and `chorus train` say the same.");
  table.add("no rank", [](Scene& s) { return ranks_refused(s, {"--ranks", "0"}, {"--ranks: Value 0 not in range ", "4096"}); });
  table.add("a rank that isn't there", [](Scene& s) {
    s.write("my.toml", testing::tiny_config);
    const Ended ended = s.chorus({"plan", "layout", "my.toml", "--ranks", "4", "--rank", "4"});
    EXPECT_EQ(ended.status, 2) << ended.err;
    expect_parts(ended.err, {"--rank 4 of 4 ranks"});
    return Seen{ended.err, "nothing was started, made or changed; exit status 2"};
  });
  table.add("two names of one size that disagree", [](Scene& s) {
    return ranks_refused(s, {"parallel.tp_size=2", "parallel.tensor_parallel_size=4"},
                         {"parallel.tensor_parallel_size: 4, but tp_size is 2"});
  });
  table.add("sequence parallelism of one rank", [](Scene& s) {
    return ranks_refused(s, {"parallel.sequence_parallel=true"},
                         {"parallel.sequence_parallel: needs a tp_size of more than 1"});
  });
  table.add("ranks that tp_size doesn't divide", [](Scene& s) {
    return layout_refused(s, {"parallel.tp_size=2", "--ranks", "3"},
                          {"command line: parallel.tp_size: 3 ranks are no multiple of tp_size * cp_size * pp_size",
                           "these sizes need at least 2"});
  });
  table.add("sizes whose product isn't the number of ranks", [](Scene& s) {
    return layout_refused(s, {"parallel.data_parallel_size=3", "parallel.tensor_parallel_size=2", "--ranks", "4"},
                          {"command line: parallel.data_parallel_size: dp_size is 3, but 4 ranks"});
  });
  table.add("types for a unit that isn't there", [](Scene& s) {
    return layout_refused(s, {"trainer.mp_policy=[{units=\"llm.layer.*\", param_dtype=\"bf16\"}]", "--ranks", "1"},
                          {"command line: trainer.mp_policy: precision: 'llm.layer.*' matches no unit; units are "
                           "encoder.subsampling, encoder.layers.*, llm."});
  });
  table.add("types without the units that they are for", [](Scene& s) {
    return layout_refused(s, {"trainer.mp_policy=[{param_dtype=\"bf16\"}]", "--ranks", "1"},
                          {"trainer.mp_policy[0].units: is missing: expected paths of units"});
  });
  table.add("heads that tp_size doesn't divide", [](Scene& s) {
    return layout_refused(s, {"--ranks", "3"},
                          {"3 errors", "my.toml:34:9: model.encoder.heads: the encoder's heads 2 don't divide over tp_size 3",
                           "my.toml:43:23: model.llm.num_attention_heads: num_attention_heads 2 don't divide over tp_size 3",
                           "my.toml:44:23: model.llm.num_key_value_heads: "},
                          std::string(testing::tiny_config) + "[parallel]\ntp_size = 3\n");
  });
  table.add("key/value heads that neither divide tp_size nor are divided by it", [](Scene& s) {
    return layout_refused(s,
                          {"model.encoder.d_model=24", "model.encoder.heads=3", "model.llm.hidden_size=24",
                           "model.llm.num_attention_heads=6", "parallel.tp_size=3", "--ranks", "3"},
                          {"num_key_value_heads 2 don't divide over tp_size 3, nor the other way round"});
  });
  table.add("more ranks than a process should have", [](Scene& s) {
    Seen seen = ranks_refused(s, {"data.train=my.toml", "--ranks", "4096"},
                              {"--ranks 4096: ranks are threads of this process, which may use "});
    seen.message = std::regex_replace(seen.message, std::regex("use \\d+ cores?; at most \\d+"), "use N cores; at most M");
    return seen;
  });
}

}  // namespace chorus::errors
