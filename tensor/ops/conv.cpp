#include <chorus/tensor/autograd/weight_grad.h>
#include <chorus/tensor/kernels/depthwise.h>
#include <chorus/tensor/kernels/im2col.h>
#include <chorus/tensor/kernels/matmul.h>
#include <chorus/tensor/kernels/pointwise.h>
#include <chorus/tensor/ops/conv.h>

namespace chorus {

std::int64_t conv_length(std::int64_t n, int kernel, int stride, int pad) {
  require(n >= 0 && kernel >= 1 && stride >= 1 && pad >= 0, "conv_length", n, " rows, kernel ", kernel, ", stride ", stride,
          ", pad ", pad);
  return n == 0 || n + 2 * pad < kernel ? 0 : (n + 2 * pad - kernel) / stride + 1;
}

namespace {

constexpr kernel::Taps plane_taps{3, 2, 1};

/// Which elements a convolution sees: taps along time with bins == 0, else 3x3 taps over time and that many bins.
struct Window {
  kernel::Taps taps;
  std::int64_t bins = 0;
  std::int64_t channels(const Tensor& x) const { return bins ? x.cols() / bins : x.cols(); }
  std::int64_t elements() const { return bins ? 9 : taps.kernel; }
  std::int64_t out_bins() const { return bins ? conv_length(bins, 3, 2, 1) : 1; }
};

void check(const char* op, const Tensor& x, const Rows& rows, const Tensor& weight, const Tensor& bias, Window window,
           const Shape& weight_shape, std::int64_t outputs) {
  require(x.rank() == 2 && x.size(0) == rows.count(), op, "x is ", x, " for ", rows.count(), " rows");
  require(window.bins == 0 || (window.bins > 0 && x.cols() % window.bins == 0), op, "x is ", x, " for ", window.bins, " bins");
  require(weight.shape() == weight_shape && weight.dtype() == x.dtype(), op, "weight is ", weight, "; expected ", x.dtype(),
          ' ', weight_shape);
  require(!bias || (bias.shape() == Shape{outputs} && bias.dtype() == x.dtype()), op, "bias is ", bias, "; expected ",
          x.dtype(), " (", outputs, ")");
}

void check_lengths(const char* op, const Rows& rows, const Rows& out, Window window) {
  require(out.sequences() == rows.sequences(), op, out.sequences(), " sequences from ", rows.sequences());
  for (std::int64_t s = 0; s < rows.sequences(); ++s) {
    const std::int64_t want = conv_length(rows.length(s), window.taps.kernel, window.taps.stride, window.taps.pad);
    require(out.length(s) == want, op, "sequence ", s, " of ", rows.length(s), " rows gives ", want, ", not ", out.length(s));
  }
}

Saved saved_with(const Rows& rows, const Rows& out, const Tensor& x, const Tensor& weight) {
  return {rows.offsets,
          rows.index,
          out.offsets,
          out.index,
          wants_grad({weight}) ? x : Tensor(),
          wants_grad({x}) ? weight : Tensor()};
}
Rows saved_in(const Backward& b) { return {b.saved[0], {}, b.saved[1], {}}; }
Rows saved_out(const Backward& b) { return {b.saved[2], {}, b.saved[3], {}}; }
const Tensor& saved_x(const Backward& b) { return b.saved[4]; }
const Tensor& saved_weight(const Backward& b) { return b.saved[5]; }

/// When a rule may compute the gradient of a weight. Only leaves can wait: what lies before other tensors goes on at once.
enum class WeightMoment { now, deferrable };

/// Calls compute(target, add) for the gradient of input i if it is wanted and this is its moment.
template <class F>
void weight_gradient(const Backward& b, std::size_t i, WeightMoment moment, const Shape& shape, Grads& grads, F&& compute) {
  if (!b.needs(i) || (b.sink(i) != nullptr) != (moment == WeightMoment::deferrable)) return;
  WeightGrad grad(b, i, b.dy.context(), shape, b.dy.dtype());
  compute(grad.tensor, grad.add);
  grads[i] = grad.done();
}

/// [T' (* F'), elements * C]: one row of inputs per output.
Tensor unfold(const Tensor& x, const Rows& in, const Rows& out, Window window) {
  const std::int64_t positions = out.count() * window.out_bins(), width = window.elements() * window.channels(x);
  Tensor cols = Tensor::empty(x.context(), {positions, width}, x.dtype(), Category::workspace);
  if (window.bins) {
    kernel::im2col_3x3(cpu(x.context(), "conv2d_subsample"), x, in, out, window.bins, cols);
  } else {
    kernel::im2col(cpu(x.context(), "conv1d"), x, in, out, window.taps, cols);
  }
  return cols;
}

/// The unfolded input is made again for the weight gradient: one pass of copying, against keeping kernel / stride times
/// x (9 / 4 times in the plane) from forward to backward, and x itself mostly lives anyway.
void weight_gradients(const Backward& b, Window window, std::int64_t outputs, std::int64_t width, WeightMoment moment,
                      Grads& grads) {
  const Cpu device = cpu(b.dy.context(), "conv");
  const Tensor dy = b.dy.reshaped({b.dy.numel() / outputs, outputs});
  weight_gradient(b, 1, moment, {outputs, width}, grads, [&](Tensor& dw, bool add) {
    const Span span(b.dy.context().trace, "conv weight gradient");  // its products count their own work
    const Tensor cols = unfold(saved_x(b), saved_in(b), saved_out(b), window);
    kernel::matmul(device, kernel::Form::tn, dy, cols, dw, {.accumulate = add});
  });
  weight_gradient(b, 2, moment, {outputs}, grads, [&](Tensor& db, bool add) { kernel::column_sum(device, dy, add, db); });
}

/// [T', F' * outputs]
Tensor convolved(const char* op, const Tensor& x, const Rows& in, const Rows& out, const Tensor& weight, const Tensor& bias,
                 Window window) {
  const Span span(x.context().trace, op);
  const Cpu device = cpu(x.context(), op);
  const std::int64_t positions = out.count() * window.out_bins(), outputs = weight.size(0);
  Tensor y = Tensor::empty(x.context(), {positions, outputs}, x.dtype());
  const Tensor cols = unfold(x, in, out, window);
  if (x.dtype() == DType::bf16 && cols.cols() <= kernel::narrow_width) {
    kernel::narrow_product(device, cols, weight, bias, y);
  } else {
    kernel::matmul(device, kernel::Form::nt, cols, weight, y, {.bias = bias ? &bias : nullptr});
  }
  return y.reshaped({out.count(), window.out_bins() * outputs});
}

Tensor product_conv(const char* op, const Tensor& x, const Rows& rows, const Rows& out, const Tensor& weight,
                    const Tensor& bias, Window window) {
  const std::int64_t outputs = weight.rank() ? weight.size(0) : 0, width = window.elements() * window.channels(x);
  check(op, x, rows, weight, bias, window, {outputs, width}, outputs);
  check_lengths(op, rows, out, window);
  Tensor y = convolved(op, x, rows, out, weight, bias, window);
  const auto rule = [window, outputs, width](const Backward& b) -> Grads {
    Grads grads(3);
    if (b.needs(0)) {
      Context& context = b.dy.context();
      const Span span(context.trace, "conv input gradient");
      const Rows in = saved_in(b), out = saved_out(b);
      const Tensor dy = b.dy.reshaped({b.dy.numel() / outputs, outputs});
      // Wide, so that the few terms of each element are rounded once, together.
      Tensor cols = Tensor::empty(context, {dy.rows(), width}, wide(dy.dtype()), Category::workspace);
      kernel::matmul(cpu(context, "conv"), kernel::Form::nn, dy, saved_weight(b), cols);
      const std::int64_t columns = width / window.elements() * (window.bins ? window.bins : 1);
      grads[0] = Tensor::empty(context, {in.count(), columns}, dy.dtype());
      if (window.bins) {
        kernel::col2im_3x3(cpu(context, "conv"), cols, in, out, window.bins, grads[0]);
      } else {
        kernel::col2im(cpu(context, "conv"), cols, in, out, window.taps, grads[0]);
      }
    }
    weight_gradients(b, window, outputs, width, WeightMoment::now, grads);
    return grads;
  };
  const auto weight_rule = [window, outputs, width](const Backward& b) -> Grads {
    Grads grads(3);
    weight_gradients(b, window, outputs, width, WeightMoment::deferrable, grads);
    return grads;
  };
  // Of few inputs an output is a few products, and there are many times more outputs than inputs: 256 channels from one.
  const bool again = width <= kernel::narrow_width && x.context().remake;
  Saved saved =
      again ? Saved{rows.offsets, rows.index, out.offsets, out.index, x, weight, bias} : saved_with(rows, out, x, weight);
  y = record(op, std::move(y), {x, weight, bias}, std::move(saved), rule, weight_rule);
  if (!again) return y;
  return remade_by(std::move(y), [op, window](const Backward& b) {
    return Grads{convolved(op, saved_x(b), saved_in(b), saved_out(b), saved_weight(b), b.saved[6], window)};
  });
}

void depthwise_weight_gradients(const Backward& b, Window window, std::int64_t channels, WeightMoment moment, Grads& grads) {
  const Cpu device = cpu(b.dy.context(), "depthwise_conv");
  weight_gradient(b, 1, moment, {window.elements(), channels}, grads, [&](Tensor& dw, bool add) {
    const Span span(b.dy.context().trace, "depthwise weight gradient",
                    2.0 * static_cast<double>(b.dy.numel() * window.elements()));
    if (window.bins) {
      kernel::depthwise_conv2d_weight(device, saved_x(b), b.dy, saved_in(b), saved_out(b), window.bins, add, dw);
    } else {
      kernel::depthwise_conv1d_weight(device, saved_x(b), b.dy, saved_in(b), window.taps.pad, add, dw);
    }
  });
  weight_gradient(b, 2, moment, {channels}, grads, [&](Tensor& db, bool add) {
    kernel::column_sum(device, b.dy.reshaped({b.dy.numel() / channels, channels}), add, db);
  });
}

Tensor depthwise_conv(const char* op, const Tensor& x, const Rows& rows, const Rows& out, const Tensor& weight,
                      const Tensor& bias, Window window) {
  const std::int64_t channels = window.channels(x);
  check(op, x, rows, weight, bias, window, {window.elements(), channels}, channels);
  if (window.bins) check_lengths(op, rows, out, window);
  const Cpu device = cpu(x.context(), op);
  Tensor y = Tensor::empty(x.context(), {out.count(), window.out_bins() * channels}, x.dtype());
  const Span span(x.context().trace, op, 2.0 * static_cast<double>(y.numel() * window.elements()));
  if (window.bins) {
    kernel::depthwise_conv2d(device, x, rows, out, weight, bias, window.bins, y);
  } else {
    kernel::depthwise_conv1d(device, x, rows, weight, bias, window.taps.pad, false, y);
  }
  const auto rule = [window, channels](const Backward& b) -> Grads {
    Grads grads(3);
    if (b.needs(0)) {
      Context& context = b.dy.context();
      const Span span(context.trace, "depthwise input gradient", 2.0 * static_cast<double>(b.dy.numel() * window.elements()));
      const Rows in = saved_in(b);
      const Cpu device = cpu(context, "depthwise_conv");
      grads[0] = Tensor::empty(context, {in.count(), (window.bins ? window.bins : 1) * channels}, b.dy.dtype());
      if (window.bins) {
        kernel::depthwise_conv2d_input(device, b.dy, in, saved_out(b), saved_weight(b), window.bins, grads[0]);
      } else {
        kernel::depthwise_conv1d(device, b.dy, in, saved_weight(b), {}, window.taps.kernel - 1 - window.taps.pad, true,
                                 grads[0]);
      }
    }
    depthwise_weight_gradients(b, window, channels, WeightMoment::now, grads);
    return grads;
  };
  const auto weight_rule = [window, channels](const Backward& b) -> Grads {
    Grads grads(3);
    depthwise_weight_gradients(b, window, channels, WeightMoment::deferrable, grads);
    return grads;
  };
  return record(op, y, {x, weight, bias}, saved_with(rows, out, x, weight), rule, weight_rule);
}

}  // namespace

Tensor conv1d(const Tensor& x, const Rows& rows, const Rows& out, const Tensor& weight, const Tensor& bias, int kernel,
              int stride, int pad) {
  return product_conv("conv1d", x, rows, out, weight, bias, {{kernel, stride, pad}});
}

Tensor depthwise_conv1d(const Tensor& x, const Rows& rows, const Tensor& weight, const Tensor& bias, int pad) {
  const int kernel = weight.rank() ? static_cast<int>(weight.size(0)) : 0;
  require(pad >= 0 && pad < kernel, "depthwise_conv1d", "pad ", pad, " of weight ", weight);
  return depthwise_conv("depthwise_conv1d", x, rows, rows, weight, bias, {{kernel, 1, pad}});
}

Tensor conv2d_subsample(const Tensor& x, const Rows& rows, const Rows& out, const Tensor& weight, const Tensor& bias,
                        int bins) {
  require(bins > 0, "conv2d_subsample", bins, " bins");
  return product_conv("conv2d_subsample", x, rows, out, weight, bias, {plane_taps, bins});
}

Tensor depthwise_conv2d_subsample(const Tensor& x, const Rows& rows, const Rows& out, const Tensor& weight, const Tensor& bias,
                                  int bins) {
  require(bins > 0, "depthwise_conv2d_subsample", bins, " bins");
  return depthwise_conv("depthwise_conv2d_subsample", x, rows, out, weight, bias, {plane_taps, bins});
}

}  // namespace chorus
