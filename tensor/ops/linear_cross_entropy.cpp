#include <chorus/tensor/autograd/weight_grad.h>
#include <chorus/tensor/kernels/cross_entropy.h>
#include <chorus/tensor/kernels/cross_entropy_part.h>
#include <chorus/tensor/kernels/matmul.h>
#include <chorus/tensor/ops/linear_cross_entropy.h>

#include <cmath>
#include <cstring>

namespace chorus {
namespace {

using kernel::Form;

/// Rows of logits at a time: 128 MB of them in f32, multiples of 64 (which products need no padding for). Fewer rows would
/// read and write dweight more often (512 and 1,024 rows take the same time at 49,152 x 576), more only take memory.
std::int64_t block_rows(std::int64_t vocabulary) {
  return std::clamp<std::int64_t>((std::int64_t{1} << 25) / std::max<std::int64_t>(vocabulary, 1) / 64 * 64, 128, 1024);
}

/// Rows that have a label.
Tensor labelled_rows(const Tensor& labels, std::int64_t vocabulary) {
  std::vector<std::int32_t> rows;
  const auto all = labels.span<const std::int32_t>();
  for (std::size_t t = 0; t < all.size(); ++t) {
    if (all[t] == ignored_label) continue;
    require(all[t] >= 0 && all[t] < vocabulary, "linear_cross_entropy", "label ", all[t], " of row ", t, " is not in [0, ",
            vocabulary, ") and not ", ignored_label);
    rows.push_back(static_cast<std::int32_t>(t));
  }
  return Tensor::of(labels.context(), {static_cast<std::int64_t>(rows.size())}, rows);
}

Tensor gather(const Tensor& x, std::span<const std::int32_t> rows) {
  Tensor y = Tensor::empty(x.context(), {static_cast<std::int64_t>(rows.size()), x.cols()}, x.dtype(), Category::workspace);
  const std::size_t bytes = static_cast<std::size_t>(x.cols()) * size_of(x.dtype());
  for (std::size_t r = 0; r < rows.size(); ++r)
    std::memcpy(static_cast<char*>(y.data()) + r * bytes,
                static_cast<const char*>(x.data()) + static_cast<std::size_t>(rows[r]) * bytes, bytes);
  return y;
}

/// Losses of rows of logits, which become their gradient in `dlogits` if that exists.
void block_losses(Tensor& logits, std::vector<std::int32_t>& labels, const CrossEntropyOptions& options, std::int64_t classes,
                  Tensor* dlogits, std::span<double> losses) {
  const Cpu device = cpu(logits.context(), "linear_cross_entropy");
  if (!options.combine) return kernel::cross_entropy(device, logits, labels, options.label_smoothing, dlogits, losses);
  for (auto& label : labels) {
    const std::int64_t column = label - options.part.first;
    label = column >= 0 && column < logits.cols() ? static_cast<std::int32_t>(column) : -1;
  }
  std::vector<RowStatistics> own(labels.size());
  kernel::row_statistics(device, logits, labels, own);
  auto all = own;
  options.combine(all);
  kernel::cross_entropy_part(device, logits, labels, own, all, classes, options.label_smoothing, dlogits, losses);
}

/// Sum of the losses of `rows`; dx [rows, h] and dweight are written where they exist.
double all_blocks(const Tensor& x, const Tensor& weight, const Tensor& labels, std::span<const std::int32_t> rows,
                  const CrossEntropyOptions& options, std::int64_t classes, Tensor& dx, Tensor& dweight) {
  auto& context = x.context();
  const Cpu device = cpu(context, "linear_cross_entropy");
  const std::int64_t count = static_cast<std::int64_t>(rows.size()), step = block_rows(classes);
  double total = 0;
  for (std::int64_t first = 0; first < count; first += step) {
    const auto block = rows.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(std::min(step, count - first)));
    const auto size = static_cast<std::int64_t>(block.size());
    const Tensor x_block = gather(x, block);
    Tensor logits = Tensor::empty(context, {size, weight.size(0)}, wide(x.dtype()), Category::workspace);
    kernel::matmul(device, Form::nt, x_block, weight, logits);

    std::vector<std::int32_t> wanted(block.size());
    std::vector<double> losses(block.size());
    for (std::size_t r = 0; r < block.size(); ++r) wanted[r] = labels.as<std::int32_t>()[block[r]];
    Tensor dlogits;
    if (dx || dweight)
      dlogits = x.dtype() == logits.dtype() ? logits : Tensor::empty(context, logits.shape(), x.dtype(), Category::workspace);
    block_losses(logits, wanted, options, classes, dlogits ? &dlogits : nullptr, losses);
    for (const double loss : losses) total += loss;

    if (dx) {
      Tensor dx_block = dx.rows_view(first, first + size);
      kernel::matmul(device, Form::nn, dlogits, weight, dx_block);
    }
    if (dweight) kernel::matmul(device, Form::tn, dlogits, x_block, dweight, {first > 0, nullptr});
  }
  if (dweight && count == 0) dweight.fill(0);
  return total;
}

}  // namespace

