// Steps that can't be taken.
#include "errors/runs.h"
#include "errors/sections.h"

namespace chorus::errors {
namespace {

namespace fs = std::filesystem;

/// A first step that throws the weights out of range: the gradient of the second shows it.
std::vector<std::string> out_of_range(std::vector<std::string> more) {
  more.insert(more.end(), {"phases[0].schedule={name=\"constant\", lr=1e30}", "trainer.checkpoint_every_n_steps=1"});
  return more;
}

Seen ends(std::vector<std::string> overrides, std::initializer_list<std::string_view> parts) {
  testing::Heard heard;
  const std::string message = error_of([&] { train(tiny(out_of_range(std::move(overrides))), heard.hooks()); });
  expect_parts(message, parts);
  EXPECT_EQ(heard.steps.size(), 1u);
  EXPECT_TRUE(fs::exists("run/checkpoints/step-000001/manifest.json"));
  return {message, "the run ends with the checkpoint of the last step that is saved; exit status 1"};
}

}  // namespace

void training_errors(ErrorTable& table) {
  table.section("Training", "Nothing is updated by a step whose gradient or loss isn't finite.");
  table.add("a gradient that isn't finite", [](Scene& s) {
    write_corpus(s);
    return ends({}, {"gradient norm of step 2", "nothing was updated. Samples of the step:", "run/checkpoints"});
  });
  table.add("one more of them than `trainer.skip_nonfinite_steps` lets the run skip", [](Scene& s) {
    write_corpus(s);
    return ends({"trainer.skip_nonfinite_steps=2"},
                {"gradient norm of step 2", "2 such batches were skipped before, trainer.skip_nonfinite_steps is 2"});
  });
}

}  // namespace chorus::errors
