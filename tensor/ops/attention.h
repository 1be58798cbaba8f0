// Attention over packed sequences: rows attend within their own sequence only. Scores exist for a block at a time.
#pragma once
#include <chorus/core/rng.h>
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/rows.h>

namespace chorus {

struct AttentionOptions {
  int heads = 1;     ///< query heads
  int kv_heads = 1;  ///< divides heads: query head h reads key/value head h / (heads / kv_heads)
  int head_dim = 64;
  bool causal = true;
  double dropout = 0;  ///< of probabilities; counter (sample lo, query position, key position / 8, head), key `key`
  RandomKey key = {};
  int first_head = 0;  ///< of a layer whose heads are computed in parts: how many heads lie before these; added to the head
                       ///< in dropout's counter
};

/// softmax(q k^T / sqrt(head_dim)) v per head, with an online softmax over blocks (Dao et al. 2022).
/// qkv [T, (heads + 2 kv_heads) * head_dim] holds q, k, v heads side by side; the result is [T, heads * head_dim].
Tensor attention(const Tensor& qkv, const Rows& rows, const AttentionOptions& options);

/// Bidirectional attention with relative positions (Dai et al. 2019, as in FastConformer): the score of (i, j) is
/// ((q_i + u) k_j + (q_i + v) p_{i-j}) / sqrt(head_dim). u, v [heads * head_dim]; p [2 * reach - 1, heads * head_dim] holds
/// the projected encoding of offset reach-1 in row 0 down to -(reach-1); reach >= the longest sequence. kv_heads == heads.
Tensor relative_attention(const Tensor& qkv, const Tensor& u, const Tensor& v, const Tensor& p, const Rows& rows,
                          const AttentionOptions& options);

/// Inference: one new query row for each of B sequences against cached keys and values. q [B, heads * head_dim],
/// keys and values [B, capacity, kv_heads * head_dim], of which the first lengths[b] (i32 [B]) rows count. No gradient.
Tensor cached_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& lengths,
                        const AttentionOptions& options);

}  // namespace chorus
