#include <chorus/tensor/layout_rules.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <ostream>
#include <string_view>
#include <unordered_map>

namespace chorus {

std::ostream& operator<<(std::ostream& out, const Placement& p) {
  switch (p.kind) {
    case Placement::same_kind: return out << "same";
    case Placement::copy_kind: return out << "copy";
    case Placement::sum_kind: return out << "sum";
    case Placement::shard_kind: break;
  }
  return out << "shard(" << p.dim << ')';
}

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  const char* separator = "";
  for (const auto& at : layout) {
    out << separator << at.axis << ": " << at.placement;
    if (at.parts > 1) out << " of " << at.parts << " parts";
    separator = ", ";
  }
  return out;
}

namespace {

using namespace placement;

/// How one input lies along the axis in question; nothing: a constant.
using Given = std::optional<AxisPlacement>;
/// The result's, or nothing when no rule allows these inputs.
using Result = std::optional<AxisPlacement>;

/// The inputs of one op along one axis.
struct Meeting {
  const std::vector<Given>& given;
  const Inputs& inputs;
  const Tensor& y;

  bool absent(std::size_t i) const { return i >= inputs.size() || !inputs[i]; }
  bool is(std::size_t i, Placement p) const { return given[i] && given[i]->placement == p; }
  /// Lies so, or is a constant, or isn't there.
  bool fits(std::size_t i, Placement p) const { return absent(i) || !given[i] || given[i]->placement == p; }
  bool rest_fits(std::size_t first, Placement p) const {
    for (std::size_t i = first; i < inputs.size(); ++i)
      if (!fits(i, p)) return false;
    return true;
  }
  /// All of them lie so or are constants, but not all are constants; a constant is no part of a sum.
  bool all(Placement p) const {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (p == sum && !absent(i) && !given[i]) return false;
    return rest_fits(0, p);
  }
  bool sharded(std::size_t i) const { return given[i] && given[i]->placement.kind == Placement::shard_kind; }
  int last(std::size_t i) const { return inputs[i].rank() - 1; }
  AxisPlacement result(Placement p, std::int64_t whole = 0, int parts = 1) const {
    for (const auto& g : given)
      if (g) return {g->axis, p, whole, parts};
    return {"", p, whole, parts};
  }
};

Result replicated(const Meeting& m) {
  if (m.all(same)) return m.result(same);
  if (m.all(copy)) return m.result(copy);
  return {};
}

/// f(x) for any f, element by element.
Result unary(const Meeting& m) { return m.is(0, sum) ? Result() : Result(m.given[0]); }
/// f(x) for a linear f, element by element.
Result linear_unary(const Meeting& m) { return m.given[0]; }

Result addition(const Meeting& m) {
  if (!m.given[0] || !m.given[1]) {  // a constant is on every rank
    const Given& known = m.given[0] ? m.given[0] : m.given[1];
    return known->placement == sum ? Result() : Result(known);
  }
  return *m.given[0] == *m.given[1] ? m.given[0] : Result();
}

Result product(const Meeting& m) {
  for (const auto& [a, b] : {std::pair{0, 1}, {1, 0}})
    if (m.is(static_cast<std::size_t>(a), sum))
      return m.fits(static_cast<std::size_t>(b), copy) ? m.given[static_cast<std::size_t>(a)] : Result();
  return addition(m);
}

/// A vector over the last dim meets every row.
Result row_vectors(const Meeting& m, bool along_features, bool additive) {
  if (const Result r = replicated(m)) return r;
  if (!m.given[0]) return {};
  const AxisPlacement& x = *m.given[0];
  if (x.placement == sum) {
    const bool linear = additive && m.is(1, sum);
    return linear ? Result(x) : Result();
  }
  if (x.placement == shard(m.last(0))) {
    if (!along_features || x.parts != 1 || !m.rest_fits(1, shard(0))) return {};
    return x;
  }
  return m.sharded(0) && m.rest_fits(1, copy) ? Result(x) : Result();
}
Result add_row(const Meeting& m) { return row_vectors(m, true, true); }
Result fixed_norm(const Meeting& m) { return row_vectors(m, true, false); }
Result norm(const Meeting& m) { return row_vectors(m, false, false); }

/// Of whole rows, each by itself.
Result row_wise(const Meeting& m) {
  if (const Result r = replicated(m)) return r;
  return m.sharded(0) && m.given[0]->placement.dim != m.last(0) ? Result(m.given[0]) : Result();
}

/// x[.., in] W[out, in]^T + bias[out].
Result linear(const Meeting& m) {
  if (const Result r = replicated(m)) return r;
  const auto& x = m.given[0];
  const auto& w = m.given[1];
  const bool bias = !m.absent(2);
  if (m.fits(0, copy) && m.is(1, shard(0))) {
    const bool meets = !bias || (m.given[2] && m.given[2]->placement == shard(0) && m.given[2]->parts == w->parts);
    return meets ? Result(m.result(shard(m.y.rank() - 1), w->whole, w->parts)) : Result();
  }
  const bool bias_adds = !bias || m.is(2, sum);
  if ((m.is(0, sum) && m.fits(1, copy)) || (m.fits(0, copy) && m.is(1, sum)))
    return bias_adds ? Result(m.result(sum)) : Result();
  if (!m.sharded(0)) return {};
  if (x->placement.dim == m.last(0)) {
    const bool meets =
        w && w->placement == shard(1) && x->parts == 1 && (x->whole == w->whole || x->whole == 0 || w->whole == 0);
    return meets && bias_adds ? Result(m.result(sum)) : Result();
  }
  return m.rest_fits(1, copy) ? Result(x) : Result();
}

/// Two halves side by side, one of which gates the other.
Result gate(const Meeting& m) {
  if (const Result r = row_wise(m)) return r;
  if (!m.is(0, shard(m.last(0))) || m.given[0]->parts != 2) return {};
  return m.result(m.given[0]->placement, m.given[0]->whole);
}

/// q, k and v side by side; heads apart from each other, rows not.
Result attention(const Meeting& m) {
  if (const Result r = replicated(m)) return r;
  return m.is(0, shard(1)) && m.given[0]->parts == 3 ? Result(m.result(shard(1), m.given[0]->whole)) : Result();
}
Result relative_attention(const Meeting& m) {
  if (const Result r = replicated(m)) return r;
  const bool meets =
      m.is(0, shard(1)) && m.given[0]->parts == 3 && m.fits(1, shard(0)) && m.fits(2, shard(0)) && m.is(3, shard(1));
  return meets ? Result(m.result(shard(1), m.given[0]->whole)) : Result();
}
Result rope(const Meeting& m) {
  if (const Result r = replicated(m)) return r;
  return m.is(0, shard(1)) && m.given[0]->parts == 3 ? m.given[0] : Result();
}

/// Of heads that lie here, and their keys and values, which were kept as they came.
Result cached_attention(const Meeting& m) {
  if (const Result r = replicated(m)) return r;
  return m.is(0, shard(1)) && m.given[0]->parts == 1 ? m.given[0] : Result();
}

/// Along the rows of each channel.
Result depthwise(const Meeting& m) {
  if (const Result r = replicated(m)) return r;
  const bool meets = m.is(0, shard(1)) && m.given[0]->parts == 1 && m.is(1, shard(1)) && m.fits(2, shard(0));
  return meets ? m.given[0] : Result();
}

/// Linear in whole rows, which it moves or adds up.
Result moves_rows(const Meeting& m) {
  if (const Result r = replicated(m)) return r;
  if (m.all(sum)) return m.result(sum);
  for (std::size_t i = 0; i < m.given.size(); ++i)
    if (!m.given[i] || m.given[i]->placement != shard(1) || m.given[i] != m.given[0]) return {};
  return m.given[0];
}
Result concat_cols(const Meeting& m) {
  if (const Result r = replicated(m)) return r;
  if (m.all(sum)) return m.result(sum);
  return m.is(0, shard(0)) && m.given[0] == m.given[1] ? m.given[0] : Result();
}
/// Ids that lie elsewhere give zeros.
Result embedding(const Meeting& m) {
  if (m.is(0, shard(0))) return m.result(sum);
  return m.given[0];
}
Result total(const Meeting& m) { return m.sharded(0) ? Result(m.result(sum)) : m.given[0]; }

/// With the vocabulary sharded, statistics of all parts meet inside.
Result vocabulary_loss(const Meeting& m) {
  if (const Result r = replicated(m)) return r;
  if (m.fits(0, copy) && m.is(1, shard(0))) return m.result(same);
  return m.is(0, shard(0)) && m.fits(1, copy) ? Result(m.result(sum)) : Result();
}

using Rules = std::unordered_map<std::string_view, Result (*)(const Meeting&)>;
const Rules& rules() {
  static const Rules table{
      {"add", addition},
      {"add_row", add_row},
      {"add_scaled", addition},
      {"attention", attention},
      {"cached_attention", cached_attention},
      {"cast", linear_unary},
      {"concat_cols", concat_cols},
      {"concat_rows", moves_rows},
      {"conv1d", replicated},
      {"conv2d_subsample", replicated},
      {"ctc_loss", replicated},
      {"depthwise_conv1d", depthwise},
      {"depthwise_conv2d_subsample", replicated},
      {"dropout", linear_unary},
      {"embedding", embedding},
      {"fixed_norm", fixed_norm},
      {"gather_rows", moves_rows},
      {"glu", gate},
      {"layer_norm", norm},
      {"linear", linear},
      {"linear_cross_entropy", vocabulary_loss},
      {"mul", product},
      {"relative_attention", relative_attention},
      {"relu", unary},
      {"rms_norm", norm},
      {"rope", rope},
      {"scale", linear_unary},
      {"segment_mean", moves_rows},
      {"silu", unary},
      {"silu_dropout", unary},
      {"softmax", row_wise},
      {"sum", total},
      {"swiglu", gate},
  };
  return table;
}

[[noreturn]] void refuse(const char* op, const std::string& axis, const std::vector<Given>& given, const Inputs& inputs) {
  std::ostringstream text;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) continue;
    text << (i ? ", " : "") << inputs[i].shape() << ' ';
    if (!given[i]) {
      text << "constant";
      continue;
    }
    text << given[i]->placement;
    if (given[i]->parts > 1) text << " of " << given[i]->parts << " parts";
  }
  fail("layout", op, " has no rule for inputs that lie along ", axis, " as ", text.str());
}

}  // namespace

