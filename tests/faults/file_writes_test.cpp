// Every call that a writer makes fails once: whole files keep their old content or have the new, and nothing is left over.
#include <chorus/core/posix_file.h>
#include <chorus/core/trace.h>
#include <chorus/io/audio.h>
#include <chorus/io/manifest.h>
#include <chorus/io/metrics.h>
#include <chorus/io/tokenizer.h>
#include <gmock/gmock.h>
#include <unit/io/files_fixture.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "faults/interposed/write_faults.h"

namespace chorus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class FileWrites : public ::testing::Test {
 protected:
  ~FileWrites() override { testing::set_write_fault(""); }
  fs::path in(const std::string& name) const { return temporary.path / name; }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(temporary.path)) found.push_back(entry.path().filename());
    return found;
  }
  const TemporaryFolder temporary;
};

std::string errno_text(int code) { return "(errno " + std::to_string(code) + ")"; }

/// `write` makes `file` anew, where something else lies already. Each of its calls to the system fails once with each reason.
void every_call_fails(const fs::path& file, const std::function<void()>& write) {
  write();
  const std::string fresh = read_file(file);
  const std::string old = "what was there before";
  const auto put_old = [&] {
    fs::remove(file);
    write_file(file, old);
  };
  int failures = 0;
  for (const char* call : {"open", "write", "flush", "rename"}) {
    for (const int code : {ENOSPC, EROFS, EIO, EDQUOT}) {
      long at = 1;
      for (;; ++at) {
        put_old();
        testing::set_write_fault("path=" + file.string() + " call=" + call + " count=1 at=" + std::to_string(at) +
                                 " errno=" + std::to_string(code));
        const std::string error = error_of(write);
        const bool hit = testing::matching_calls() >= at;
        testing::set_write_fault("");
        const std::string what = std::string(call) + ' ' + std::to_string(at) + ' ' + errno_text(code);
        if (!hit) {
          EXPECT_EQ(error, "no error") << what;
          break;
        }
        ++failures;
        EXPECT_THAT(error, AllOf(HasSubstr(file.string()), HasSubstr(errno_text(code)))) << what;
        EXPECT_EQ(read_file(file), old) << what;
        EXPECT_FALSE(fs::exists(file.string() + ".tmp")) << what;
      }
      EXPECT_GT(at, 1) << "no call of this kind: " << call;
    }
  }
  EXPECT_GE(failures, 16);
  // What only takes longer or several goes is no failure.
  for (const char* harmless : {"call=any errno=4 count=3", "call=write most=7", "call=any delay=1"}) {
    put_old();
    testing::set_write_fault("path=" + file.string() + ' ' + harmless);
    EXPECT_EQ(error_of(write), "no error") << harmless;
    EXPECT_GT(testing::matching_calls(), 0) << harmless;
    testing::set_write_fault("");
    EXPECT_TRUE(read_file(file) == fresh) << harmless;
  }
}

TEST_F(FileWrites, Manifest) {
  const std::vector<ManifestEntry> entries = {{.audio = "a.wav", .text = "one"}, {.audio = "b.wav", .text = "two"}};
  every_call_fails(in("m.jsonl"), [&] { write_manifest(in("m.jsonl"), entries); });
  EXPECT_THAT(names(), ::testing::ElementsAre("m.jsonl"));
}

TEST_F(FileWrites, Trace) {
  Trace trace;
  trace.record(true);
  { Span span(trace, "work"); }
  every_call_fails(in("trace.json"), [&] { trace.write(in("trace.json")); });
}

TEST_F(FileWrites, Tokenizer) {
  const Tokenizer tokenizer(train_tokenizer(std::vector<std::string>{"ab ba", "abba"}, {.type = "char"}));
  every_call_fails(in("t.model"), [&] { tokenizer.save(in("t.model")); });
}

TEST_F(FileWrites, Sound) {
  every_call_fails(in("s.wav"), [&] { write_wav(in("s.wav"), std::vector<float>(100, 0.25F), 8000); });
}

