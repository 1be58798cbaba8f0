#pragma once
#include <chorus/nn/layers/linear.h>
#include <chorus/nn/layers/norm.h>
#include <chorus/tensor/ops/attention.h>

namespace chorus {

/// Keys and values of the rows seen so far, for decoding; one layer of B sequences.
struct KeyValueCache {
  Tensor keys, values;  ///< [B, capacity, kv_heads * head_dim]
};

/// Which heads this rank holds.
struct HeadsHeld {
  int heads = 0, kv_heads = 0, first_head = 0;
};

/// Grouped-query self-attention (Ainslie et al. 2023) with rotary positions, without its norm.
struct RotaryAttention {
  struct Options {
    int heads = 8, kv_heads = 8, head_dim = 64;
    bool causal = true, bias = false;
    double rope_base = 10000, dropout = 0;
  };
  RotaryAttention() = default;
  RotaryAttention(std::int64_t features, const Options& options);
  StackedLinear qkv;
  Linear out;
  Dropout dropout;
  Slot<Tensor(Tensor, const Rows&, const AttentionOptions&)> core;  ///< attention of qkv after rope
  Options options;

  HeadsHeld heads_held() const;
  Tensor operator()(const Tensor& x, const Rows& rows, const Pass& pass) const;
  /// As above, in evaluation mode, and keeps keys and values of every sequence in its slot of the cache.
  Tensor prefill(const Tensor& x, const Rows& rows, KeyValueCache& cache) const;
  /// One new row per sequence: x [B, features]; its key and value go to row lengths[b] of the cache (i32 [B]).
  Tensor decode(const Tensor& x, const Rows& rows, KeyValueCache& cache, const Tensor& lengths) const;
  template <class V>
  void fields(V&& v) {
    qkv.fields(v);
    v("out", out);
    v("dropout", dropout);
    v("core", core);
  }

 private:
  Tensor rotated(const Tensor& x, const Rows& rows) const;
  AttentionOptions core_options() const;
};

/// Self-attention with relative positions as in Transformer-XL (Dai et al. 2019) and FastConformer: bidirectional, biases
/// u and v of its own, the sinusoids projected without bias.
struct RelativeAttention {
  struct Options {
    int heads = 8;
    int head_dim = 0;  ///< 0: features / heads
    bool bias = true;
    double dropout = 0;
  };
  RelativeAttention() = default;
  RelativeAttention(std::int64_t features, const Options& options);
  StackedLinear qkv;
  Linear pos, out;
  Param pos_bias_u, pos_bias_v;
  Dropout dropout;
  Slot<Tensor(Tensor, Tensor, Tensor, Tensor, const Rows&, const AttentionOptions&)> core;
  Options options;
  /// `encoding` [2 * reach - 1, features] is `relative_encoding` of a reach no less than the longest sequence.
  Tensor operator()(const Tensor& x, const Tensor& encoding, const Rows& rows, const Pass& pass) const;
  template <class V>
  void fields(V&& v) {
    qkv.fields(v);
    v("pos", pos);
    v("pos_bias_u", pos_bias_u);
    v("pos_bias_v", pos_bias_v);
    v("out", out);
    v("dropout", dropout);
    v("core", core);
  }
};

/// Sinusoids of the offsets reach-1 ... -(reach-1): sin in even columns, cos in odd ones, base 10000 (Vaswani et al. 2017).
Tensor relative_encoding(Context& context, std::int64_t reach, std::int64_t features, DType dtype);

}  // namespace chorus
