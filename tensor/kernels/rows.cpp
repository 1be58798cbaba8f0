#include <chorus/tensor/kernels/rows.h>
#include <chorus/tensor/kernels/vec.h>

#include <algorithm>
#include <numeric>

namespace chorus::kernel {

void gather_rows(Cpu, const Tensor& x, const Tensor& ids, Tensor& y) {
  const std::size_t bytes = static_cast<std::size_t>(x.cols()) * size_of(x.dtype());
  parallel_rows(y.rows(), y.cols(),
                [=, ids = ids.as<std::int32_t>(), from = static_cast<const char*>(x.data()),
                 to = static_cast<char*>(y.data())](std::int64_t t) {
                  char* row = to + static_cast<std::size_t>(t) * bytes;
                  if (ids[t] < 0)
                    std::memset(row, 0, bytes);
                  else
                    std::memcpy(row, from + static_cast<std::size_t>(ids[t]) * bytes, bytes);
                });
}

void scatter_rows(Cpu, const Tensor& x, const Tensor& ids, bool add, Tensor& y) {
  if (!add && y.bytes()) std::memset(y.data(), 0, y.bytes());
  // One thread owns all rows of one id, in their order: the sum has one order and no two threads meet.
  const std::int32_t* id = ids.as<std::int32_t>();
  std::vector<std::int32_t> order(static_cast<std::size_t>(ids.numel()));
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](std::int32_t t) { return id[t] < 0; });
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return id[a] < id[b]; });
  std::vector<std::int64_t> starts;
  for (std::size_t i = 0; i < order.size(); ++i)
    if (i == 0 || id[order[i]] != id[order[i - 1]]) starts.push_back(static_cast<std::int64_t>(i));
  starts.push_back(static_cast<std::int64_t>(order.size()));

  dispatch_floating(x.dtype(), "scatter_rows", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = x.cols(), groups = static_cast<std::int64_t>(starts.size()) - 1;
    const auto run = [&]<class Y>(Y* to) {
      parallel_rows(groups, n, [=, from = x.as<T>(), starts = starts.data(), order = order.data()](std::int64_t g) {
        Y* row = to + id[order[starts[g]]] * n;
        for_vectors<C>(n, [&](std::int64_t c, auto extent) {
          Vec<C> total = load<C>(row + c, extent);
          for (std::int64_t i = starts[g]; i < starts[g + 1]; ++i) total += load<C>(from + order[i] * n + c, extent);
          store<C>(row + c, total, extent);
        });
      });
    };
    if (y.dtype() == x.dtype())
      run(y.as<T>());
    else
      run(y.as<C>());
  });
}

void copy_columns(Cpu, const Tensor& x, std::int64_t x_first, std::int64_t count, Tensor& y, std::int64_t y_first) {
  const std::size_t size = size_of(x.dtype()), bytes = static_cast<std::size_t>(count) * size;
  const std::size_t x_step = static_cast<std::size_t>(x.cols()) * size, y_step = static_cast<std::size_t>(y.cols()) * size;
  const char* from = static_cast<const char*>(x.data()) + static_cast<std::size_t>(x_first) * size;
  char* to = static_cast<char*>(y.data()) + static_cast<std::size_t>(y_first) * size;
  parallel_rows(x.rows(), count, [=](std::int64_t r) {
    std::memcpy(to + static_cast<std::size_t>(r) * y_step, from + static_cast<std::size_t>(r) * x_step, bytes);
  });
}

void segment_mean(Cpu, const Tensor& x, const Tensor& offsets, Tensor& y) {
  dispatch_floating(x.dtype(), "segment_mean", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = x.cols(), segments = y.rows();
    const std::int32_t* first = offsets.as<std::int32_t>();
    const T* from = x.as<T>();
    T* to = y.as<T>();
#pragma omp parallel for schedule(static) if (x.numel() > parallel_elements)
    for (std::int64_t s = 0; s < segments; ++s) {
      const std::int64_t begin = first[s], end = first[s + 1];
      const C factor = end > begin ? C(1) / static_cast<C>(end - begin) : C(0);
      for_vectors<C>(n, [&](std::int64_t c, auto extent) {
        Vec<C> total{};
        for (std::int64_t r = begin; r < end; ++r) total += load<C>(from + r * n + c, extent);
        store<C>(to + s * n + c, total * factor, extent);
      });
    }
  });
}

void segment_mean_backward(Cpu, const Tensor& dy, const Tensor& offsets, Tensor& dx) {
  if (dx.bytes()) std::memset(dx.data(), 0, dx.bytes());
  dispatch_floating(dy.dtype(), "segment_mean", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = dx.cols(), segments = dy.rows();
    const std::int32_t* first = offsets.as<std::int32_t>();
    const T* from = dy.as<T>();
    T* to = dx.as<T>();
#pragma omp parallel for schedule(static) if (dx.numel() > parallel_elements)
    for (std::int64_t s = 0; s < segments; ++s)
      for (std::int64_t r = first[s]; r < first[s + 1]; ++r)
        for_vectors<C>(n, [&](std::int64_t c, auto extent) {
          const C factor = C(1) / static_cast<C>(first[s + 1] - first[s]);
          store<C>(to + r * n + c, load<C>(from + s * n + c, extent) * factor, extent);
        });
  });
}

}  // namespace chorus::kernel
