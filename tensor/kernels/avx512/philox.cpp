#include <chorus/tensor/kernels/avx512/philox.h>
#include <immintrin.h>

namespace chorus::kernel::avx512 {
namespace {

struct Products {
  __m512i high, low;
};
/// 32 x 32 -> 64 bits in each of the sixteen lanes: even lanes in place, odd ones shifted down.
[[gnu::always_inline]] inline Products multiply(__m512i x, __m512i factor) {
  const __m512i even = _mm512_mul_epu32(x, factor), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), factor);
  constexpr __mmask16 odd_lanes = 0xaaaa;
  return {_mm512_mask_blend_epi32(odd_lanes, _mm512_srli_epi64(even, 32), odd),
          _mm512_mask_blend_epi32(odd_lanes, even, _mm512_slli_epi64(odd, 32))};
}

struct Blocks {
  __m512i word[4];
};
/// Ten rounds (Salmon et al. 2011).
[[gnu::always_inline]] inline Blocks rounds(std::uint64_t key, const std::uint32_t counter[4], int word) {
  Blocks c;
  for (int w = 0; w < 4; ++w) {
    c.word[w] = _mm512_set1_epi32(static_cast<int>(counter[w]));
    if (w == word)
      c.word[w] = _mm512_add_epi32(c.word[w], _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  }
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  const __m512i m0 = _mm512_set1_epi64(0xD2511F53), m1 = _mm512_set1_epi64(0xCD9E8D57);
  for (int round = 0; round < 10; ++round) {
    const Products p0 = multiply(c.word[0], m0), p1 = multiply(c.word[2], m1);
    c.word[0] = _mm512_xor_si512(_mm512_xor_si512(p1.high, c.word[1]), _mm512_set1_epi32(static_cast<int>(k0)));
    c.word[2] = _mm512_xor_si512(_mm512_xor_si512(p0.high, c.word[3]), _mm512_set1_epi32(static_cast<int>(k1)));
    c.word[1] = p1.low;
    c.word[3] = p0.low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace

void philox(std::uint64_t key, const std::uint32_t counter[4], int word, std::uint32_t words[4][philox_blocks]) {
  const Blocks c = rounds(key, counter, word);
  for (int w = 0; w < 4; ++w) _mm512_storeu_si512(words[w], c.word[w]);
}

void philox_in_order(std::uint64_t key, const std::uint32_t counter[4], int word, std::uint32_t blocks[philox_blocks][4]) {
  const Blocks c = rounds(key, counter, word);
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
