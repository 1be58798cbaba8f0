#include <chorus/core/cpu.h>
#include <chorus/core/error.h>
#include <gmock/gmock.h>
#include <sched.h>

#include <thread>

namespace chorus {
namespace {

using ::testing::HasSubstr;

constexpr const char* emerald = R"(processor	: 0
model name	: Some Xeon
flags		: fpu sse4_2 avx avx2 fma avx512f avx512bw avx512dq avx512vl avx512_bf16

processor	: 1
model name	: Another
flags		: fpu
)";

TEST(Cpu, ReadsModelAndFeatures) {
  const CpuInfo cpu = parse_cpuinfo(emerald);
  EXPECT_EQ(cpu.model, "Some Xeon");
  EXPECT_TRUE(cpu.avx2());
  EXPECT_TRUE(cpu.avx512());
  EXPECT_TRUE(cpu.avx512_bf16());
  EXPECT_FALSE(cpu.amx_bf16());
  EXPECT_FALSE(cpu.has("avx512"));
  EXPECT_EQ(describe(cpu, 2), "Some Xeon, AVX-512, bf16 instructions, 2 threads");
  EXPECT_EQ(describe(parse_cpuinfo(""), 1), "unknown processor, no AVX2, 1 thread");
}

TEST(Cpu, ArmNamesItsFeatures) { EXPECT_TRUE(parse_cpuinfo("Features\t: fp asimd bf16\n").has("asimd")); }

TEST(Cpu, AMissingFeatureIsNamed) {
  const CpuInfo cpu = parse_cpuinfo(emerald);
  EXPECT_NO_THROW(require_cpu(cpu, {"avx2", "fma"}));
  try {
    require_cpu(cpu, {"avx2", "amx_tile", "amx_bf16"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("needs amx_tile amx_bf16, which Some Xeon does not have"));
    EXPECT_THAT(e.what(), HasSubstr("CHORUS_ARCH"));
  }
}

TEST(Cpu, ThisMachineRunsThisBuild) {
  EXPECT_NO_THROW(require_cpu(cpu_info()));
  for (const auto& feature : build_features()) EXPECT_TRUE(cpu_info().has(feature)) << feature;
}

TEST(Cpu, ThreadsStayWithinTheAffinity) {
  const int all = compute_threads();
  EXPECT_GE(all, 1);
  EXPECT_LE(all, static_cast<int>(std::thread::hardware_concurrency()));
  int pinned = 0;
  std::thread([&pinned] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);
    pinned = compute_threads();
  }).join();
  EXPECT_EQ(pinned, 1);
}

}  // namespace
}  // namespace chorus
