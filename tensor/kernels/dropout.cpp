#include <chorus/tensor/kernels/dropout.h>
#include <chorus/tensor/kernels/random_bits.h>
#include <chorus/tensor/kernels/vec.h>

namespace chorus::kernel {
namespace {

/// y[r, c] = f(keep, x[r, c]...), where keep gives its argument times 1 / (1 - p), or 0 where the draw drops it.
template <class T, class F, class... X>
void with_mask(const DropoutMask& mask, const Tensor& y, const F& f, const X&... x) {
  using C = compute_type<T>;
  const std::int64_t n = y.cols();
  const auto factor = static_cast<C>(65536.0 / (65536.0 - mask.threshold));
  parallel_rows(y.rows(), n,
                [=, threshold = mask.threshold, key = mask.key, first_feature = mask.window.first_feature, to = y.as<T>(),
                 ids = mask.ids.as<std::int64_t>(), index = mask.index.as<std::int32_t>() + 2 * mask.window.first_row,
                 ... from = x.template as<T>()](std::int64_t r) {
                  const auto id = static_cast<std::uint64_t>(ids[index[2 * r]]);
                  const RandomCounter start{static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32),
                                            static_cast<std::uint32_t>(index[2 * r + 1]), 0};
                  constexpr std::int64_t piece = 512;
                  std::uint16_t draws[piece];
                  std::int64_t skipped = first_feature % draws_per_block;  // draws of a first block that lies here in part
                  for (std::int64_t first = 0; first < n; skipped = 0) {
                    const std::int64_t count = std::min(piece - skipped, n - first);
                    RandomCounter counter = start;
                    counter[3] = static_cast<std::uint32_t>((first_feature + first) / draws_per_block);
                    random_draws(key, counter, 3, (skipped + count + draws_per_block - 1) / draws_per_block, draws);
                    const std::int64_t at = r * n + first;
                    first += count;
                    for_vectors<C>(count, [&](std::int64_t c, auto extent) {
                      const Vec<C> draw = load<C>(draws + skipped + c, extent);
                      const auto keep = [&](Vec<C> v) { return draw >= static_cast<C>(threshold) ? v * factor : Vec<C>{}; };
                      store<C>(to + at + c, f(keep, load<C>(from + at + c, extent)...), extent);
                    });
                  }
                });
}

}  // namespace

void dropout(Cpu, const Tensor& x, const DropoutMask& mask, Tensor& y) {
  dispatch_floating(x.dtype(), "dropout", [&]<class T>() {
    with_mask<T>(
        mask, y, [](const auto& keep, auto v) { return keep(v); }, x);
  });
}

void silu_dropout(Cpu, const Tensor& x, const DropoutMask& mask, Tensor& y) {
  dispatch_floating(x.dtype(), "silu_dropout", [&]<class T>() {
    using C = compute_type<T>;
    with_mask<T>(
        mask, y, [](const auto& keep, Vec<C> v) { return keep(v * sigmoid<C>(v)); }, x);
  });
}

void silu_dropout_backward(Cpu, const Tensor& x, const Tensor& dy, const DropoutMask& mask, Tensor& dx) {
  dispatch_floating(x.dtype(), "silu_dropout", [&]<class T>() {
    using C = compute_type<T>;
    with_mask<T>(
        mask, dx,
        [](const auto& keep, Vec<C> u, Vec<C> v) {
          const SigmoidPair<C> at(u);
          return keep(v) * at.s * (C(1) + u * at.rest);
        },
        x, dy);
  });
}

}  // namespace chorus::kernel
