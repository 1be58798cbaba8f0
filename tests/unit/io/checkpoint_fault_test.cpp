// Damage, death and full disks: nothing damaged is ever loaded, and what was good stays good.
#include <chorus/core/posix_file.h>
#include <chorus/core/rng.h>
#include <chorus/io/checkpoint.h>
#include <chorus/io/checkpoint/folder.h>
#include <chorus/io/digest.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unit/io/files_fixture.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>

namespace chorus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class CheckpointFault : public ::testing::Test {
 protected:
  void save(std::uint64_t step, const Shape& shape = {40, 50}) {
    const std::vector<CheckpointEntry> entries = {
        {"model/a/weight", ramp(context, shape, DType::f32, step)},
        {"model/b/weight", ramp(context, {300}, DType::bf16, step)},
        {"optimizer/step", ramp(context, {}, DType::i64, step)},
    };
    save_checkpoint(directory, step, entries, {{"step", step}}, "[model]");
  }
  /// The step that a resume would take; what it skips goes to `reports`.
  std::uint64_t found_step() {
    reports.clear();
    const auto found = find_checkpoint(directory, [&](const std::string& text) { reports.push_back(text); });
    return found ? found->manifest().step : 0;
  }
  fs::path in(std::uint64_t step, const char* file) { return directory / step_name(step) / file; }

  const TemporaryFolder temporary;
  const fs::path directory = temporary.path;
  Context context;
  std::vector<std::string> reports;
};

void flip(const fs::path& path, std::uint64_t byte, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(byte));
  const auto value = static_cast<char>(file.get() ^ (1 << bit));
  file.seekp(static_cast<std::streamoff>(byte));
  file.put(value);
  ASSERT_TRUE(file.good()) << path << " at " << byte;
}

TEST_F(CheckpointFault, EveryFlippedBitIsDetectedAndTheOlderOneWins) {
  save(1);
  save(2);
  ASSERT_EQ(found_step(), 2u);
  ASSERT_THAT(reports, IsEmpty());
  std::vector<std::pair<fs::path, std::uint64_t>> files;
  std::uint64_t total = 0;
  for (const char* name : {"rank-0000.h5", "checkpoint.h5", "manifest.json"}) {
    files.emplace_back(in(2, name), fs::file_size(in(2, name)));
    total += files.back().second;
  }
  RandomStream random(random_key(7, "flips"));
  int in_tensors = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    std::size_t which = 0;
    std::uint64_t byte = random.below(total);
    if (trial % 4 == 0) {  // every file is hit, also the small ones
      which = random.below(files.size());
      byte = random.below(files[which].second);
    } else {
      while (byte >= files[which].second) byte -= files[which++].second;
    }
    const int bit = static_cast<int>(random.below(8));
    const std::string what =
        files[which].first.filename().string() + " byte " + std::to_string(byte) + " bit " + std::to_string(bit);
    flip(files[which].first, byte, bit);
    ASSERT_EQ(found_step(), 1u) << what;
    ASSERT_FALSE(reports.empty()) << what;
    ASSERT_THAT(reports[0], AllOf(HasSubstr("step-000002"), HasSubstr(files[which].first.filename().string()))) << what;
    in_tensors += reports[0].find("model/a/weight") != std::string::npos;
    flip(files[which].first, byte, bit);
  }
  EXPECT_GT(in_tensors, 100);  // of the file's bytes, most are this tensor's
  EXPECT_EQ(found_step(), 2u);
}

TEST_F(CheckpointFault, AFlippedBitInATensorIsDetectedByReadAloneAndChangesNothing) {
  save(1);
  const Checkpoint checkpoint(directory / step_name(1));
  const SavedTensor& tensor = *checkpoint.manifest().find("model/a/weight");
  const std::string path = tensor.path;
  const Tensor into = Tensor::zeros(context, tensor.shape, tensor.dtype);
  const Tensor part = Tensor::zeros(context, {2, 2}, tensor.dtype), zeros = into.clone();
  RandomStream random(random_key(7, "tensor"));
  for (int trial = 0; trial < 200; ++trial) {
    const std::uint64_t byte = tensor.chunks[0].position + random.below(40 * 50 * 4);
    flip(in(1, "rank-0000.h5"), byte, trial % 8);
    const std::string error = error_of([&] { checkpoint.read(path, into); });
    ASSERT_THAT(error, AllOf(HasSubstr("rank-0000.h5"), HasSubstr(path), HasSubstr("damaged")));
    // A box is refused with its chunk, wherever the damage lies in it.
    ASSERT_THAT(error_of([&] { checkpoint.read(path, part, {.offset = Shape{3, 4}}); }), HasSubstr("damaged"));
    flip(in(1, "rank-0000.h5"), byte, trial % 8);
  }
  expect_same_bytes(into, zeros, "after failed reads");
  EXPECT_EQ(error_of([&] { checkpoint.read(path, into); }), "no error");
  EXPECT_EQ(error_of([&] { checkpoint.read("model/b/weight", Tensor::empty(context, {300}, DType::bf16)); }), "no error");
}

