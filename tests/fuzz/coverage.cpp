// Tells libFuzzer where code compiled by GCC has been: GCC calls `__sanitizer_cov_trace_pc` in every block, and libFuzzer looks
// at all counters in a section of this name (LLVM's libFuzzer, FuzzerExtraCounters). Clang 14, whose own instrumentation
// libFuzzer knows, does not compile libstdc++'s <source_location>.
#include <cstddef>
#include <cstdint>

namespace {
constexpr std::size_t counters = 1 << 15;
}
__attribute__((section("__libfuzzer_extra_counters"))) std::uint8_t chorus_fuzz_counters[counters];

// libFuzzer has a function of this name that does nothing; the linker's --wrap puts this one in its place.
extern "C" void __wrap___sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  std::uint8_t& counter = chorus_fuzz_counters[(place ^ (place >> 15)) % counters];
  if (counter < 255) ++counter;
}

// Comparisons of floating point numbers, which GCC reports and libFuzzer has no use for.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}
