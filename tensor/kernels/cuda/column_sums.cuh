// Sums over the rows of a matrix, in an order that depends on its size only: runs of rows first, then the runs.
#pragma once
#include <chorus/tensor/kernels/cuda/launch.cuh>

namespace chorus::cuda {

/// parts[p, c] = sum over the rows r of run p of f(r, c). Threads of a block are neighbouring columns, so that reads coalesce.
template <class C, class F>
__global__ void run_sums_kernel(F f, std::int64_t rows, std::int64_t cols, std::int64_t run, C* parts) {
  const std::int64_t c = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x, first = blockIdx.y * run;
  if (c >= cols) return;
  C total = 0;
  for (std::int64_t r = first; r < first + run && r < rows; ++r) total += f(r, c);
  parts[blockIdx.y * cols + c] = total;
}

template <class C, class Y>
__global__ void part_sums_kernel(const C* parts, std::int64_t count, std::int64_t cols, bool add, Y* y) {
  const std::int64_t c = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  C total = 0;
  for (std::int64_t p = 0; p < count; ++p) total += parts[p * cols + c];
  y[c] = narrow<Y>(add ? widen(y[c]) + total : total);
}

/// y[c] = (add ? y[c] : 0) + sum over rows of f(r, c).
template <class C, class F, class Y>
void column_sums(Cuda device, At at, Context& context, F f, std::int64_t rows, std::int64_t cols, bool add, Y* y) {
  if (cols == 0) return;
  const cudaStream_t stream = enter(device, at);
  const std::int64_t run = std::max<std::int64_t>(32, (rows + 255) / 256), parts = (rows + run - 1) / run;
  const Tensor sums = Tensor::empty(context, {parts * cols}, dtype_of<C>, Category::workspace);
  const auto blocks = static_cast<unsigned>((cols + block_threads - 1) / block_threads);
  if (parts)
    run_sums_kernel<C>
        <<<dim3(blocks, static_cast<unsigned>(parts)), block_threads, 0, stream>>>(f, rows, cols, run, sums.as<C>());
  part_sums_kernel<C, Y><<<blocks, block_threads, 0, stream>>>(sums.as<C>(), parts, cols, add, y);
  check(cudaGetLastError(), at);
}

}  // namespace chorus::cuda
