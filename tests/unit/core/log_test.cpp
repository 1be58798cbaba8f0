#include <chorus/core/log.h>
#include <gtest/gtest.h>

#include <vector>

namespace chorus {
namespace {

struct Costly {
  int* formatted;
};
std::ostream& operator<<(std::ostream& out, const Costly& c) {
  ++*c.formatted;
  return out << "costly";
}

TEST(Log, WithoutASinkNothingIsFormatted) {
  int formatted = 0;
  const Log log;
  log.error(Costly{&formatted});
  EXPECT_EQ(formatted, 0);
  EXPECT_FALSE(log.listens(Level::error));
}

TEST(Log, PassesOnWhatIsAtLeastTheLevel) {
  std::vector<std::string> lines;
  int formatted = 0;
  const Log log(
      [&lines](Level level, std::string_view text) { lines.push_back(std::string(name(level)) + ": " + std::string(text)); },
      Level::warning);
  log.debug("no");
  log.info(Costly{&formatted});
  log.warning("step ", 3, " of ", 4.5);
  const Log copy = log;
  copy.error("lost");
  EXPECT_EQ(formatted, 0);
  EXPECT_EQ(lines, (std::vector<std::string>{"warning: step 3 of 4.5", "error: lost"}));
}

}  // namespace
}  // namespace chorus