RowStatistics merge(const RowStatistics& a, const RowStatistics& b) {
  const double top = std::max(a.max, b.max);
  const auto at_top = [top](const RowStatistics& s) { return s.exps == 0 ? 0 : s.exps * std::exp(s.max - top); };
  return {top, at_top(a) + at_top(b), a.sum + b.sum, a.chosen + b.chosen};
}

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& labels, const CrossEntropyOptions& options) {
  const Span span(x.context().trace, "linear_cross_entropy");
  constexpr const char* op = "linear_cross_entropy";
  require(x && x.rank() == 2 && weight && weight.rank() == 2 && x.cols() == weight.cols() && x.dtype() == weight.dtype(), op,
          "x is ", x, ", weight ", weight, "; x [T, h] and weight [V, h] of one type are needed");
  require(labels && labels.dtype() == DType::i32 && labels.numel() == x.rows(), op, "labels are ", labels, " for x ", x);
  require(options.label_smoothing >= 0 && options.label_smoothing <= 1, op, "label smoothing of ", options.label_smoothing);
  const std::int64_t classes = options.part.total_of(op, weight.size(0));
  require(options.combine ? options.part.total > 0 : weight.size(0) == classes, op, weight.size(0), " classes of ",
          options.part.total, options.combine ? " with" : " without", " a hook that combines statistics; a part needs one");
  auto& context = x.context();
  const DType precise = wide(x.dtype());
  const Tensor index = labelled_rows(labels, classes);
  Tensor dx, dweight;
  if (context.recording && x.node()) dx = Tensor::empty(context, {index.numel(), x.cols()}, precise);
  if (context.recording && weight.node()) dweight = empty_gradient(context, weight.shape(), precise);
  const double sum = all_blocks(x, weight, labels, index.span<const std::int32_t>(), options, classes, dx, dweight);
  Tensor loss = Tensor::full(context, {}, precise, options.scale * sum);

  const auto weight_gradient = [scale = options.scale, dtype = x.dtype()](const Backward& b) {
    const Cpu device = cpu(b.dy.context(), op);
    const double factor = scale * b.dy.item();
    Tensor sum = b.saved[1];
    // What the forward pass has summed becomes the gradient, unless that has its place among others.
    if (GradSink* sink = b.sink(1); sink && !sink->grad && !sink->memory) {
      kernel::scaled(device, sum, factor, false, sum);
      sink->grad = sum.reshaped(b.inputs[1]->shape);
      sink->written = true;
      return Tensor();
    }
    WeightGrad weight(b, 1, b.dy.context(), sum.shape(), dtype);
    kernel::scaled(device, sum, factor, weight.add, weight.tensor);
    return weight.done();
  };
  const auto rule = [=, scale = options.scale, shape = x.shape(), dtype = x.dtype()](const Backward& b) {
    Grads grads(2);
    if (b.needs(0)) {
      grads[0] = Tensor::empty(b.dy.context(), shape, dtype);
      kernel::scatter_scaled(cpu(b.dy.context(), op), b.saved[0], b.saved[2].span<const std::int32_t>(), scale * b.dy.item(),
                             grads[0]);
    }
    if (b.needs(1) && !b.sink(1)) grads[1] = weight_gradient(b);
    return grads;
  };
  const auto weight_rule = [=](const Backward& b) { return Grads{{}, b.sink(1) ? weight_gradient(b) : Tensor()}; };
  return record(op, std::move(loss), {x, weight}, {dx, dweight, index}, rule, weight_rule);
}

}  // namespace chorus
