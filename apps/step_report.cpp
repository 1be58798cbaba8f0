#include <chorus/apps/step_report.h>

#include <algorithm>

namespace chorus {

std::map<std::string, Trace::Total> added_since(const std::map<std::string, Trace::Total>& before,
                                                std::map<std::string, Trace::Total> now) {
  for (const auto& [name, old] : before) {
    auto& total = now.at(name);
    total.count -= old.count;
    total.seconds -= old.seconds;
    total.flops -= old.flops;
    total.bytes -= old.bytes;
  }
  std::erase_if(now, [](const auto& op) { return op.second.count == 0; });
  return now;
}

RowCounts heaviest_rows(const LoadedBatch& batch, const RunConfig& config, const Prompt& prompt) {
  RowCounts out;
  for (const auto& micro : batch.microbatches) {
    std::vector<SampleShape> shapes;
    for (std::size_t i = 0; i < micro.ids.size(); ++i) shapes.push_back({micro.frames_of[i], std::ssize(micro.tokens[i])});
    out = largest(out, row_counts(config, prompt, shapes));
  }
  return out;
}

void report_over_ranks(StepReport& report, const MemoryStats& memory, std::size_t most_before, Group& world) {
  std::array<std::int64_t, 7 + 2 * category_count> bytes{};
  const auto each = [&](const auto& f) {  // every figure of the report with its place in `bytes`
    f(report.memory, bytes[0]);
    f(report.memory_step_peak, bytes[1]);
    f(report.memory_peak, bytes[2]);
    for (std::size_t i = 0; i < category_count; ++i) {
      f(report.memory_of[i], bytes[3 + i]);
      f(report.memory_peak_of[i], bytes[3 + category_count + i]);
    }
    std::size_t at = 3 + 2 * category_count;
    for (std::int64_t* rows : {&report.heaviest.encoder, &report.heaviest.decoder, &report.heaviest.longest_encoder,
                               &report.heaviest.longest_decoder})
      f(*rows, bytes[at++]);
  };
  report.memory = memory.total;
  report.memory_step_peak = memory.peak_total;
  report.memory_peak = std::max(most_before, memory.peak_total);
  report.memory_of = memory.current;
  report.memory_peak_of = memory.peak;
  each([](auto figure, std::int64_t& at) { at = static_cast<std::int64_t>(figure); });
  world.all_reduce(std::span<std::int64_t>(bytes), Reduce::max);
  each([](auto& figure, std::int64_t at) { figure = static_cast<std::remove_reference_t<decltype(figure)>>(at); });
  world.all_reduce(std::span<double>(&report.flops, 1));
}

}  // namespace chorus