std::shared_ptr<const Layout> result_layout(const char* op, const Inputs& inputs, const Tensor& y) {
  const Layout* first = nullptr;
  std::size_t from = 0;
  for (std::size_t i = inputs.size(); i-- > 0;)
    if (inputs[i] && inputs[i].layout()) first = inputs[i].layout().get(), from = i;
  if (!first) return nullptr;
  const auto rule = rules().find(op);
  require(rule != rules().end(), "layout", "op ", op, " says nothing of how its result lies on a mesh; an input lies as ",
          *first);

  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] && inputs[i].layout())
      for (const auto& at : *inputs[i].layout())
        require(std::any_of(first->begin(), first->end(), [&](const auto& axis) { return axis.axis == at.axis; }), "layout", op,
                ": input ", from, ' ', inputs[from].shape(), " says nothing of axis ", at.axis,
                ", along which another lies as ", at.placement);
  Layout out;
  for (const auto& axis : *first) {
    std::vector<Given> given(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i] || !inputs[i].layout()) continue;
      for (const auto& at : *inputs[i].layout())
        if (at.axis == axis.axis) given[i] = at;
      require(given[i].has_value(), "layout", op, ": input ", i, " ", inputs[i].shape(), " says nothing of axis ", axis.axis,
              ", along which another lies as ", axis.placement);
    }
    const Result result = rule->second(Meeting{given, inputs, y});
    if (!result) refuse(op, axis.axis, given, inputs);
    out.push_back(*result);
  }
  const auto& same_as_first = inputs[from].layout();
  return out == *same_as_first ? same_as_first : std::make_shared<const Layout>(std::move(out));
}

}  // namespace chorus
