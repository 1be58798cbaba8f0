#include <chorus/tensor/kernels/dropout.h>
#include <chorus/tensor/kernels/random_bits.h>
#include <chorus/tensor/kernels/vec.h>

namespace chorus::kernel {

void dropout(Cpu, const Tensor& x, const Tensor& ids, const Tensor& index, std::uint32_t threshold, RandomKey key, Tensor& y) {
  dispatch_floating(x.dtype(), "dropout", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = x.cols();
    const auto factor = static_cast<C>(65536.0 / (65536.0 - threshold));
    parallel_rows(
        x.rows(), n,
        [=, x = x.as<T>(), y = y.as<T>(), ids = ids.as<std::int64_t>(), index = index.as<std::int32_t>()](std::int64_t r) {
          const auto id = static_cast<std::uint64_t>(ids[index[2 * r]]);
          const RandomCounter start{static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32),
                                    static_cast<std::uint32_t>(index[2 * r + 1]), 0};
          constexpr std::int64_t piece = 512;
          std::uint16_t draws[piece];
          for (std::int64_t first = 0; first < n; first += piece) {
            const std::int64_t count = std::min(piece, n - first);
            RandomCounter counter = start;
            counter[3] = static_cast<std::uint32_t>(first / draws_per_block);
            random_draws(key, counter, 3, (count + draws_per_block - 1) / draws_per_block, draws);
            const std::int64_t at = r * n + first;
            for_vectors<C>(count, [&](std::int64_t c, auto extent) {
              const Vec<C> draw = load<C>(draws + c, extent);
              const Vec<C> kept = load<C>(x + at + c, extent) * factor;
              store<C>(y + at + c, draw >= static_cast<C>(threshold) ? kept : Vec<C>{}, extent);
            });
          }
        });
  });
}

}  // namespace chorus::kernel
