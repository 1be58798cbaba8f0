#include <chorus/core/error.h>
#include <chorus/core/trace.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

namespace chorus {
namespace {

using Time = std::chrono::steady_clock::time_point;
Time at(std::int64_t microseconds) { return Time(std::chrono::microseconds(microseconds)); }

nlohmann::json written(const Trace& trace, int rank) {
  const auto file = std::filesystem::temp_directory_path() / ("chorus_trace_test_" + std::to_string(::getpid()) + ".json");
  trace.write(file, rank);
  auto json = nlohmann::json::parse(std::ifstream(file));
  std::filesystem::remove(file);
  return json;
}

TEST(Trace, SumsByName) {
  Trace trace;
  trace.sum(true);
  const std::string other_address = "matmul";
  trace.add("matmul", at(0), at(1000), 10, 1);
  trace.add(other_address.c_str(), at(1000), at(3000), 20, 2);
  trace.add("norm", at(0), at(500), 0, 0);
  const auto totals = trace.totals();
  ASSERT_EQ(totals.size(), 2u);
  EXPECT_EQ(totals.at("matmul").count, 2);
  EXPECT_DOUBLE_EQ(totals.at("matmul").seconds, 3e-3);
  EXPECT_DOUBLE_EQ(totals.at("matmul").flops, 30);
  EXPECT_DOUBLE_EQ(totals.at("matmul").bytes, 3);
  trace.reset();
  EXPECT_TRUE(trace.totals().empty());
}

TEST(Trace, IsSilentWhileOff) {
  Trace trace;
  { Span span(trace, "nothing"); }
  EXPECT_FALSE(trace.on());
  EXPECT_TRUE(trace.totals().empty());
  EXPECT_EQ(written(trace, 0)["traceEvents"].size(), 1u);  // the rank's name
}

TEST(Trace, WritesChromeEvents) {
  Trace trace;
  trace.record(true);
  trace.add("say \"hi\"\n", at(1'000'000'000'005), at(1'000'000'000'015), 2e4, 0);
  { Span span(trace, "real"); }
  const auto json = written(trace, 3);
  ASSERT_EQ(json["traceEvents"].size(), 3u);
  const auto& event = json["traceEvents"][1];
  EXPECT_EQ(event["name"], "say \"hi\"\n");
  EXPECT_EQ(event["ph"], "X");
  EXPECT_EQ(event["pid"], 3);
  EXPECT_DOUBLE_EQ(event["ts"], 1'000'000'000'005.0);
  EXPECT_DOUBLE_EQ(event["dur"], 10.0);
  EXPECT_DOUBLE_EQ(event["args"]["gflop_per_s"], 2.0);
  EXPECT_EQ(json["traceEvents"][2]["name"], "real");
}

TEST(Trace, ThreadsGetNumbers) {
  Trace trace;
  trace.sum(true);
  trace.record(true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&trace] {
      for (int i = 0; i < 100; ++i) Span span(trace, "work", 1, 1);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(trace.totals().at("work").count, 400);
  std::map<int, int> per_thread;
  const auto json = written(trace, 0);
  for (const auto& event : json["traceEvents"])
    if (event["ph"] == "X") ++per_thread[event["tid"]];
  EXPECT_EQ(per_thread, (std::map<int, int>{{0, 100}, {1, 100}, {2, 100}, {3, 100}}));
}

TEST(Trace, KeepsTheNewestEventsInOrder) {
  Trace trace(100);
  trace.record(true);
  for (std::int64_t i = 0; i < 230; ++i) trace.add("e", at(i), at(i + 1), 0, 0);
  const auto json = written(trace, 0);
  ASSERT_EQ(json["traceEvents"].size(), 101u);
  for (int i = 0; i < 100; ++i) EXPECT_DOUBLE_EQ(json["traceEvents"][static_cast<std::size_t>(i) + 1]["ts"], 130.0 + i);
  EXPECT_EQ(json["otherData"]["spans"], 100);
  EXPECT_EQ(json["otherData"]["left_out"], 130);
  EXPECT_EQ(json["otherData"]["note"], "only the newest 100 spans are kept; 130 older ones are left out");
  trace.reset();
  trace.add("e", at(0), at(1), 0, 0);
  EXPECT_EQ(written(trace, 0)["otherData"], (nlohmann::json{{"spans", 1}, {"left_out", 0}}));
}

TEST(Trace, NamesTheFileItCannotWrite) {
  const Trace trace;
  try {
    trace.write("/nonexistent/trace.json");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("/nonexistent/trace.json"), std::string::npos);
  }
}

TEST(Trace, TotalsDontCountInnerSpansTwice) {
  Trace trace;
  trace.sum(true);
  const auto wait = [](int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); };
  const auto begin = std::chrono::steady_clock::now();
  {
    const Span outer(trace, "outer");
    wait(2);
    for (int i = 0; i < 3; ++i) {
      const Span inner(trace, "inner");
      wait(3);
    }
  }
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto totals = trace.totals();
  EXPECT_GE(totals.at("inner").seconds, 9e-3);
  EXPECT_GE(totals.at("outer").seconds, 2e-3);
  EXPECT_LE(totals.at("outer").seconds + totals.at("inner").seconds, all);
}

}  // namespace
}  // namespace chorus
