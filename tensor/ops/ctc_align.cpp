#include <chorus/tensor/ops/ctc.h>
#include <chorus/tensor/ops/ctc_align.h>

#include <cmath>
#include <limits>

namespace chorus {
namespace {

constexpr double impossible = -std::numeric_limits<double>::infinity();

/// log softmax of [rows, symbols] in place.
void normalise(std::vector<double>& x, std::size_t symbols) {
  for (std::size_t row = 0; row < x.size(); row += symbols) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(row), end = begin + static_cast<std::ptrdiff_t>(symbols);
    const double top = *std::max_element(begin, end);
    double sum = 0;
    for (auto it = begin; it != end; ++it) sum += std::exp(*it - top);
    for (auto it = begin; it != end; ++it) *it -= top + std::log(sum);
  }
}

/// States are blank, label 0, blank, label 1 ... blank; `log_p` is [rows, symbols].
std::vector<CtcSpan> align(std::span<const double> log_p, std::size_t symbols, const std::vector<std::int32_t>& labels) {
  const std::size_t rows = log_p.size() / symbols, states = 2 * labels.size() + 1;
  const auto symbol = [&](std::size_t state) { return state % 2 ? static_cast<std::size_t>(labels[state / 2]) : symbols - 1; };
  std::vector<double> before(states, impossible), now(states);
  std::vector<std::uint8_t> came(rows * states);  // how many states the best path into each (row, state) went forward
  before[0] = 0;                                  // ahead of the first row; from there a path may start in state 0 or 1
  for (std::size_t t = 0; t < rows; ++t) {
    for (std::size_t s = 0; s < states; ++s) {
      double best = before[s];
      std::uint8_t from = 0;
      if (s > 0 && before[s - 1] > best) best = before[s - 1], from = 1;
      const bool skips = s % 2 == 1 && s > 1 && labels[s / 2] != labels[s / 2 - 1];
      if (skips && before[s - 2] > best) best = before[s - 2], from = 2;
      now[s] = best + log_p[t * symbols + symbol(s)];
      came[t * states + s] = from;
    }
    before.swap(now);
  }
  std::size_t state = before[states - 1] >= before[states - 2] ? states - 1 : states - 2;
  if (!(before[state] > impossible)) return {};
  std::vector<CtcSpan> spans(labels.size(), {-1, -1});
  for (std::size_t t = rows; t-- > 0;) {
    if (state % 2) {
      CtcSpan& span = spans[state / 2];
      if (span.last < 0) span.last = static_cast<std::int64_t>(t);
      span.first = static_cast<std::int64_t>(t);
    }
    state -= came[t * states + state];
  }
  return spans;
}

}  // namespace

std::vector<std::vector<CtcSpan>> ctc_align(const Tensor& logits, const Rows& rows,
                                            const std::vector<std::vector<std::int32_t>>& labels) {
  require(logits.rank() == 2 && logits.size(0) == rows.count() && logits.size(1) >= 1, "ctc_align", "logits are ", logits,
          " for ", rows.count(), " rows; expected [rows, symbols]");
  require(static_cast<std::int64_t>(labels.size()) == rows.sequences(), "ctc_align", labels.size(), " texts for ",
          rows.sequences(), " sequences");
  const auto symbols = static_cast<std::size_t>(logits.size(1));
  std::vector<double> log_p = logits.to_doubles();
  normalise(log_p, symbols);
  std::vector<std::vector<CtcSpan>> out(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (const auto label : labels[i])
      require(label >= 0 && label < logits.size(1) - 1, "ctc_align", "label ", label, " of sequence ", i, "; expected [0, ",
              logits.size(1) - 1, ")");
    const auto s = static_cast<std::int64_t>(i);
    if (labels[i].empty() || ctc_frames_needed(labels[i]) > rows.length(s)) continue;
    const auto part = std::span<const double>(log_p).subspan(static_cast<std::size_t>(rows.begin(s)) * symbols,
                                                             static_cast<std::size_t>(rows.length(s)) * symbols);
    out[i] = align(part, symbols, labels[i]);
  }
  return out;
}

}  // namespace chorus
