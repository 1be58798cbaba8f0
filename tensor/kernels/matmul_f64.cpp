// f64 products: the precise path of tests and oracles, also on shapes of every size.
#include <chorus/tensor/kernels/matmul_paths.h>

#include <Eigen/Core>

namespace chorus::kernel {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<Matrix>;
using ConstView = Eigen::Map<const Matrix>;

constexpr std::int64_t block_rows = 64;

}  // namespace

void matmul_f64(Form form, MatmulSizes sizes, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options) {
  const ConstView a_all(a.as<double>(), a.rows(), a.cols()), b_all(b.as<double>(), b.rows(), b.cols());
  View y_all(y.as<double>(), sizes.m, sizes.n);
  const double* bias = options.bias ? options.bias->as<double>() : nullptr;
  // Eigen's own threads (off in this project) would change its blocking; blocks of fixed size keep the bits.
#pragma omp parallel for schedule(static) if (sizes.m * sizes.n * sizes.k > 65536)
  for (std::int64_t first = 0; first < sizes.m; first += block_rows) {
    const std::int64_t rows = std::min(block_rows, sizes.m - first);
    auto block = y_all.middleRows(first, rows);
    if (!options.accumulate) block.setZero();
    if (bias) block.rowwise() += Eigen::Map<const Eigen::RowVectorXd>(bias, sizes.n);
    switch (form) {
      case Form::nt: block.noalias() += a_all.middleRows(first, rows) * b_all.transpose(); break;
      case Form::nn: block.noalias() += a_all.middleRows(first, rows) * b_all; break;
      case Form::tn: block.noalias() += a_all.middleCols(first, rows).transpose() * b_all; break;
    }
  }
}

}  // namespace chorus::kernel