TEST_F(FileWrites, AFullDiskSaysWhatIsNeededAndWhatIsThere) {
  testing::set_write_fault("path=" + in("x").string() + " call=write room=40");
  EXPECT_THAT(
      error_of([&] { write_file(in("x"), std::string(100, 'x')); }),
      AllOf(HasSubstr(in("x").string()), HasSubstr("No space left on device (errno 28)"), HasSubstr("its file system has "),
            HasSubstr(" bytes free; 40 of the 100 bytes that it needs were written")));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(FileWrites, AReadOnlyFileSystemIsNamed) {
  testing::set_write_fault("path=" + in("x").string() + " call=open errno=30");
  EXPECT_THAT(error_of([&] { write_file_atomically(in("x"), "x"); }),
              AllOf(HasSubstr("cannot create " + in("x").string()), HasSubstr("a file system that can be written")));
}

/// Lines of a file, each parsed.
std::vector<std::int64_t> steps_of(const fs::path& file) {
  std::vector<std::int64_t> steps;
  std::istringstream in(read_file(file));
  for (std::string line; std::getline(in, line);) steps.push_back(nlohmann::json::parse(line).at("step"));
  return steps;
}

TEST_F(FileWrites, MetricsWaitForBetterTimesAndNoLineIsLostOrTorn) {
  using ::testing::ElementsAre;
  for (const int code : {ENOSPC, EIO, EROFS}) {
    const fs::path file = in("metrics." + std::to_string(code));
    std::vector<std::string> said;
    MetricsWriter metrics(file, [&](const std::string& text) { said.push_back(text); });
    const auto write = [&](std::int64_t step) { metrics.write({{"step", step}, {"name", std::string("x")}}); };
    write(1);
    write(2);
    const std::string path = "path=" + file.string() + " call=write ";
    testing::set_write_fault(path + "at=2 errno=" + std::to_string(code));
    write(3);  // as the first call since then it gets through
    write(4);
    write(5);
    write(6);
    ASSERT_EQ(said.size(), 1u);
    EXPECT_THAT(said[0], AllOf(HasSubstr(file.string()), HasSubstr(errno_text(code)), HasSubstr("waits")));
    EXPECT_THAT(steps_of(file), ElementsAre(1, 2, 3));
    testing::set_write_fault("");
    write(7);
    ASSERT_EQ(said.size(), 2u);
    EXPECT_THAT(said[1], AllOf(HasSubstr("again"), HasSubstr("3 records")));
    EXPECT_EQ(error_of([&] { metrics.finish(); }), "no error");
    EXPECT_THAT(steps_of(file), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  }
}

TEST_F(FileWrites, AHalfWrittenRecordIsContinued) {
  const fs::path file = in("log");
  std::vector<std::string> said;
  AppendFile out(file, [&](const std::string& text) { said.push_back(text); });
  testing::set_write_fault("path=" + file.string() + " call=write room=15");
  out.append("0123456789\n");
  EXPECT_THAT(said, IsEmpty());
  out.append("abcdefghij\n");
  out.append("next\n");
  EXPECT_EQ(read_file(file), "0123456789\nabcd");
  EXPECT_EQ(said.size(), 1u);
  testing::set_write_fault("");
  out.append("last\n");
  EXPECT_EQ(read_file(file), "0123456789\nabcdefghij\nnext\nlast\n");
}

TEST_F(FileWrites, MetricsThatNeverGetOutAreCountedAndNotSilent) {
  const fs::path file = in("metrics");
  std::vector<std::string> said;
  MetricsWriter metrics(file, [&](const std::string& text) { said.push_back(text); });
  testing::set_write_fault("path=" + file.string() + " call=write errno=28");
  for (std::int64_t step = 1; step <= 3; ++step) metrics.write({{"step", step}});
  EXPECT_EQ(said.size(), 1u);
  const std::string error = error_of([&] { metrics.finish(); });
  EXPECT_THAT(error, AllOf(HasSubstr(file.string()), HasSubstr("3 records could not be written"), HasSubstr("(errno 28)")));
  // Without anybody to tell, the first failure is an error.
  MetricsWriter strict(in("strict"));
  testing::set_write_fault("path=strict call=write errno=28");
  EXPECT_THAT(error_of([&] { strict.write({{"step", std::int64_t{1}}}); }), HasSubstr("(errno 28)"));
}

TEST_F(FileWrites, WhatWaitsIsBounded) {
  const fs::path file = in("log");
  std::vector<std::string> said;
  AppendFile out(
      file, [&](const std::string& text) { said.push_back(text); }, 100);
  testing::set_write_fault("path=" + file.string() + " call=write errno=28");
  for (int i = 0; i < 100; ++i) out.append("record " + std::to_string(100 + i) + '\n');  // 11 bytes each
  EXPECT_EQ(out.waiting(), 9u);
  EXPECT_EQ(out.dropped(), 91u);
  EXPECT_EQ(said.size(), 1u + 7u);  // the failure; 1, 2, 4 ... 64 records lost
  testing::set_write_fault("");
  out.append("last\n");
  EXPECT_TRUE(read_file(file).starts_with("record 191\n")) << read_file(file);
  EXPECT_THAT(error_of([&] { out.finish(); }), AllOf(HasSubstr("0 records could not"), HasSubstr("91 were dropped")));
}

TEST_F(FileWrites, AnUnfinishedLastLineThatCannotBeRemovedIsAnError) {
  write_file(in("metrics"), "{\"step\":1}\n{\"st");
  testing::set_write_fault("path=metrics call=truncate errno=30");
  EXPECT_THAT(error_of([&] { MetricsWriter{in("metrics")}; }),
              AllOf(HasSubstr("unfinished last line"), HasSubstr("(errno 30)")));
  testing::set_write_fault("");
  MetricsWriter{in("metrics")};
  EXPECT_EQ(read_file(in("metrics")), "{\"step\":1}\n");
}

}  // namespace
}  // namespace chorus