TEST_F(CheckpointFault, TruncatedMissingZeroedAndSwappedFilesAreDetected) {
  save(1);
  const auto expect_fallback = [&](const char* what, const char* file, const auto& damage) {
    save(2);
    damage(in(2, file));
    EXPECT_EQ(found_step(), 1u) << what << ' ' << file;
    ASSERT_FALSE(reports.empty()) << what << ' ' << file;
    EXPECT_THAT(reports[0], HasSubstr(file)) << what;
  };
  for (const char* file : {"rank-0000.h5", "checkpoint.h5", "manifest.json"}) {
    expect_fallback("truncated", file, [](const fs::path& p) { fs::resize_file(p, fs::file_size(p) - 1); });
    expect_fallback("emptied", file, [](const fs::path& p) { fs::resize_file(p, 0); });
    expect_fallback("longer", file, [](const fs::path& p) { fs::resize_file(p, fs::file_size(p) + 1); });
    expect_fallback("missing", file, [](const fs::path& p) { fs::remove(p); });
    expect_fallback("zeroed", file, [](const fs::path& p) {
      const auto bytes = fs::file_size(p);
      fs::resize_file(p, 0);
      fs::resize_file(p, bytes);
    });
  }
  // The same file of another step has the same size and a valid structure of its own.
  expect_fallback("of another step", "rank-0000.h5",
                  [&](const fs::path& p) { fs::copy_file(in(1, "rank-0000.h5"), p, fs::copy_options::overwrite_existing); });
  EXPECT_THAT(reports[0], AllOf(HasSubstr("model/a/weight"), HasSubstr("model/b/weight"), HasSubstr("optimizer/step")));
  expect_fallback("swapped", "rank-0000.h5", [&](const fs::path& p) {
    fs::rename(p, directory / "aside");
    fs::rename(in(2, "checkpoint.h5"), p);
    fs::rename(directory / "aside", in(2, "checkpoint.h5"));
  });
  save(2);
  fs::rename(directory / step_name(2), directory / step_name(3));
  EXPECT_EQ(found_step(), 1u);
  EXPECT_THAT(reports.at(0), AllOf(HasSubstr("step-000003"), HasSubstr("says step 2")));
  // Nothing was removed.
  EXPECT_TRUE(fs::exists(directory / step_name(3) / "manifest.json"));
}

TEST_F(CheckpointFault, ANewerSchemaIsRefusedNotSkipped) {
  save(1);
  save(2);
  Manifest manifest = Checkpoint(directory / step_name(2)).manifest();
  manifest.schema = Manifest::current_schema + 1;
  fs::remove(in(2, "manifest.json"));
  write_file(in(2, "manifest.json"), to_text(manifest));
  const std::string error = error_of([&] { found_step(); });
  EXPECT_THAT(error, AllOf(HasSubstr("step-000002"), HasSubstr("schema 2"), HasSubstr("up to 1")));
  EXPECT_THROW(Checkpoint{directory / step_name(2)}, NewerSchema);
}

TEST_F(CheckpointFault, LeavingsOfDeadWritersAreIgnoredAndRemoved) {
  save(1);
  fs::path alive;
  // A writer that dies in the middle of a save of step 9, as another process.
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const fs::path folder = temporary_folder(directory, 9);
    fs::create_directories(folder);
    write_file(folder / "rank-0000.h5", "half a file");
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  // And one that lives on; this process itself is idle between saves.
  const pid_t living = ::fork();
  ASSERT_GE(living, 0);
  if (living == 0) {
    fs::create_directories(temporary_folder(directory, 8));
    ::pause();
    ::_exit(0);
  }
  const auto has_temporary_8 = [&] {
    for (const auto& entry : fs::directory_iterator(directory))
      if (entry.path().filename().string().starts_with("step-000008.tmp-")) alive = entry.path();
    return !alive.empty();
  };
  while (!has_temporary_8()) ::usleep(1000);
  const fs::path own = temporary_folder(directory, 4), removed = directory / "step-000007.del";
  const fs::path far = directory / "step-000006.tmp-elsewhere-1-1-1", far_dead = directory / "step-000005.tmp-elsewhere-1-1-1";
  const fs::path foreign = directory / "notes.old";
  for (const fs::path& folder : {own, removed, far, far_dead, foreign}) {
    fs::create_directories(folder);
    write_file(folder / "x", "x");
  }
  const auto two_hours_ago = fs::file_time_type::clock::now() - std::chrono::hours(2);
  fs::last_write_time(far_dead / "x", two_hours_ago);
  fs::last_write_time(far_dead, two_hours_ago);
  EXPECT_EQ(found_step(), 1u);
  EXPECT_THAT(reports, IsEmpty());
  save(2);
  EXPECT_EQ(found_step(), 2u);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("step-000001", "step-000002", alive.filename().string(),
                                                     far.filename().string(), "notes.old"));
  ::kill(living, SIGKILL);
  ASSERT_EQ(::waitpid(living, nullptr, 0), living);
}

