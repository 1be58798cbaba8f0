#include <chorus/io/metrics.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace chorus {
namespace {

TEST(TextScore, IsSummedOverTheCorpus) {
  TextScore score;
  score.add("press one now", "press won");  // characters: one -> won 2, " now" 4; words: 1 wrong, 1 missing
  EXPECT_EQ(score.characters.errors, 6);
  EXPECT_EQ(score.characters.reference, 13);
  EXPECT_EQ(score.words.errors, 2);
  EXPECT_EQ(score.words.reference, 3);
  score.add("", "extra");
  score.add("six", "six");
  EXPECT_EQ(score.characters.errors, 11);
  EXPECT_EQ(score.words.errors, 3);
  EXPECT_DOUBLE_EQ(score.words.value(), 3.0 / 4);
  EXPECT_TRUE(std::isnan(ErrorRate{}.value()));
}

TEST(TextScore, CountsCodePointsNotBytes) {
  TextScore score;
  score.add("für €5 😀", "fur €5 😀");
  EXPECT_EQ(score.characters.errors, 1);
  EXPECT_EQ(score.characters.reference, 8);
}

TEST(MetricsWriter, AppendsLinesWithEveryDigit) {
  const auto file = std::filesystem::temp_directory_path() / ("chorus_metrics_test." + std::to_string(getpid()));
  const double third = 1.0 / 3, tiny = 5e-324;
  MetricsWriter(file).write({{"step", std::int64_t{1}}, {"loss", third}, {"ok", true}, {"name", std::string("a\"b\nc")}});
  MetricsWriter writer(file);
  writer.write({{"tiny", tiny}, {"nan", std::nan("")}, {"inf", -std::numeric_limits<double>::infinity()}, {"one", 1.0}});
  std::ifstream in(file);  // the writer is still open: lines must be flushed
  std::string first, second, rest;
  std::getline(in, first);
  std::getline(in, second);
  EXPECT_FALSE(std::getline(in, rest));
  const auto a = nlohmann::json::parse(first), b = nlohmann::json::parse(second);
  EXPECT_EQ(a["step"], 1);
  EXPECT_EQ(a["loss"].get<double>(), third);
  EXPECT_EQ(a["ok"], true);
  EXPECT_EQ(a["name"], "a\"b\nc");
  EXPECT_EQ(b["tiny"].get<double>(), tiny);
  EXPECT_EQ(b["nan"], "nan");
  EXPECT_EQ(b["inf"], "-inf");
  EXPECT_TRUE(b["one"].is_number_float());
  std::filesystem::remove(file);
}

TEST(MetricsWriter, RemovesALineThatWasCutOff) {
  const auto file = std::filesystem::temp_directory_path() / ("chorus_metrics_torn." + std::to_string(getpid()));
  const std::string whole = "{\"step\":1}\n";
  for (const std::string& before : {whole + "{\"step\":2,\"lo", std::string("{\"st"), whole, std::string()}) {
    std::ofstream(file) << before;
    MetricsWriter(file).write({{"step", std::int64_t{2}}});
    std::ifstream in(file);
    const std::string now{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(now, (before.starts_with(whole) ? whole : "") + "{\"step\":2}\n") << "after '" << before << "'";
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace chorus
