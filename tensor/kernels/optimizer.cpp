#include <chorus/tensor/kernels/optimizer.h>

#include <algorithm>
#include <cmath>

namespace chorus::kernel {
namespace {

constexpr std::int64_t parallel_from = 1 << 15;

/// Calls make_body(weight_decay)(i) for every element i of all ranges, in one parallel loop over chunks however many parameters
/// there are; what it returns is written to the compute copy where that is another array than the master.
template <class MakeBody>
void update(std::span<const DecayRange> ranges, const Tensor& master, const Tensor& value, const MakeBody& make_body) {
  constexpr std::int64_t chunk = 1 << 13;
  // Where each range's chunks begin. A list of the chunks themselves would be fresh pages from the system in every step.
  std::vector<std::int64_t> begins;
  std::int64_t total = 0, chunks = 0;
  for (const auto& range : ranges) {
    begins.push_back(chunks);
    total += range.count;
    chunks += (range.count + chunk - 1) / chunk;
  }
  bf16* copy = value.data() == master.data() ? nullptr : value.as<bf16>();
#pragma omp parallel for schedule(static) if (total > parallel_from)
  for (std::int64_t c = 0; c < chunks; ++c) {
    const auto r = static_cast<std::size_t>(std::upper_bound(begins.begin(), begins.end(), c) - begins.begin() - 1);
    const DecayRange& range = ranges[r];
    const auto body = make_body(range.weight_decay);
    const std::int64_t at = (c - begins[r]) * chunk, first = range.first + at, end = first + std::min(chunk, range.count - at);
    if (copy) {
#pragma omp simd
      for (std::int64_t i = first; i < end; ++i) copy[i] = bf16(body(i));
    } else {
#pragma omp simd
      for (std::int64_t i = first; i < end; ++i) body(i);
    }
  }
}

}  // namespace

void adamw_step(Cpu, const AdamWStep& step, std::span<const DecayRange> ranges, const Tensor& grad, Tensor& m, Tensor& v,
                Tensor& master, Tensor& value) {
  dispatch<float, double>(master.dtype(), "adamw", [&]<class T>() {
    const T* g = grad.as<T>();
    T *mean = m.as<T>(), *square = v.as<T>(), *w = master.as<T>();
    const T beta1 = static_cast<T>(step.beta1), beta2 = static_cast<T>(step.beta2), eps = static_cast<T>(step.eps);
    const T rate = static_cast<T>(step.lr / step.correction1), root = static_cast<T>(1 / std::sqrt(step.correction2));
    const T scale = static_cast<T>(step.grad_scale);
    update(ranges, master, value, [=](double weight_decay) {
      const T keep = static_cast<T>(1 - step.lr * weight_decay);
      return [=](std::int64_t i) {
        const T grad_i = g[i] * scale;
        mean[i] = beta1 * mean[i] + (1 - beta1) * grad_i;
        square[i] = beta2 * square[i] + (1 - beta2) * grad_i * grad_i;
        w[i] = keep * w[i] - rate * mean[i] / (std::sqrt(square[i]) * root + eps);
        return w[i];
      };
    });
  });
}

void sgd_step(Cpu, const SgdStep& step, std::span<const DecayRange> ranges, const Tensor& grad, Tensor& momentum,
              Tensor& master, Tensor& value) {
  dispatch<float, double>(master.dtype(), "sgd", [&]<class T>() {
    const T* g = grad.as<T>();
    T *buffer = momentum.as<T>(), *w = master.as<T>();
    const T lr = static_cast<T>(step.lr), mu = static_cast<T>(step.first_step ? 0 : step.momentum),
            scale = static_cast<T>(step.grad_scale);
    // The update is g + momentum * buffer with Nesterov's rule, else the buffer.
    const T of_gradient = static_cast<T>(step.nesterov ? 1 : 0), of_buffer = static_cast<T>(step.nesterov ? step.momentum : 1);
    update(ranges, master, value, [=](double weight_decay) {
      const T decay = static_cast<T>(weight_decay);
      return [=](std::int64_t i) {
        const T grad_i = g[i] * scale + decay * w[i];
        buffer[i] = mu * buffer[i] + grad_i;
        w[i] -= lr * (of_gradient * grad_i + of_buffer * buffer[i]);
        return w[i];
      };
    });
  });
}

double sum_of_squares(Cpu, const Tensor& x, std::int64_t first, std::int64_t count) {
  constexpr std::int64_t chunk = 1 << 14, lanes = 16;
  const std::int64_t chunks = (count + chunk - 1) / chunk;
  std::vector<double> partial(static_cast<std::size_t>(chunks));
  dispatch_floating(x.dtype(), "sum_of_squares", [&]<class T>() {
    const T* data = x.as<T>() + first;
#pragma omp parallel for schedule(static) if (count > parallel_from)
    for (std::int64_t c = 0; c < chunks; ++c) {
      // Sixteen running sums in a fixed order: the same bits for every address and number of threads.
      double sums[lanes] = {};
      const std::int64_t begin = c * chunk, end = std::min(count, begin + chunk), whole = begin + (end - begin) / lanes * lanes;
      for (std::int64_t i = begin; i < whole; i += lanes)
        for (std::int64_t l = 0; l < lanes; ++l) sums[l] += static_cast<double>(data[i + l]) * static_cast<double>(data[i + l]);
      for (std::int64_t i = whole; i < end; ++i) sums[i - whole] += static_cast<double>(data[i]) * static_cast<double>(data[i]);
      for (std::int64_t l = 0; l < lanes; ++l) partial[static_cast<std::size_t>(c)] += sums[l];
    }
  });
  double total = 0;
  for (const double p : partial) total += p;
  return total;
}

}  // namespace chorus::kernel
