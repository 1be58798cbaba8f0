// Blocked attention: at no time does a whole score matrix exist.
#pragma once
#include <chorus/tensor/ops/attention.h>

namespace chorus::kernel {

/// Pairs of query and key that see each other, per head.
inline double visible_pairs(const Rows& rows, bool causal) {
  double pairs = 0;
  for (std::int64_t s = 0; s < rows.sequences(); ++s) {
    const auto n = static_cast<double>(rows.length(s));
    pairs += causal ? n * (n + 1) / 2 : n * n;
  }
  return pairs;
}

/// The extra inputs of relative attention and, on the way back, their gradients (of any floating type).
struct RelativeTerms {
  Tensor u, v;  ///< [heads * head_dim]
  Tensor p;     ///< [2 * reach - 1, heads * head_dim], row r for offset reach - 1 - r
};

/// y [T, heads * head_dim] and lse [heads, T]: the logarithm of each row's sum of exponentials, in the type sums are done in.
void attention(Cpu, const Tensor& qkv, const RelativeTerms* relative, const Rows& rows, const AttentionOptions& options,
               Tensor& y, Tensor& lse);
/// dqkv, and the gradients of the relative terms into `drelative` where its tensors exist.
void attention_backward(Cpu, const Tensor& qkv, const RelativeTerms* relative, const Rows& rows,
                        const AttentionOptions& options, const Tensor& y, const Tensor& lse, const Tensor& dy, Tensor& dqkv,
                        RelativeTerms* drelative);

void cached_attention(Cpu, const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& lengths,
                      const AttentionOptions& options, Tensor& y);

}  // namespace chorus::kernel
