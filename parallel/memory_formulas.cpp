#include <chorus/parallel/memory_formulas.h>

namespace chorus {
namespace {

/// Bytes of matrices and vectors of a layer's rows, whole or cut as activations between the products are.
struct Sizes {
  Sizes(LayerRows given, DType type, LayerCut cut)
      : tp(static_cast<double>(cut.tp)),
        value(static_cast<double>(size_of(type))),
        wide_value(static_cast<double>(size_of(wide(type)))),
        all(given.rows),
        part(shard_range(given.rows, 0, cut.tp).count()),
        between(cut.sp ? part : all) {}
  /// [rows, features]
  double matrix(std::int64_t rows, double features) const { return value * static_cast<double>(padded_rows(rows)) * features; }
  /// [rows] of the wide type: a norm's statistics.
  double statistics(std::int64_t rows) const { return wide_value * static_cast<double>(rows); }
  /// [heads, rows] of the wide type: attention's log-sum-exp.
  double log_sum_exp(std::int64_t heads) const {
    return wide_value * static_cast<double>(padded_rows(heads / static_cast<std::int64_t>(tp)) * all);
  }
  double tp, value, wide_value;
  std::int64_t all, part, between;  ///< rows: of the microbatch, of the rank's part, between the products
};

}  // namespace

StateBytes whole_state(DType type, int arrays, bool masters) {
  const auto value = static_cast<double>(size_of(type)), wide_value = static_cast<double>(size_of(wide(type)));
  return {value, wide_value, wide_value * (arrays + (masters && wide(type) != type ? 1 : 0))};
}

StateBytes shared_state(const StateBytes& whole, Sharding sharding, int d) {
  require(d > 0, "memory formulas", d, " ranks share the model's state");
  StateBytes out = whole;
  if (sharding != Sharding::none) out.optimizer /= d;
  if (sharding == Sharding::gradients || sharding == Sharding::full) out.gradients /= d;
  if (sharding == Sharding::full) out.values /= d;
  return out;
}

double kept_by_layer(const DecoderLayerShape& layer, LayerRows rows, DType type, Recompute mode, LayerCut cut) {
  const Sizes size(rows, type, cut);
  const auto h = static_cast<double>(layer.features), F = static_cast<double>(layer.inner);
  // Of few keys' heads each is on several ranks.
  const double a = static_cast<double>(layer.heads) / size.tp, k = std::max(1.0, static_cast<double>(layer.kv_heads) / size.tp),
               d = static_cast<double>(layer.head_dim);
  const double input = size.matrix(size.between, h);
  const double attended = size.matrix(size.all, a * d) + size.log_sum_exp(layer.heads);
  if (mode == Recompute::full) return input;
  if (mode == Recompute::selective) return input + attended;
  // Inputs of both norms, queries, keys and values, gate and up.
  return 2 * input + 2 * size.statistics(size.between) + size.matrix(size.all, (a + 2 * k) * d) + attended +
         size.matrix(size.all, 2 * F / size.tp);
}

double kept_by_layer(const ConformerLayerShape& layer, LayerRows rows, DType type, Recompute mode, LayerCut cut) {
  const Sizes size(rows, type, cut);
  const auto h = static_cast<double>(layer.features), F = static_cast<double>(layer.inner);
  const double attended = size.matrix(size.all, h / size.tp) + size.log_sum_exp(layer.heads);
  if (mode == Recompute::full) return size.matrix(size.between, h);
  if (mode == Recompute::selective) return size.matrix(size.between, h) + attended;
  const double feed_forward = size.matrix(size.all, F / size.tp);
  const double positions = layer.relative ? size.matrix(2 * rows.longest - 1, h / size.tp) : 0;
  // The convolution's pointwise products see a part of the rows, the depthwise one a part of the channels: under tp its input
  // has come from other ranks and can't be made again.
  const double exchanged = cut.tp > 1 ? size.matrix(size.all, h / size.tp) : 0;
  const double convolution =
      size.matrix(size.part, 3 * h) + exchanged + (layer.batch_norm ? size.wide_value * h : 2 * size.statistics(size.part));
  // Five norms outside of it, of which the first has an input that is made again.
  return 4 * size.matrix(size.between, h) + 5 * 2 * size.statistics(size.between) + 2 * feed_forward +
         size.matrix(size.all, 3 * h / size.tp) + attended + positions + convolution;
}

double quoted_for_layer(std::int64_t features, std::int64_t heads, LayerRows rows, double value_bytes, Recompute mode,
                        LayerCut cut) {
  const auto t = static_cast<double>(cut.tp), b = value_bytes, s = static_cast<double>(rows.longest);
  const double values = static_cast<double>(rows.rows) * static_cast<double>(features);  // s B h
  if (mode == Recompute::full) return b * values / (cut.sp ? t : 1);
  const double between = (4 * b + 2) * values / (cut.sp ? t : 1), products = 12 * b * values / t;
  const double probabilities = (2 * b + 1) * static_cast<double>(heads) * s * static_cast<double>(rows.rows) / t;
  return between + products + (mode == Recompute::none ? probabilities : 0);
}

}  // namespace chorus
