#include <chorus/tensor/kernels/attention_blocks.h>

namespace chorus::kernel {
namespace {

/// The queries of one key/value head of one sequence: reads each key and value once. scores [queries, length].
template <class T, class C = compute_type<T>>
void attend(const T* q, const T* keys, const T* values, std::int64_t stride, std::int64_t length, std::int64_t queries,
            std::int64_t dim, C* scores, C* out, T* y) {
  const C scale = static_cast<C>(1 / std::sqrt(static_cast<double>(dim)));
  for (std::int64_t j = 0; j < length; ++j)
    for (std::int64_t h = 0; h < queries; ++h) {
      Vec<C> dot{};
      for_vectors<C>(dim, [&](std::int64_t c, auto extent) {
        dot += load<C>(q + h * dim + c, extent) * load<C>(keys + j * stride + c, extent);
      });
      scores[h * length + j] = sum<C>(dot) * scale;
    }
  for (std::int64_t h = 0; h < queries; ++h) {
    C* row = scores + h * length;
    const C top = length ? *std::max_element(row, row + length) : C{0};
    C total = 0;
    for_vectors<C>(length, [&](std::int64_t j, auto extent) {
      const Vec<C> e = keep<C>(exp<C>(load<C>(row + j, extent) - top), extent);
      total += sum<C>(e);
      store<C>(row + j, e, extent);
    });
    const C inverse = length ? 1 / total : C{0};
    for (std::int64_t j = 0; j < length; ++j) row[j] *= inverse;
  }
  const std::int64_t width = whole<C>(dim);
  std::fill_n(out, queries * width, C{0});
  for (std::int64_t j = 0; j < length; ++j)
    for (std::int64_t h = 0; h < queries; ++h)
      for_vectors<C>(dim, [&](std::int64_t c, auto extent) {
        C* sum = out + h * width + c;
        store<C>(sum, load<C>(sum) + scores[h * length + j] * load<C>(values + j * stride + c, extent));
      });
  unpack_rows<C, T>(out, width, queries, dim, y, dim);
}

}  // namespace

void cached_attention(Cpu, const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& lengths,
                      const AttentionOptions& o, Tensor& y) {
  dispatch_floating(q.dtype(), "cached_attention", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t sequences = q.size(0), capacity = keys.size(1), shared = o.heads / o.kv_heads, dim = o.head_dim;
    const std::int64_t scratch_size = whole<C>(shared * capacity) + shared * whole<C>(dim), stride = o.kv_heads * dim;
    const bool parallel = sequences * capacity * stride > parallel_elements;
    const int threads = parallel ? omp_get_max_threads() : 1;
    const Tensor scratch = Tensor::empty(q.context(), {threads * scratch_size}, dtype_of<C>, Category::workspace);
#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(threads)
    for (std::int64_t b = 0; b < sequences; ++b)
      for (std::int64_t g = 0; g < o.kv_heads; ++g) {
        C* scores = scratch.as<C>() + omp_get_thread_num() * scratch_size;
        const std::int64_t at = b * capacity * stride + g * dim, head = (b * o.heads + g * shared) * dim;
        attend(q.as<T>() + head, keys.as<T>() + at, values.as<T>() + at, stride, lengths.as<std::int32_t>()[b], shared, dim,
               scores, scores + whole<C>(shared * capacity), y.as<T>() + head);
      }
  });
}

}  // namespace chorus::kernel
