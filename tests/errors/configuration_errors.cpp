// Configurations and command lines that can't be honoured.
#include <gtest/gtest.h>

#include "errors/sections.h"

namespace chorus::errors {
namespace {

constexpr const char* nothing = "nothing was started, made or changed; exit status 2";

/// `chorus train` with a configuration that it must refuse, and the lines that it says.
Seen refused(Scene& scene, const std::string& toml, std::vector<std::string> overrides,
             std::initializer_list<std::string_view> parts) {
  std::vector<std::string> arguments = {"train"};
  if (!toml.empty()) arguments.push_back(scene.write("my.toml", toml).string());
  arguments.insert(arguments.end(), overrides.begin(), overrides.end());
  const Ended ended = scene.chorus(arguments);
  EXPECT_EQ(ended.status, 2) << ended.err;
  EXPECT_TRUE(ended.out.empty()) << ended.out;
  EXPECT_FALSE(std::filesystem::exists("runs")) << "a run folder was made";
  expect_parts(ended.err, parts);
  return {ended.err, nothing};
}

constexpr const char* base = "[data]\ntrain = \"train.jsonl\"\n[batches]\nglobal_batch_size = 4\n";

}  // namespace

void configuration_errors(ErrorTable& table) {
  table.section("Configuration", "Everything wrong is said at once, each with file, line and column.");
  table.add("an unknown or misspelt key", [](Scene& s) {
    return refused(s, std::string(base) + "[trainer]\nsteeds = 7\n", {}, {"my.toml:6:1: trainer.steeds: unknown key", "seed"});
  });
  table.add("values of the wrong type and out of range", [](Scene& s) {
    return refused(s, std::string(base) + "[trainer]\nseed = \"one\"\nprecision = \"fp31\"\n[optimizer]\nbeta1 = 1.5\n", {},
                   {"3 errors", "my.toml:6:8: trainer.seed = \"one\": expected an integer", "the nearest is \"fp32\"",
                    "my.toml:9:9: optimizer.beta1 = 1.5: expected from 0 to 0.99999"});
  });
  table.add("two of the four batch sizes", [](Scene& s) {
    return refused(s, std::string(base) + "batch_frames = 900\n", {},
                   {"my.toml:5:16: batches.batch_frames", "exactly one", "global_batch_size (4)", "batch_frames (900)"});
  });
}

}  // namespace chorus::errors