TEST_F(CheckpointFault, DeathBetweenTheTwoRenamesOfAReplacementLosesNothing) {
  save(1);
  fs::rename(directory / "step-000001", directory / "step-000001.old");
  EXPECT_EQ(found_step(), 1u);
  save(2);  // tidies up
  EXPECT_TRUE(fs::exists(directory / "step-000001"));
  fs::create_directories(directory / "step-000002.old");  // death after the second rename
  EXPECT_EQ(step_folders(directory).size(), 2u);
  EXPECT_EQ(found_step(), 2u);
  EXPECT_THAT(reports, IsEmpty());
  save(3);
  EXPECT_FALSE(fs::exists(directory / "step-000002.old"));
}

/// Files that this process writes may not grow beyond `bytes`, as on a full disk.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    require(::getrlimit(RLIMIT_FSIZE, &before_) == 0, "test", "no file limit");
    struct rlimit low = before_;
    low.rlim_cur = bytes;
    require(::setrlimit(RLIMIT_FSIZE, &low) == 0, "test", "no file limit");
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  void (*handler_)(int);
  struct rlimit before_ {};
};

// Whichever file meets the limit, at whichever byte, the save fails as a whole and says where.
TEST_F(CheckpointFault, AFailedWriteLeavesTheOlderOneAndNoLeavings) {
  save(1);
  std::vector<CheckpointEntry> entries;
  for (int i = 0; i < 40; ++i) entries.push_back({checkpoint_path("t", std::to_string(i)), ramp(context, {}, DType::u8)});
  const auto save_within = [&](rlim_t bytes) {
    const FileLimit limit(bytes);
    return error_of([&] { save_checkpoint(directory, 2, entries, {}, std::string(40'000, 'c')); });
  };
  std::map<std::string, int> failures;
  for (rlim_t limit = 0; limit < 100'000; limit = limit * 5 / 4 + 1) {
    const std::string error = save_within(limit);
    if (error == "no error") break;
    ASSERT_THAT(error, AllOf(HasSubstr("step-000002.tmp-"), HasSubstr("File too large (errno 27)"))) << limit;
    for (const char* file : {"rank-0000.h5", "checkpoint.h5", "manifest.json"})
      failures[file] += error.find(file) != error.npos;
    EXPECT_EQ(found_step(), 1u) << limit;
    EXPECT_THAT(reports, IsEmpty());
    EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 1) << limit;
  }
  for (const char* file : {"rank-0000.h5", "checkpoint.h5", "manifest.json"}) EXPECT_GT(failures[file], 0) << file;
  EXPECT_EQ(found_step(), 2u);  // the last save had room
  save(3);
  EXPECT_EQ(found_step(), 3u);
}

TEST_F(CheckpointFault, AnUnwritableDirectoryIsNamed) {
  write_file(temporary.path / "file", "in the way");
  const std::string error = error_of([&] { save_checkpoint(temporary.path / "file", 1, {}, {}, ""); });
  EXPECT_THAT(error, AllOf(HasSubstr("file"), HasSubstr("errno 20")));
}

// A writer is killed at random moments; whatever is found afterwards is whole, and never older than what was committed.
TEST_F(CheckpointFault, KilledWritersLeaveWholeCheckpoints) {
  // A child gets up to four times what one save takes here, later ones more, so that some end and some are cut short on any
  // machine, however busy it becomes.
  const auto begin = std::chrono::steady_clock::now();
  save(1, {400, 300});
  const auto one = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();
  RandomStream random(random_key(7, "kills"));
  std::uint64_t newest = 1;
  for (int trial = 0; trial < 25; ++trial) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (std::uint64_t step = newest + 1;; ++step) save(step, {400, 300});
    }
    ::usleep(static_cast<useconds_t>(2000 + random.below(static_cast<std::uint64_t>(4 * one * (1 + trial / 5)))));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    const std::uint64_t step = found_step();
    EXPECT_THAT(reports, IsEmpty()) << "trial " << trial;
    ASSERT_GE(step, newest) << "trial " << trial;
    const auto found = find_checkpoint(directory, {});
    EXPECT_EQ(found->manifest().state.at("step"), step);
    expect_same_bytes(found->read(context, "optimizer/step"), ramp(context, {}, DType::i64, step),
                      "trial " + std::to_string(trial));
    newest = step;
  }
  EXPECT_GT(newest, 1u) << "no save ever finished: the trial kills too early";
  save(newest + 1);
  for (const auto& entry : fs::directory_iterator(directory)) {
    EXPECT_EQ(entry.path().filename().string().find(".tmp-"), std::string::npos) << entry.path();
  }
}

}  // namespace
}  // namespace chorus
