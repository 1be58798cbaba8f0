// A kernel's result is a function of its values: where they lie in memory changes no bit.
#include <chorus/core/rng.h>
#include <chorus/tensor/kernels/cross_entropy.h>
#include <chorus/tensor/kernels/cross_entropy_part.h>
#include <chorus/tensor/kernels/matmul.h>
#include <chorus/tensor/kernels/norm.h>
#include <chorus/tensor/kernels/optimizer.h>
#include <chorus/tensor/kernels/pointwise.h>
#include <gtest/gtest.h>

#include <functional>

namespace chorus {
namespace {

/// Makes tensors that begin some elements behind the start of their storage: number i of placement k lies k (2 i + 1) mod 16
/// elements off, so the tensors of one call lie differently.
class Placed {
 public:
  explicit Placed(std::int64_t k) : k_(k) {}
  Tensor empty(const Shape& shape, DType dtype) {
    const std::int64_t rows = shape.rank() == 2 ? padded_rows(shape[0]) : 1;  // room for what products write behind the end
    const Tensor all = Tensor::empty(context, {rows * shape[-1] + 16}, dtype);
    return all.flat_view(k_ * (2 * number_++ + 1) % 16, shape);
  }
  Tensor values(const Shape& shape, DType dtype, std::uint64_t stream) {
    const Tensor t = empty(shape, dtype);
    std::vector<double> drawn(static_cast<std::size_t>(shape.numel()));
    fill_normal(RandomKey{stream}, 0, std::span<double>(drawn), 0.1, 1.0);
    dispatch_floating(dtype, "values", [&]<class T>() {
      for (std::size_t i = 0; i < drawn.size(); ++i) t.as<T>()[i] = static_cast<T>(drawn[i]);
    });
    return t;
  }
  Context context;

 private:
  std::int64_t k_, number_ = 0;
};

using Results = std::vector<std::vector<double>>;
using Kernel = std::function<Results(Placed&, std::int64_t rows, std::int64_t cols, DType)>;

void expect_equal_bits(const char* what, const std::vector<DType>& types, const Kernel& kernel) {
  // Less than a vector, some of them and a rest, and enough for several threads.
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{3, 5}, {37, 131}, {300, 130}})
    for (const DType dtype : types) {
      Results first;
      for (std::int64_t k = 0; k < 16; k += rows * cols > 8192 ? 5 : 1) {
        Placed placed(k);
        const Results now = kernel(placed, rows, cols, dtype);
        if (k == 0) first = now;
        for (std::size_t i = 0; i < now.size(); ++i)
          ASSERT_EQ(now[i], first[i]) << what << " of " << name(dtype) << " (" << rows << ", " << cols << "), result " << i
                                      << ", placement " << k;
      }
    }
}

const std::vector<DType> all_types{DType::f64, DType::f32, DType::bf16};

TEST(Addresses, ColumnSum) {
  expect_equal_bits("column_sum", all_types, [](Placed& at, auto rows, auto cols, DType dtype) {
    Tensor sums = at.values({cols}, wide(dtype), 2);
    kernel::column_sum(Cpu{}, at.values({rows, cols}, dtype, 1), true, sums);
    return Results{sums.to_doubles()};
  });
}

TEST(Addresses, SumOfSquares) {
  expect_equal_bits("sum_of_squares", {DType::f64, DType::f32}, [](Placed& at, auto rows, auto cols, DType dtype) {
    const std::vector<Tensor> tensors{at.values({rows, cols}, dtype, 1), at.values({cols}, dtype, 2)};
    return Results{{kernel::sum_of_squares(Cpu{}, tensors)}};
  });
}

TEST(Addresses, Softmax) {
  expect_equal_bits("softmax", all_types, [](Placed& at, auto rows, auto cols, DType dtype) {
    Tensor y = at.empty({rows, cols}, dtype), dx = at.empty({rows, cols}, dtype);
    kernel::softmax(Cpu{}, at.values({rows, cols}, dtype, 1), y);
    kernel::softmax_backward(Cpu{}, y, at.values({rows, cols}, dtype, 2), dx);
    return Results{y.to_doubles(), dx.to_doubles()};
  });
}

std::vector<std::int32_t> some_labels(std::int64_t rows, std::int64_t cols) {
  std::vector<std::int32_t> labels;
  for (std::int64_t r = 0; r < rows; ++r) labels.push_back(static_cast<std::int32_t>((5 * r + 1) % cols));
  return labels;
}

