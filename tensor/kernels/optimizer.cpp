#include <chorus/tensor/kernels/optimizer.h>

#include <algorithm>
#include <cmath>

namespace chorus::kernel {
namespace {

constexpr std::int64_t parallel_from = 1 << 15;

/// Arrays cut into chunks that are numbered through, so that one parallel loop serves all of them, however many and small.
class Chunks {
 public:
  explicit Chunks(std::int64_t size) : size_(size) {}
  void add(std::int64_t count) {
    begins_.push_back(chunks_);
    total_ += count;
    chunks_ += (count + size_ - 1) / size_;
  }
  std::int64_t count() const { return chunks_; }
  bool parallel() const { return total_ > parallel_from; }
  /// The array of chunk c, and at which of its elements c begins.
  std::pair<std::size_t, std::int64_t> find(std::int64_t c) const {
    const auto array = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), c) - begins_.begin() - 1);
    return {array, (c - begins_[array]) * size_};
  }
  std::int64_t size() const { return size_; }

 private:
  // Where each array's chunks begin. A list of the chunks themselves would be fresh pages from the system in every step.
  std::vector<std::int64_t> begins_;
  std::int64_t size_, total_ = 0, chunks_ = 0;
};

/// For every element i of each range, whose weight is w, it becomes make_body(range)(i, w): in the master if there is one, and
/// rounded in the copy to compute with.
template <class T, class MakeBody>
void update(std::span<const UpdateRange> ranges, const MakeBody& make_body) {
  Chunks chunks(1 << 13);
  for (const auto& range : ranges) chunks.add(range.count);
#pragma omp parallel for schedule(static) if (chunks.parallel())
  for (std::int64_t c = 0; c < chunks.count(); ++c) {
    const auto [r, at] = chunks.find(c);
    const UpdateRange& range = ranges[r];
    const auto body = make_body(range);
    const std::int64_t end = at + std::min(chunks.size(), range.count - at);
    T* w = static_cast<T*>(range.master);
    bf16* copy = range.value;
    if (!w) {
#pragma omp simd
      for (std::int64_t i = at; i < end; ++i)
        copy[i] = bf16(static_cast<float>(body(i, static_cast<T>(static_cast<float>(copy[i])))));
    } else if (copy) {
#pragma omp simd
      for (std::int64_t i = at; i < end; ++i) copy[i] = bf16(w[i] = body(i, w[i]));
    } else {
#pragma omp simd
      for (std::int64_t i = at; i < end; ++i) w[i] = body(i, w[i]);
    }
  }
}

}  // namespace

void adamw_step(Cpu, const AdamWStep& step, std::span<const UpdateRange> ranges, Tensor& m, Tensor& v) {
  dispatch<float, double>(m.dtype(), "adamw", [&]<class T>() {
    T *means = m.as<T>(), *squares = v.as<T>();
    const T beta1 = static_cast<T>(step.beta1), beta2 = static_cast<T>(step.beta2), eps = static_cast<T>(step.eps);
    const T rate = static_cast<T>(step.lr / step.correction1), root = static_cast<T>(1 / std::sqrt(step.correction2));
    const T scale = static_cast<T>(step.grad_scale);
    update<T>(ranges, [=](const UpdateRange& range) {
      const T keep = static_cast<T>(1 - step.lr * range.weight_decay);
      const T* g = static_cast<const T*>(range.grad);
      T *mean = means + range.first, *square = squares + range.first;
      return [=](std::int64_t i, T w) {
        const T grad_i = g[i] * scale;
        mean[i] = beta1 * mean[i] + (1 - beta1) * grad_i;
        square[i] = beta2 * square[i] + (1 - beta2) * grad_i * grad_i;
        return keep * w - rate * mean[i] / (std::sqrt(square[i]) * root + eps);
      };
    });
  });
}

void sgd_step(Cpu, const SgdStep& step, std::span<const UpdateRange> ranges, Tensor& momentum) {
  dispatch<float, double>(momentum.dtype(), "sgd", [&]<class T>() {
    T* buffers = momentum.as<T>();
    const T lr = static_cast<T>(step.lr), mu = static_cast<T>(step.first_step ? 0 : step.momentum),
            scale = static_cast<T>(step.grad_scale);
    // The update is g + momentum * buffer with Nesterov's rule, else the buffer.
    const T of_gradient = static_cast<T>(step.nesterov ? 1 : 0), of_buffer = static_cast<T>(step.nesterov ? step.momentum : 1);
    update<T>(ranges, [=](const UpdateRange& range) {
      const T decay = static_cast<T>(range.weight_decay);
      const T* g = static_cast<const T*>(range.grad);
      T* buffer = buffers + range.first;
      return [=](std::int64_t i, T w) {
        const T grad_i = g[i] * scale + decay * w;
        buffer[i] = mu * buffer[i] + grad_i;
        return w - lr * (of_gradient * grad_i + of_buffer * buffer[i]);
      };
    });
  });
}

double sum_of_squares(Cpu, std::span<const Tensor> tensors) {
  if (tensors.empty()) return 0;
  constexpr std::int64_t lanes = 16;
  Chunks chunks(1 << 14);
  for (const Tensor& x : tensors) {
    require(x && x.dtype() == tensors.front().dtype(), "sum_of_squares", "given ", x, " beside ", tensors.front());
    chunks.add(x.numel());
  }
  std::vector<double> partial(static_cast<std::size_t>(chunks.count()));
  dispatch_floating(tensors.front().dtype(), "sum_of_squares", [&]<class T>() {
#pragma omp parallel for schedule(static) if (chunks.parallel())
    for (std::int64_t c = 0; c < chunks.count(); ++c) {
      const auto [t, at] = chunks.find(c);
      const T* data = tensors[t].template as<T>() + at;
      const std::int64_t count = std::min(chunks.size(), tensors[t].numel() - at), whole = count / lanes * lanes;
      // Sixteen running sums in a fixed order: the same bits for every address and number of threads.
      double sums[lanes] = {};
      for (std::int64_t i = 0; i < whole; i += lanes)
        for (std::int64_t l = 0; l < lanes; ++l) sums[l] += static_cast<double>(data[i + l]) * static_cast<double>(data[i + l]);
      for (std::int64_t i = whole; i < count; ++i)
        sums[i - whole] += static_cast<double>(data[i]) * static_cast<double>(data[i]);
      for (std::int64_t l = 0; l < lanes; ++l) partial[static_cast<std::size_t>(c)] += sums[l];
    }
  });
  double total = 0;
  for (const double p : partial) total += p;
  return total;
}

}  // namespace chorus::kernel
