#include <chorus/io/tfevents.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "tfevents_reader.h"

namespace chorus {
namespace {
using namespace testing;

class EventFiles : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder); }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("chorus_tfevents_test." + std::to_string(getpid()));
};

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    ((out += digits[static_cast<unsigned char>(c) >> 4]) += digits[c & 15]);
  }
  return out;
}

TEST(Crc32c, GivesTheValuesOfTheStandard) {  // RFC 3720, B.4
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  EXPECT_EQ(crc32c(ascending), 0x46DD794Eu);
}

TEST_F(EventFiles, HoldKnownBytes) {
  EventFile file(folder, 8, 1.5);
  const Scalar loss{"loss", 0.25};
  file.scalars(300, 2.5, std::span(&loss, 1));
  const std::string bytes = read_file(file.path());
  // As TensorBoard's own writer makes them of the same events.
  EXPECT_EQ(hex(bytes),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c0f000000000000006d53"
            "2b0909000000000000f83f10083a0208019571c7d11b000000000000001a0d9e1309000000000000044010ac022a0d0a0b0a"
            "046c6f7373150000803e205d3896");
}

TEST_F(EventFiles, AreReadBack) {
  EventFile file(folder, 1, 1e9);
  const double third = 1.0 / 3;
  const std::vector<Scalar> scalars{{"a/b", third}, {"nan", std::nan("")}, {"huge", -1e300}, {"zero", 0}};
  file.scalars(1, 1e9 + 1, scalars);
  file.text(123456789012, 1e9 + 2, "config", "```\nsteps = 3\n```\n");
  const auto events = read_events(file.path());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1e9);
  EXPECT_TRUE(events[1].session_start);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[2].wall_time, 1e9 + 1);
  EXPECT_EQ(events[2].scalars.at("a/b"), static_cast<float>(third));
  EXPECT_TRUE(std::isnan(events[2].scalars.at("nan")));
  EXPECT_EQ(events[2].scalars.at("huge"), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(events[2].scalars.at("zero"), 0);
  EXPECT_EQ(events[3].step, 123456789012);
  EXPECT_EQ(events[3].texts.at("config"), "```\nsteps = 3\n```\n");
}

TEST_F(EventFiles, ATornEndHidesNothingElse) {
  EventFile file(folder, 1, 1);
  for (std::int64_t step = 1; step <= 3; ++step) {
    const Scalar x{"x", static_cast<double>(step)};
    file.scalars(step, 1, std::span(&x, 1));
  }
  const std::string whole = read_file(file.path());
  const auto events_of = [&](const std::string& bytes) {
    std::ofstream(folder / "torn", std::ios::binary) << bytes;
    return read_events(folder / "torn").size();
  };
  EXPECT_EQ(events_of(whole), 5u);
  std::size_t last = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto n = events_of(whole.substr(0, size));
    EXPECT_TRUE(n == last || n == last + 1) << size;
    last = n;
  }
  EXPECT_EQ(last, 4u);
  std::string flipped = whole;
  flipped[whole.size() - 6] ^= 1;
  EXPECT_EQ(events_of(flipped), 4u);
}

TEST_F(EventFiles, LaterOnesSortBehindEarlierOnes) {
  std::vector<std::filesystem::path> made;
  for (const double time : {1000.0, 1000.2, 999.0, 1'234'567'890.0, 5.0}) made.push_back(EventFile(folder, 1, time).path());
  EXPECT_EQ(event_files(folder), made);
}

TEST_F(EventFiles, AFolderThatIsNotThereIsAnError) { EXPECT_THROW(EventFile(folder / "none", 1, 1), std::exception); }

}  // namespace
}  // namespace chorus
