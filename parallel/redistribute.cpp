#include <chorus/core/rng.h>
#include <chorus/parallel/redistribute.h>
#include <chorus/tensor/kernels/pointwise.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

namespace chorus {
namespace {

using placement::copy;
using placement::dual;
using placement::same;
using placement::sum;

bool replicated(Placement p) { return p == same || p == copy; }
bool sharded(Placement p) { return p.kind == Placement::shard_kind; }

/// A tensor seen as [outer, n, inner] around one dim.
struct Around {
  Around(const Shape& shape, int dim) {
    for (int d = 0; d < dim; ++d) outer *= shape[d];
    for (int d = dim + 1; d < shape.rank(); ++d) inner *= shape[d];
  }
  std::int64_t outer = 1, inner = 1;
};

Shape with(Shape shape, int dim, std::int64_t n) {
  shape[dim] = n;
  return shape;
}

/// Copies columns [from, from + n) of `x`, seen as [outer, x_n, inner], to those from `to` on of y.
void copy_range(const char* x, std::int64_t x_n, std::int64_t from, char* y, std::int64_t y_n, std::int64_t to, std::int64_t n,
                const Around& around, std::size_t element) {
  const auto size = [&](std::int64_t elements) { return static_cast<std::size_t>(elements * around.inner) * element; };
  if (n == 0) return;
  for (std::int64_t o = 0; o < around.outer; ++o) std::memcpy(y + size(o * y_n + to), x + size(o * x_n + from), size(n));
}

char* bytes_of(const Tensor& t) { return static_cast<char*>(t.data()); }

/// What each rank of the axis owns of `whole`.
std::vector<Range> ranges(std::int64_t whole, const Axis& axis) {
  std::vector<Range> out;
  for (int r = 0; r < axis.size; ++r) out.push_back(shard_range(whole, r, axis.size));
  return out;
}

std::vector<std::int64_t> counts(const std::vector<Range>& parts, std::int64_t per_item) {
  std::vector<std::int64_t> out;
  for (const auto& part : parts) out.push_back(part.count() * per_item);
  return out;
}

/// The parts of dim `dim` one after another, each contiguous: what collectives send.
Tensor packed(const Tensor& x, int dim, const std::vector<Range>& parts) {
  const Around around(x.shape(), dim);
  if (around.outer == 1) return x;
  Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype(), Category::workspace);
  const std::size_t element = size_of(x.dtype());
  for (const auto& part : parts)
    copy_range(bytes_of(x), x.size(dim), part.begin,
               bytes_of(y) + static_cast<std::size_t>(part.begin * around.outer * around.inner) * element, part.count(), 0,
               part.count(), around, element);
  return y;
}

/// The other way.
Tensor unpacked(const Tensor& x, int dim, const std::vector<Range>& parts) {
  const Around around(x.shape(), dim);
  if (around.outer == 1) return x;
  Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
  const std::size_t element = size_of(x.dtype());
  for (const auto& part : parts)
    copy_range(bytes_of(x) + static_cast<std::size_t>(part.begin * around.outer * around.inner) * element, part.count(), 0,
               bytes_of(y), y.size(dim), part.begin, part.count(), around, element);
  return y;
}

Tensor slice(const Tensor& x, int dim, Range part) {
  Tensor y = Tensor::empty(x.context(), with(x.shape(), dim, part.count()), x.dtype());
  copy_range(bytes_of(x), x.size(dim), part.begin, bytes_of(y), part.count(), 0, part.count(), Around(x.shape(), dim),
             size_of(x.dtype()));
  return y;
}

/// A value that all hold becomes a sum: the first rank keeps it, or, to find whoever must not meet a sum, each holds something.
Tensor as_sum(const Tensor& x, const Axis& axis) {
  if (!axis.split_sums || axis.size == 1) {
    if (axis.rank == 0) return x;
    return Tensor::zeros(x.context(), x.shape(), x.dtype());
  }
  std::vector<double> values = x.to_doubles(), noise(values.size());
  const double all_have = values.empty() ? 0 : values.back();
  if (axis.rank > 0) std::fill(values.begin(), values.end(), 0.0);
  for (int r = 1; r < axis.size; ++r) {  // what rank r adds, rank 0 takes away
    if (axis.rank != 0 && axis.rank != r) continue;
    // All ranks have these values, so all know what each of them adds.
    const std::uint64_t salt = x.numel() > 0 ? std::bit_cast<std::uint64_t>(all_have) : 0;
    fill_uniform(random_key(axis.split_seed, salt, axis.name + std::to_string(r)), 0, std::span<double>(noise), -1.0, 1.0);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += axis.rank == 0 ? -noise[i] : noise[i];
  }
  Tensor wide = Tensor::of(x.context(), x.shape(), values);
  Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
  kernel::accumulate(Cpu{}, wide, false, y);
  return y;
}

/// Its own part of a sharded dim among zeros.
Tensor among_zeros(const Tensor& x, int dim, std::int64_t whole, Range part) {
  Tensor y = Tensor::zeros(x.context(), with(x.shape(), dim, whole), x.dtype());
  copy_range(bytes_of(x), part.count(), 0, bytes_of(y), whole, part.begin, part.count(), Around(x.shape(), dim),
             size_of(x.dtype()));
  return y;
}

/// A collective call that may still go on.
struct Exchange {
  Tensor result, source;  ///< source: what the call reads, if that isn't the result
  Pending pending;
  int dim = -1;  ///< of the result, whose parts lie one after another; -1: it lies as it should
  std::vector<Range> parts;
  Tensor finish() {
    pending.wait();
    source = {};
    return dim < 0 ? std::move(result) : unpacked(result, dim, parts);
  }
};

Exchange start_sum(Tensor x, const Axis& axis) {
  Exchange exchange;
  exchange.result = x.unshared() ? std::move(x) : x.clone();
  exchange.pending = axis.group->start_all_reduce(exchange.result);
  return exchange;
}

Exchange start_summed_part(const Tensor& x, const Axis& axis, int dim) {
  const auto parts = ranges(x.size(dim), axis);
  const Around around(x.shape(), dim);
  Exchange exchange;
  exchange.source = packed(x, dim, parts);
  exchange.result =
      Tensor::empty(x.context(), with(x.shape(), dim, parts[static_cast<std::size_t>(axis.rank)].count()), x.dtype());
  exchange.pending =
      axis.group->start_reduce_scatter(exchange.source, exchange.result, counts(parts, around.outer * around.inner));
  return exchange;
}

Exchange start_gather(const Tensor& x, const Axis& axis, int dim, std::int64_t whole) {
  Exchange exchange;
  exchange.dim = dim;
  exchange.parts = ranges(whole, axis);
  const Around around(x.shape(), dim);
  exchange.source = x;
  exchange.result = Tensor::empty(x.context(), with(x.shape(), dim, whole), x.dtype());
  exchange.pending = axis.group->start_all_gather(x, exchange.result, counts(exchange.parts, around.outer * around.inner));
  return exchange;
}

/// Every rank cuts its part of dim `from` along dim `to` and joins what it receives along `from`.
Exchange start_exchange(const Tensor& x, const Axis& axis, int from, int to, std::int64_t whole) {
  Exchange exchange;
  exchange.dim = from;
  exchange.parts = ranges(whole, axis);
  const auto sent_parts = ranges(x.size(to), axis);
  const Range mine = sent_parts[static_cast<std::size_t>(axis.rank)];
  const Shape result = with(with(x.shape(), to, mine.count()), from, whole);
  const std::int64_t other = with(with(x.shape(), from, 1), to, 1).numel();
  exchange.source = packed(x, to, sent_parts);
  exchange.result = Tensor::empty(x.context(), result, x.dtype());
  exchange.pending = axis.group->start_all_to_all(exchange.source, counts(sent_parts, x.size(from) * other), exchange.result,
                                                  counts(exchange.parts, mine.count() * other));
  return exchange;
}

/// Without anybody to talk to: what the result looks like.
Tensor imagined(const Tensor& x, const Axis& axis, Placement from, Placement to, std::int64_t whole) {
  Shape shape = x.shape();
  if (sharded(from)) shape[from.dim] = whole;
  if (sharded(to)) shape[to.dim] = shard_range(shape[to.dim], axis.rank, axis.size).count();
  return shape == x.shape() ? x.detach() : Tensor::empty(x.context(), shape, x.dtype());
}

/// What a backward rule remembers.
struct Move {
  const Axis* axis;
  Placement from, to;
  std::int64_t from_whole, to_whole;
};

Exchange start_move(Tensor x, const Axis& axis, Placement from, Placement to, std::int64_t whole) {
  Exchange done;
  if (axis.size == 1 || from == to || (replicated(from) && replicated(to))) {
    done.result = std::move(x);
    return done;
  }
  const Range mine = shard_range(whole, axis.rank, axis.size);
  require(!sharded(from) || mine.count() == x.size(from.dim), "redistribute", "dim ", from.dim, " of ", x, " is no part ",
          axis.rank, " of ", axis.size, " of ", whole, " along ", axis.name);
  if (!axis.group) {
    done.result = imagined(x, axis, from, to, whole);
  } else if (to == sum) {
    done.result = sharded(from) ? among_zeros(x, from.dim, whole, mine) : as_sum(x, axis);
  } else if (from == sum) {
    return sharded(to) ? start_summed_part(x, axis, to.dim) : start_sum(std::move(x), axis);
  } else if (replicated(from)) {
    done.result = slice(x, to.dim, shard_range(x.size(to.dim), axis.rank, axis.size));
  } else {
    return sharded(to) ? start_exchange(x, axis, from.dim, to.dim, whole) : start_gather(x, axis, from.dim, whole);
  }
  return done;
}

/// What a backward rule does, begun.
struct MoveUnderway final : Underway {
  explicit MoveUnderway(Exchange exchange) : exchange(std::move(exchange)) {}
  Grads arrive() override { return {exchange.finish()}; }
  Exchange exchange;
};

}  // namespace

