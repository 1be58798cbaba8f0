#include <chorus/core/mapped_file.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>

#include "resident.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::resident_bytes_of;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

struct MappedFiles : ::testing::Test {
  fs::path folder = fs::temp_directory_path() / ("chorus_mapped." + std::to_string(getpid()));
  MappedFiles() { fs::create_directories(folder); }
  ~MappedFiles() override { fs::remove_all(folder); }
};

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(MappedFiles, ReadAsZerosAndKeepWhatIsWritten) {
  const std::size_t bytes = 3 * mebibyte + 100;
  const MappedFile file(folder, "state", bytes);
  EXPECT_TRUE(fs::is_empty(folder)) << "it has no name, so nothing is left of a program that is killed";
  auto* data = static_cast<unsigned char*>(file.data());
  for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(data[i], 0) << i;
  for (int round = 1; round < 4; ++round) {
    for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(i * 7 / 5 + static_cast<std::size_t>(round));
    file.let_go(0, bytes);
    file.expect(mebibyte, mebibyte);
    for (std::size_t i = 0; i < bytes; ++i)
      ASSERT_EQ(data[i], static_cast<unsigned char>(i * 7 / 5 + static_cast<std::size_t>(round))) << i;
  }
}

TEST_F(MappedFiles, TakeNoMemoryForWhatWasLetGo) {
  const MappedFile file(folder, "state", 8 * mebibyte);
  const auto resident = [&] { return resident_bytes_of(file.data()); };
  ASSERT_EQ(resident(), 0) << "room is taken on the disk, not in memory";
  std::memset(file.data(), 1, file.bytes());
  EXPECT_EQ(resident(), 8 * static_cast<std::int64_t>(mebibyte));
  file.let_go(3 * mebibyte + 5, 2 * mebibyte);  // and the pages that this begins and ends in
  EXPECT_EQ(resident(), 6 * static_cast<std::int64_t>(mebibyte) - ::sysconf(_SC_PAGESIZE));
  file.let_go(4 * mebibyte, 0);
  EXPECT_EQ(resident(), 6 * static_cast<std::int64_t>(mebibyte) - ::sysconf(_SC_PAGESIZE));
  file.let_go(0, file.bytes());
  EXPECT_EQ(resident(), 0);
}

TEST_F(MappedFiles, RefuseWhatLiesBeyondTheirEnd) {
  const MappedFile file(folder, "state", 5000);
  EXPECT_THAT(error_of([&] { file.let_go(4000, 1001); }), HasSubstr("1001 bytes at 4000 of 5000"));
  EXPECT_THAT(error_of([&] { file.expect(5001, 0); }), HasSubstr("0 bytes at 5001 of 5000"));
}

TEST_F(MappedFiles, NameTheFolderThatIsMissingOrTooSmall) {
  EXPECT_THAT(error_of([] { const MappedFile file("/nowhere/at/all", "state", 1); }),
              HasSubstr("cannot create /nowhere/at/all/state."));
  // No disk has so much.
  EXPECT_THAT(error_of([&] { const MappedFile file(folder, "state", std::size_t{1} << 60); }),
              HasSubstr("cannot reserve 1152921504606846976 bytes for " + (folder / "state.").string()));
  EXPECT_TRUE(fs::is_empty(folder));
}

}  // namespace
}  // namespace chorus
