#include <chorus/tensor/autograd/weight_grad.h>
#include <chorus/tensor/kernels/rows.h>
#include <chorus/tensor/ops/rows.h>

namespace chorus {
namespace {

void require_matrix(const char* op, const Tensor& x) {
  require(x && x.rank() == 2 && is_floating(x.dtype()), op, "takes a floating [rows, n], given ", x);
}

void require_ids(const char* op, const Tensor& ids, std::int64_t lowest, std::int64_t rows) {
  require(ids && ids.rank() == 1 && ids.dtype() == DType::i32, op, "ids are ", ids, "; i32 [T] is needed");
  const auto values = ids.span<const std::int32_t>();
  for (std::size_t t = 0; t < values.size(); ++t)
    require(values[t] >= lowest && values[t] < rows, op, "id ", values[t], " at position ", t, "; the table has ", rows,
            " rows");
}

/// Row of each id among rows [first, first + count) of a table; -1 for those elsewhere.
Tensor rows_here(const Tensor& ids, std::int64_t first, std::int64_t count) {
  Tensor here = empty_like(ids);
  const auto from = ids.span<const std::int32_t>();
  auto* to = here.as<std::int32_t>();
  for (std::size_t t = 0; t < from.size(); ++t) {
    const std::int64_t row = from[t] - first;
    to[t] = row >= 0 && row < count ? static_cast<std::int32_t>(row) : -1;
  }
  return here;
}

/// Columns [first, first + count) of x, copied.
Tensor columns(const char* op, const Tensor& x, std::int64_t first, std::int64_t count) {
  Tensor y = Tensor::empty(x.context(), {x.size(0), count}, x.dtype());
  kernel::copy_columns(cpu(x.context(), op), x, first, count, y, 0);
  return y;
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& ids, const TablePart& part) {
  const Span span(table.context().trace, "embedding");
  const Cpu device = cpu(table.context(), "embedding");
  require_matrix("embedding", table);
  const std::int64_t rows = part.total_of("embedding", table.size(0));
  require_ids("embedding", ids, 0, rows);
  const Tensor here = rows == table.size(0) ? ids : rows_here(ids, part.first, table.size(0));
  Tensor y = Tensor::empty(table.context(), {ids.numel(), table.size(1)}, table.dtype());
  kernel::gather_rows(device, table, here, y);
  const auto table_grad = [shape = table.shape(), type = table.dtype()](const Backward& b) {
    WeightGrad table(b, 0, b.dy.context(), shape, type);
    kernel::scatter_rows(cpu(b.dy.context(), "embedding"), b.dy, b.saved[0], table.add, table.tensor);
    return Grads{table.done()};
  };
  // Only the gradient of a leaf can wait: one that another op made has to go on.
  return record(
      "embedding", y, {table}, {here}, [table_grad](const Backward& b) { return b.sink(0) ? Grads(1) : table_grad(b); },
      [table_grad](const Backward& b) { return b.sink(0) ? table_grad(b) : Grads(1); });
}

Tensor gather_rows(const Tensor& x, const Tensor& index) {
  const Span span(x.context().trace, "gather_rows");
  const Cpu device = cpu(x.context(), "gather_rows");
  require_matrix("gather_rows", x);
  require_ids("gather_rows", index, -1, x.size(0));
  Tensor y = Tensor::empty(x.context(), {index.numel(), x.size(1)}, x.dtype());
  kernel::gather_rows(device, x, index, y);
  return record("gather_rows", y, {x}, {index}, [shape = x.shape()](const Backward& b) {
    Tensor dx = Tensor::empty(b.dy.context(), shape, b.dy.dtype());
    kernel::scatter_rows(cpu(b.dy.context(), "gather_rows"), b.dy, b.saved[0], false, dx);
    return Grads{dx};
  });
}

Tensor concat_rows(const Tensor& a, const Tensor& b) {
  require_matrix("concat_rows", a);
  require(b && b.rank() == 2 && b.size(1) == a.size(1) && b.dtype() == a.dtype(), "concat_rows",
          "takes equal columns and types, given ", a, " and ", b);
  const Span span(a.context().trace, "concat_rows");
  const std::int64_t first = a.size(0), all = first + b.size(0);
  Tensor y = Tensor::empty(a.context(), {all, a.size(1)}, a.dtype());
  y.rows_view(0, first).copy_from(a);
  y.rows_view(first, all).copy_from(b);
  return record("concat_rows", y, {a, b}, {}, [first, all](const Backward& b) {
    return Grads{b.dy.rows_view(0, first), b.dy.rows_view(first, all)};
  });
}

Tensor concat_cols(const Tensor& a, const Tensor& b) {
  const Span span(a.context().trace, "concat_cols");
  const Cpu device = cpu(a.context(), "concat_cols");
  require_matrix("concat_cols", a);
  require(b && b.rank() == 2 && b.size(0) == a.size(0) && b.dtype() == a.dtype(), "concat_cols",
          "takes equal rows and types, given ", a, " and ", b);
  const std::int64_t left = a.size(1), right = b.size(1);
  Tensor y = Tensor::empty(a.context(), {a.size(0), left + right}, a.dtype());
  kernel::copy_columns(device, a, 0, left, y, 0);
  kernel::copy_columns(device, b, 0, right, y, left);
  return record("concat_cols", y, {a, b}, {}, [left, right](const Backward& b) {
    Grads grads(2);
    if (b.needs(0)) grads[0] = columns("concat_cols", b.dy, 0, left);
    if (b.needs(1)) grads[1] = columns("concat_cols", b.dy, left, right);
    return grads;
  });
}

Tensor segment_mean(const Tensor& x, const Tensor& offsets) {
  const Span span(x.context().trace, "segment_mean");
  const Cpu device = cpu(x.context(), "segment_mean");
  require_matrix("segment_mean", x);
  require(offsets && offsets.rank() == 1 && offsets.dtype() == DType::i32 && offsets.numel() > 0, "segment_mean",
          "offsets are ", offsets, "; i32 [segments + 1] is needed");
  const auto at = offsets.span<const std::int32_t>();
  for (std::size_t s = 0; s < at.size(); ++s)
    require(at[s] >= (s ? at[s - 1] : 0) && at[s] <= x.size(0), "segment_mean", "offset ", at[s], " at position ", s, " of ", x,
            "; offsets rise from 0 to the number of rows");
  Tensor y = Tensor::empty(x.context(), {offsets.numel() - 1, x.size(1)}, x.dtype());
  kernel::segment_mean(device, x, offsets, y);
  return record("segment_mean", y, {x}, {offsets}, [shape = x.shape()](const Backward& b) {
    Tensor dx = Tensor::empty(b.dy.context(), shape, b.dy.dtype());
    kernel::segment_mean_backward(cpu(b.dy.context(), "segment_mean"), b.dy, b.saved[0], dx);
    return Grads{dx};
  });
}

}  // namespace chorus
