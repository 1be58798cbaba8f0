// Every call to the system that a save makes fails once, for every reason: what was saved before stays loadable bit for bit,
// the next save works, and nothing is left over.
#include <chorus/core/posix_file.h>
#include <chorus/io/checkpoint.h>
#include <chorus/io/checkpoint/folder.h>
#include <gmock/gmock.h>
#include <unit/io/files_fixture.h>

#include <cerrno>

#include "faults/interposed/write_faults.h"

namespace chorus {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class CheckpointWrites : public ::testing::Test {
 protected:
  ~CheckpointWrites() override { testing::set_write_fault(""); }

  std::vector<CheckpointEntry> entries(std::uint64_t step) {
    return {{"model/a", ramp(context, {40, 50}, DType::f32, step)}, {"model/b", ramp(context, {300}, DType::bf16, step)}};
  }
  SavedCheckpoint save(std::uint64_t step) {
    return save_checkpoint(directory, step, entries(step), {{"step", step}}, "c", {.keep = 2});
  }
  void expect_whole(std::uint64_t step, const std::string& what) {
    const Checkpoint checkpoint(directory / step_name(step));
    EXPECT_THAT(checkpoint.verify(), IsEmpty()) << what;
    for (const auto& [path, tensor, part, later] : entries(step)) expect_same_bytes(checkpoint.read(context, path), tensor, what);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory)) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
  std::string fault(const std::string& rest) const { return "path=" + directory.string() + ' ' + rest; }

  const TemporaryFolder temporary;
  const fs::path directory = temporary.path / "checkpoints";
  Context context;
};

/// Saves step 3 beside 1 and 2, or step 2 again, while the `at`-th call of a kind fails, until a save has fewer of them.
TEST_F(CheckpointWrites, WhicheverCallFailsNothingSavedIsLost) {
  int errors = 0, warnings = 0;
  for (const std::uint64_t step : {3u, 2u}) {
    for (const char* call : {"open", "write", "flush", "rename", "mkdir", "remove"}) {
      for (const int code : {ENOSPC, EROFS, EIO}) {
        long at = 1;
        for (;; ++at) {
          fs::remove_all(directory);
          save(1);
          save(2);
          const std::string what =
              "step " + std::to_string(step) + ", " + call + ' ' + std::to_string(at) + ", errno " + std::to_string(code);
          testing::set_write_fault(
              fault(std::string("call=") + call + " count=1 at=" + std::to_string(at) + " errno=" + std::to_string(code)));
          SavedCheckpoint saved;
          const std::string error = error_of([&] { saved = save(step); });
          const bool hit = testing::matching_calls() >= at;
          testing::set_write_fault("");
          if (!hit) {
            EXPECT_EQ(error, "no error") << what;
            EXPECT_THAT(saved.warnings, IsEmpty()) << what;
            break;
          }
          const std::string reason = "(errno " + std::to_string(code) + ")";
          if (error != "no error") {
            ++errors;
            EXPECT_THAT(error, HasSubstr(reason)) << what;
            EXPECT_THAT(error, HasSubstr(directory.string())) << what;
          } else {
            ++warnings;
            ASSERT_FALSE(saved.warnings.empty()) << what << ": a failure that nobody hears of";
            EXPECT_THAT(saved.warnings[0], HasSubstr(reason)) << what;
          }
          std::vector<std::string> reports;
          const auto newest = find_checkpoint(directory, [&](const std::string& text) { reports.push_back(text); });
          ASSERT_TRUE(newest.has_value()) << what;
          EXPECT_THAT(reports, IsEmpty()) << what;
          EXPECT_THAT(newest->manifest().step, AnyOf(2u, step)) << what;
          EXPECT_TRUE(error != "no error" || newest->manifest().step == step) << what;
          for (const auto& [path, tensor, part, later] : entries(newest->manifest().step))
            expect_same_bytes(newest->read(context, path), tensor, what);
          // The next save has nothing to complain of, and whatever lay about is gone.
          EXPECT_THAT(save(4).warnings, IsEmpty()) << what;
          EXPECT_THAT(names(), ::testing::ElementsAre(AnyOf("step-000002", "step-000003"), "step-000004")) << what;
          expect_whole(4, what);
        }
        const bool has_such_calls = at > 1;
        EXPECT_TRUE(has_such_calls) << call << " of step " << step;
      }
    }
  }
  EXPECT_GT(errors, 60);
  EXPECT_GT(warnings, 3);  // what is only tidying up
}

TEST_F(CheckpointWrites, ADiskThatStaysFullCostsNoMoreThanTheNewCheckpoints) {
  save(1);
  for (const char* kind : {"call=any errno=28", "call=write errno=28", "call=flush errno=5", "call=any errno=30"}) {
    testing::set_write_fault(fault(kind));
    for (const std::uint64_t step : {2u, 3u, 4u}) EXPECT_NE(error_of([&] { save(step); }), "no error") << kind;
    testing::set_write_fault("");
    expect_whole(1, kind);
  }
  EXPECT_THAT(save(5).warnings, IsEmpty());
  EXPECT_THAT(names(), ::testing::ElementsAre("step-000001", "step-000005"));
}

TEST_F(CheckpointWrites, ShortSlowAndInterruptedWritesChangeNothing) {
  save(1);
  fs::rename(directory, temporary.path / "reference");
  for (const char* kind :
       {"call=write most=1000", "call=any errno=4 count=3", "call=flush errno=4 count=3", "call=any delay=2"}) {
    testing::set_write_fault(fault(kind));
    EXPECT_EQ(error_of([&] { EXPECT_THAT(save(1).warnings, IsEmpty()) << kind; }), "no error") << kind;
    EXPECT_GT(testing::matching_calls(), 0) << kind;
    testing::set_write_fault("");
    for (const char* file : {"rank-0000.h5", "checkpoint.h5", "manifest.json"}) {
      EXPECT_TRUE(read_file(directory / step_name(1) / file) == read_file(temporary.path / "reference" / step_name(1) / file))
          << kind << ' ' << file;
    }
  }
}

TEST_F(CheckpointWrites, AFullDiskSaysHowMuchIsNeeded) {
  testing::set_write_fault("path=rank-0000.h5 call=write room=4000");
  const std::string error = error_of([&] { save(1); });
  EXPECT_THAT(error, ::testing::AllOf(HasSubstr("rank-0000.h5"), HasSubstr("No space left on device"), HasSubstr("bytes free"),
                                      HasSubstr("4000 of the "), HasSubstr("bytes that it needs were written")));
}

}  // namespace
}  // namespace chorus
