#pragma once
#include <chorus/nn/module.h>
#include <chorus/tensor/ops/table_part.h>

namespace chorus {

struct LinearOptions {
  bool bias = true;
  Init init;  ///< of the weight; xavier when left at zeros
};

/// y[.., out] = x[.., in] weight^T + bias. The bias is added after the out port.
struct Linear {
  Linear() = default;
  Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options = {});
  Param weight, bias;
  Port in, out;
  Tensor operator()(const Tensor& x) const;
  template <class V>
  void fields(V&& v) {
    v("weight", weight);
    v("bias", bias);
    v("in", in);
    v("out", out);
  }
};

/// Linear layers that read the same input, done as one product; they share the in port. The result holds the parts side by
/// side. Part i is the logical parameters "<name>.weight" [out_i, in] and "<name>.bias".
struct StackedLinear {
  StackedLinear() = default;
  StackedLinear(std::int64_t in_features, const std::vector<std::pair<std::string, std::int64_t>>& parts,
                const LinearOptions& options = {});
  Stacked weight, bias;
  Port in;
  Tensor operator()(const Tensor& x) const;
  template <class V>
  void fields(V&& v) {
    v("weight", weight);
    v("bias", bias);
    v("in", in);
  }
};

/// Which rows of a table this rank holds.
TablePart rows_held(const Param& table);

/// Rows of a table. Ids i32 [T] -> [T, n]. Rows that lie on other ranks give zeros.
struct Embedding {
  Embedding() = default;
  Embedding(std::int64_t rows, std::int64_t features, Init init) : weight({rows, features}, init) {}
  Param weight;
  Port out;
  Tensor operator()(const Tensor& ids) const;
  template <class V>
  void fields(V&& v) {
    v("weight", weight);
    v("out", out);
  }
};

}  // namespace chorus
