#pragma once
#include <chorus/tensor/tensor.h>

namespace chorus::kernel {

/// Cosines and sines of the distinct positions of one call, computed in double.
struct RopeTable {
  Tensor values;  ///< wide type [distinct positions, head_dim]: head_dim / 2 cosines, then as many sines
  Tensor slots;   ///< i32 [rows]: which row of `values` belongs to each row
};
/// Angle i of position p is p * base^(-2i / head_dim). positions i32 [rows].
RopeTable rope_table(Cpu, const Tensor& positions, int head_dim, double base, DType type);

/// Tables of one batch, so that layers don't make their own.
struct RopeTables {
  struct Entry {
    Tensor positions;  ///< kept, so that no other positions can lie where these do
    int head_dim;
    double base;
    RopeTable table;
  };
  std::vector<Entry> entries;
  /// The table of these positions: one that is there, or a new one.
  const RopeTable& find(Cpu, const Tensor& positions, int head_dim, double base, DType type);
};

/// Rotates the pairs (i, i + head_dim / 2) of the first `heads` heads of x [rows, total * head_dim], forward or back; the
/// other heads are copied. y may be x.
void rope(Cpu, const Tensor& x, const RopeTable& table, int heads, int head_dim, bool back, Tensor& y);

}  // namespace chorus::kernel
