// For processors that can't have AVX-512.
#include <chorus/core/error.h>
#include <chorus/tensor/kernels/avx512/philox.h>
#include <chorus/tensor/kernels/avx512/tiles.h>

namespace chorus::kernel::avx512 {
namespace {
[[noreturn]] void absent() { fail("avx512", "this build has no such loops"); }
}  // namespace

const bool built = false;
void pack_panel(Source, std::int64_t, std::int64_t, float*) { absent(); }
void pack_panel_transposed(Source, std::int64_t, std::int64_t, float*) { absent(); }
void pack_group(Source, std::int64_t, std::int64_t, float*) { absent(); }
void widen(Source, std::int64_t, std::int64_t, float*) { absent(); }
void philox(std::uint64_t, const std::uint32_t*, int, std::uint32_t (*)[philox_blocks]) { absent(); }
void philox_in_order(std::uint64_t, const std::uint32_t*, int, std::uint32_t (*)[4]) { absent(); }
void multiply(const Left&, const float*, std::int64_t, const Target&) { absent(); }

}  // namespace chorus::kernel::avx512
