// Command lines that say nothing that can be done.
#include <gtest/gtest.h>

#include "errors/sections.h"

namespace chorus::errors {
namespace {

Seen arguments_refused(const Scene& scene, const std::vector<std::string>& arguments,
                       std::initializer_list<std::string_view> parts) {
  const Ended ended = scene.chorus(arguments);
  EXPECT_EQ(ended.status, 2) << ended.err;
  expect_parts(ended.err, parts);
  return {ended.err, "nothing was started, made or changed; exit status 2"};
}

constexpr const char* configuration = "[data]\ntrain = \"train.jsonl\"\n[batches]\nglobal_batch_size = 4\n";

}  // namespace

void command_line_errors(ErrorTable& table) {
  table.section("Command line");
  table.add("no command", [](Scene& s) { return arguments_refused(s, {}, {"subcommand", "--help"}); });
  table.add("an unknown command", [](Scene& s) {
    return arguments_refused(s, {"trian"}, {"'trian'", "the nearest is train"});
  });
  table.add("an unknown option", [](Scene& s) { return arguments_refused(s, {"train", "--fast"}, {"--fast"}); });
  table.add("a required option left out", [](Scene& s) { return arguments_refused(s, {"transcribe", "a.wav"}, {"--run"}); });
  table.add("no configuration",
            [](Scene& s) { return arguments_refused(s, {"train"}, {"no configuration file: data.train: is missing"}); });
  table.add("a configuration that doesn't exist", [](Scene& s) {
    return arguments_refused(s, {"train", "my.toml"}, {"my.toml: cannot be read: No such file or directory"});
  });
  table.add("an override without a configuration in front", [](Scene& s) {
    return arguments_refused(s, {"train", "trainer.seed=3"}, {"there is no file 'trainer.seed=3'", "comes first"});
  });
  table.add("a number of threads that no machine has", [](Scene& s) {
    return arguments_refused(s, {"transcribe", "--run", "run", "--threads", "1000000", "a.wav"},
                             {"--threads", "1000000", "1024"});
  });
  table.add("a folder in place of a configuration", [](Scene& s) {
    return arguments_refused(s, {"train", "."}, {"it is a folder, expected a TOML file"});
  });
  table.add("an override that is none", [](Scene& s) {
    s.write("my.toml", configuration);
    return arguments_refused(s, {"train", "my.toml", "trainer.seed"}, {"`trainer.seed`: expected key=value"});
  });
  table.add("a key inside a value", [](Scene& s) {
    s.write("my.toml", configuration);
    return arguments_refused(s, {"train", "my.toml", "trainer=3", "trainer.seed=2"},
                             {"`trainer.seed=2`: trainer = 3, given at command line, is no table"});
  });
  table.add("a text that begins with { and isn't quoted", [](Scene& s) {
    s.write("my.toml", configuration);
    return arguments_refused(s, {"train", "my.toml", "prompt={bos}{audio}{answer}"}, {"needs quotes of its own"});
  });
}

}  // namespace chorus::errors
