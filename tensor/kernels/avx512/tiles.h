// The inner loops of own matrix products with AVX-512. This file's source is compiled for AVX-512 whatever the build is for and
// called only where the processor has it. Everything here takes plain pointers: an inline function of another
// header, compiled there too, could become the copy that the rest of the program calls.
#pragma once
#include <cstdint>

namespace chorus::kernel::avx512 {

/// Whether this build has the loops; `avx512_loops()` says whether they may be called.
extern const bool built;

inline constexpr std::int64_t panel_columns = 32;  ///< of the right operand: packed [depth][32], zeros where the matrix ends
inline constexpr std::int64_t group_rows = 12;     ///< of the left operand: packed [depth][12]

/// f32 or bf16 values; strides and offsets count values.
struct Source {
  const void* data;
  bool half;  ///< bf16
  std::int64_t ld;
};

/// panel[k][c] = source(k, c) for c < columns, 0 for the rest.
void pack_panel(Source source, std::int64_t depth, std::int64_t columns, float* panel);
/// panel[k][c] = source(c, k).
void pack_panel_transposed(Source source, std::int64_t depth, std::int64_t columns, float* panel);
/// group[k][r] = source(k, r) for r < rows, 0 for the rest.
void pack_group(Source source, std::int64_t depth, std::int64_t rows, float* group);
/// target[r * depth + k] = source(r, k).
void widen(Source source, std::int64_t rows, std::int64_t depth, float* target);

/// Rows of the left operand: as they are, (r, k) at data[r * ld + k], or in groups one after another.
struct Left {
  const float* data;
  std::int64_t rows;
  std::int64_t ld;  ///< 0: groups of [depth][12]
};
/// Where results go; (r, c) at data[r * ld + c], f32 or bf16.
struct Target {
  void* data;
  bool half;
  std::int64_t ld;
  std::int64_t columns;  ///< at most 32
  bool accumulate;       ///< add to what is there
  const void* bias;      ///< [columns] to be added to every row, or null
  bool bias_half;
};
/// One panel's columns of the product. Each value is summed in order of k from 0, whatever rows it is computed with.
void multiply(const Left& a, const float* panel, std::int64_t depth, const Target& y);

}  // namespace chorus::kernel::avx512