TEST(Addresses, CrossEntropy) {
  expect_equal_bits("cross_entropy", all_types, [](Placed& at, auto rows, auto cols, DType dtype) {
    Tensor logits = at.values({rows, cols}, wide(dtype), 1), gradient = at.empty({rows, cols}, dtype);
    std::vector<double> losses(static_cast<std::size_t>(rows));
    kernel::cross_entropy(Cpu{}, logits, some_labels(rows, cols), 0.1, &gradient, losses);
    return Results{losses, gradient.to_doubles()};
  });
}

TEST(Addresses, CrossEntropyOfAPart) {
  expect_equal_bits("cross_entropy_part", all_types, [](Placed& at, auto rows, auto cols, DType dtype) {
    Tensor logits = at.values({rows, cols}, wide(dtype), 1), gradient = at.empty({rows, cols}, dtype);
    std::vector<double> losses(static_cast<std::size_t>(rows));
    std::vector<RowStatistics> own(losses.size());
    const auto labels = some_labels(rows, cols);
    kernel::row_statistics(Cpu{}, logits, labels, own);
    kernel::cross_entropy_part(Cpu{}, logits, labels, own, own, cols, 0.1, &gradient, losses);
    return Results{losses, gradient.to_doubles()};
  });
}

TEST(Addresses, RmsNorm) {
  expect_equal_bits("rms_norm", all_types, [](Placed& at, auto rows, auto cols, DType dtype) {
    const Tensor x = at.values({rows, cols}, dtype, 1), weight = at.values({cols}, dtype, 2);
    Tensor y = at.empty({rows, cols}, dtype), rstd = at.empty({rows}, wide(dtype)), dx = at.empty({rows, cols}, dtype),
           dweight = at.empty({cols}, wide(dtype));
    kernel::rms_norm(Cpu{}, x, weight, 1e-6, y, rstd);
    kernel::rms_norm_backward(Cpu{}, x, weight, rstd, at.values({rows, cols}, dtype, 3), dx, {&dweight, false});
    return Results{y.to_doubles(), rstd.to_doubles(), dx.to_doubles(), dweight.to_doubles()};
  });
}

TEST(Addresses, LayerNorm) {
  expect_equal_bits("layer_norm", all_types, [](Placed& at, auto rows, auto cols, DType dtype) {
    const Tensor x = at.values({rows, cols}, dtype, 1), weight = at.values({cols}, dtype, 2),
                 bias = at.values({cols}, dtype, 3);
    Tensor y = at.empty({rows, cols}, dtype), mean = at.empty({rows}, wide(dtype)), rstd = at.empty({rows}, wide(dtype)),
           dx = at.empty({rows, cols}, dtype), dweight = at.empty({cols}, wide(dtype)), dbias = at.empty({cols}, wide(dtype));
    kernel::layer_norm(Cpu{}, x, weight, bias, 1e-5, y, mean, rstd);
    kernel::layer_norm_backward(Cpu{}, x, weight, mean, rstd, at.values({rows, cols}, dtype, 4), dx, {&dweight, false},
                                {&dbias, false});
    return Results{y.to_doubles(),  mean.to_doubles(),    rstd.to_doubles(),
                   dx.to_doubles(), dweight.to_doubles(), dbias.to_doubles()};
  });
}

TEST(Addresses, Matmul) {
  expect_equal_bits("matmul", all_types, [](Placed& at, auto rows, auto cols, DType dtype) {
    const std::int64_t out = 67;
    const Tensor x = at.values({rows, cols}, dtype, 1), weight = at.values({out, cols}, dtype, 2),
                 dy = at.values({rows, out}, dtype, 3), bias = at.values({out}, dtype, 4);
    Tensor y = at.empty({rows, out}, dtype), dx = at.empty({rows, cols}, dtype),
           dweight = at.values({out, cols}, wide(dtype), 5);
    kernel::matmul(Cpu{}, kernel::Form::nt, x, weight, y, {false, &bias});
    kernel::matmul(Cpu{}, kernel::Form::nn, dy, weight, dx);
    kernel::matmul(Cpu{}, kernel::Form::tn, dy, x, dweight, {true, nullptr});
    return Results{y.to_doubles(), dx.to_doubles(), dweight.to_doubles()};
  });
}

}  // namespace
}  // namespace chorus