Tensor moved(Tensor x, const Axis& axis, Placement from, Placement to, std::int64_t whole) {
  return start_move(std::move(x), axis, from, to, whole).finish();
}

Tensor redistribute(Tensor x, const Axis& axis, Placement to) {
  constexpr const char* op = "redistribute";
  require(x.layout() != nullptr, op, x, " says nothing of how it lies along ", axis.name);
  Layout layout = *x.layout();
  const auto at = std::find_if(layout.begin(), layout.end(), [&](const auto& a) { return a.axis == axis.name; });
  require(at != layout.end(), op, x, " lies as ", layout, "; nothing is said of ", axis.name);
  const AxisPlacement from = *at;
  if (from.placement == to) return x;
  for (auto inner = at + 1; inner != layout.end(); ++inner)
    for (const Placement p : {from.placement, to})
      require(!sharded(p) || inner->placement != p, op, x, " lies as ", layout, ": along ", axis.name, " it can't become ", to,
              " before the inner axis ", inner->axis, " leaves dim ", p.dim);
  require(from.parts == 1, op, x, " lies along ", axis.name, " as ", from.parts, " parts side by side, each sharded");
  require(!sharded(to) || to.dim < x.rank(), op, x, " has no dim ", to.dim);

  *at = {axis.name, to,
         sharded(to) ? (sharded(from.placement) && from.placement.dim == to.dim ? from.whole : x.size(to.dim)) : 0, 1};
  const Move move{&axis, from.placement, to, from.whole, at->whole};
  const Span span(x.context().trace, op);
  // The graph needs the way back only: holding the value too would keep a sum from being made in its place.
  Tensor input = Tensor::unbacked(x.context(), x.shape(), x.dtype());
  input.set_node(x.node());
  // What costs nothing or a copy to make again from an input that is made again itself, as a norm's result, isn't kept either.
  const bool passes = replicated(from.placement) && to != sum && is_remade(x);
  const bool again = passes || (sharded(from.placement) && to == copy);
  const Tensor source = again ? x : Tensor();
  x.set_node(nullptr);
  Tensor y = moved(std::move(x), axis, from.placement, to, from.whole);
  y.set_layout(std::make_shared<const Layout>(std::move(layout)));
  if (!wants_grad({input})) return y;
  const auto rule = [move](const Backward& b) {
    return Grads{moved(b.dy, *move.axis, placement::dual(move.to), placement::dual(move.from), move.to_whole)};
  };
  y = record(op, std::move(y), {input}, again ? Saved{source} : Saved{}, rule);
  if (axis.overlap) {
    y.node()->begin = [move](const Tensor& dy) -> std::unique_ptr<Underway> {
      return std::make_unique<MoveUnderway>(
          start_move(dy, *move.axis, placement::dual(move.to), placement::dual(move.from), move.to_whole));
    };
  }
  if (!again) return y;
  return remade_by(std::move(y), [move](const Backward& b) {
    return Grads{moved(b.saved[0], *move.axis, move.from, move.to, move.from_whole)};
  });
}

Tensor placed(Tensor x, const Axis& axis, Placement placement, std::int64_t whole) {
  Layout layout = x.layout() ? *x.layout() : Layout{};
  layout.push_back({axis.name, placement, whole, 1});
  x.set_layout(std::make_shared<const Layout>(std::move(layout)));
  return x;
}

}  // namespace chorus
