#include <chorus/tensor/kernels/avx512/philox.h>
#include <immintrin.h>

namespace chorus::kernel::avx512 {
namespace {

struct Blocks {
  __m512i word[4];
};

/// Eight blocks, each in the lower half of a 64-bit lane; the upper halves hold whatever products leave there. Ten rounds
/// (Salmon et al. 2011).
[[gnu::always_inline]] inline Blocks rounds(std::uint64_t key, Blocks c) {
  const __m512i m0 = _mm512_set1_epi64(0xD2511F53), m1 = _mm512_set1_epi64(0xCD9E8D57);
  // Moving the upper half down by a shuffle leaves the unit that multiplies alone; a shift would not.
  const auto upper = [](__m512i x) { return _mm512_castps_si512(_mm512_movehdup_ps(_mm512_castsi512_ps(x))); };
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const __m512i p0 = _mm512_mul_epu32(c.word[0], m0), p1 = _mm512_mul_epu32(c.word[2], m1);
    const __m512i t1 = _mm512_xor_si512(c.word[1], _mm512_set1_epi32(static_cast<int>(k0)));
    const __m512i t3 = _mm512_xor_si512(c.word[3], _mm512_set1_epi32(static_cast<int>(k1)));
    c = {{_mm512_xor_si512(upper(p1), t1), p1, _mm512_xor_si512(upper(p0), t3), p0}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/// Sixteen: those with an even and those with an odd number side by side.
[[gnu::always_inline]] inline Blocks sixteen(std::uint64_t key, const std::uint32_t counter[4], int word) {
  Blocks even, odd;
  for (int w = 0; w < 4; ++w) even.word[w] = odd.word[w] = _mm512_set1_epi64(counter[w]);
  const __m512i number = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
  even.word[word] = _mm512_add_epi64(even.word[word], number);
  odd.word[word] = _mm512_add_epi64(even.word[word], _mm512_set1_epi64(1));
  even = rounds(key, even);
  odd = rounds(key, odd);
  constexpr __mmask16 odd_lanes = 0xaaaa;
  Blocks c;
  for (int w = 0; w < 4; ++w) c.word[w] = _mm512_mask_blend_epi32(odd_lanes, even.word[w], _mm512_slli_epi64(odd.word[w], 32));
  return c;
}

}  // namespace

void philox(std::uint64_t key, const std::uint32_t counter[4], int word, std::uint32_t words[4][philox_blocks]) {
  const Blocks c = sixteen(key, counter, word);
  for (int w = 0; w < 4; ++w) _mm512_storeu_si512(words[w], c.word[w]);
}

void philox_in_order(std::uint64_t key, const std::uint32_t counter[4], int word, std::uint32_t blocks[philox_blocks][4]) {
  const Blocks c = sixteen(key, counter, word);
  // Each 128-bit part j of a register holds blocks 4 j ... 4 j + 3; a 4 x 4 transpose within the parts, then parts in order.
  const __m512i a = _mm512_unpacklo_epi32(c.word[0], c.word[1]), b = _mm512_unpackhi_epi32(c.word[0], c.word[1]);
  const __m512i d = _mm512_unpacklo_epi32(c.word[2], c.word[3]), e = _mm512_unpackhi_epi32(c.word[2], c.word[3]);
  const __m512i rows[4] = {_mm512_unpacklo_epi64(a, d), _mm512_unpackhi_epi64(a, d), _mm512_unpacklo_epi64(b, e),
                           _mm512_unpackhi_epi64(b, e)};  // rows[i]: blocks i, 4 + i, 8 + i, 12 + i
  for (int i = 0; i < 4; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(blocks[i]), _mm512_extracti32x4_epi32(rows[i], 0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(blocks[4 + i]), _mm512_extracti32x4_epi32(rows[i], 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(blocks[8 + i]), _mm512_extracti32x4_epi32(rows[i], 2));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(blocks[12 + i]), _mm512_extracti32x4_epi32(rows[i], 3));
  }
}

}  // namespace chorus::kernel::avx512
