#include <chorus/tensor/kernels/ctc.h>
#include <chorus/tensor/kernels/vec.h>
#include <chorus/tensor/ops/ctc.h>

namespace chorus {

std::int64_t ctc_frames_needed(std::span<const std::int32_t> labels) {
  auto frames = static_cast<std::int64_t>(labels.size());
  for (std::size_t i = 1; i < labels.size(); ++i) frames += labels[i] == labels[i - 1];
  return frames;
}

namespace {

void check_logits(const char* op, const Tensor& logits, const Rows& rows) {
  require(logits.rank() == 2 && logits.size(0) == rows.count() && logits.size(1) >= 1, op, "logits are ", logits, " for ",
          rows.count(), " rows; expected [rows, symbols]");
}

}  // namespace

Tensor ctc_loss(const Tensor& logits, const Rows& rows, const Tensor& labels, const Tensor& label_offsets, double scale) {
  const char* op = "ctc_loss";
  check_logits(op, logits, rows);
  const std::int64_t sequences = rows.sequences(), vocabulary = logits.size(1);
  require(label_offsets.numel() == sequences + 1, op, "label offsets are ", label_offsets, " for ", sequences, " sequences");
  const kernel::CtcTargets targets{labels.span<const std::int32_t>(), label_offsets.span<const std::int32_t>()};
  require(targets.offsets.front() == 0 && targets.offsets.back() == labels.numel() && std::ranges::is_sorted(targets.offsets),
          op, "label offsets must rise from 0 to ", labels.numel(), " and end at ", targets.offsets.back());
  for (std::size_t i = 0; i < targets.labels.size(); ++i)
    require(targets.labels[i] >= 0 && targets.labels[i] < vocabulary - 1, op, "label ", i, " is ", targets.labels[i],
            "; expected [0, ", vocabulary - 1, "), the last symbol is the blank");
  std::vector<char> feasible;
  for (std::int64_t s = 0; s < sequences; ++s)
    feasible.push_back(ctc_frames_needed(targets.of(static_cast<std::size_t>(s))) <= rows.length(s));

  Context& context = logits.context();
  const Cpu device = cpu(context, op);
  const Span span(context.trace, op, 8.0 * static_cast<double>(logits.numel()));
  Tensor gradient = wants_grad({logits}) ? Tensor::empty(context, logits.shape(), logits.dtype()) : Tensor();
  double total = 0;
  for (const double loss : kernel::ctc(device, logits, rows, targets, feasible, scale, gradient)) total += loss;
  Tensor y = Tensor::full(context, {}, wide(logits.dtype()), scale * total);
  return record(op, y, {logits}, {gradient}, [](const Backward& b) -> Grads {
    const double factor = b.dy.item();
    const Tensor& made = b.saved[0];
    if (factor == 1) return {made};
    Tensor dx = Tensor::empty(made.context(), made.shape(), made.dtype());
    dispatch_floating(made.dtype(), "ctc_loss", [&]<class T>() {
      using C = compute_type<T>;
      const C f = static_cast<C>(factor);
      kernel::map<C>(
          made.numel(), [f](kernel::Vec<C> g) { return g * f; }, dx.as<T>(), made.as<const T>());
    });
    return {dx};
  });
}

std::vector<std::vector<std::int32_t>> ctc_greedy(const Tensor& logits, const Rows& rows) {
  check_logits("ctc_greedy", logits, rows);
  const auto best = kernel::row_argmax(cpu(logits.context(), "ctc_greedy"), logits);
  const auto blank = static_cast<std::int32_t>(logits.size(1) - 1);
  std::vector<std::vector<std::int32_t>> texts(static_cast<std::size_t>(rows.sequences()));
  for (std::int64_t s = 0; s < rows.sequences(); ++s) {
    std::int32_t before = blank;
    for (std::int64_t t = rows.begin(s); t < rows.begin(s + 1); ++t) {
      const std::int32_t now = best[static_cast<std::size_t>(t)];
      if (now != blank && now != before) texts[static_cast<std::size_t>(s)].push_back(now);
      before = now;
    }
  }
  return texts;
}

CtcRuns ctc_runs(const Tensor& logits, const Rows& rows) {
  check_logits("ctc_runs", logits, rows);
  const auto best = kernel::row_argmax(cpu(logits.context(), "ctc_runs"), logits);
  const auto blank = static_cast<std::int32_t>(logits.size(1) - 1);
  std::vector<std::int32_t> offsets{0}, kept;
  std::vector<std::int64_t> kept_per_sequence;
  for (std::int64_t s = 0; s < rows.sequences(); ++s) {
    std::vector<std::int32_t> all, spoken;
    for (std::int64_t begin = rows.begin(s); begin < rows.begin(s + 1);) {
      const std::int32_t symbol = best[static_cast<std::size_t>(begin)];
      std::int64_t end = begin + 1;
      while (end < rows.begin(s + 1) && best[static_cast<std::size_t>(end)] == symbol) ++end;
      const auto run = static_cast<std::int32_t>(offsets.size() - 1);
      all.push_back(run);
      if (symbol != blank) spoken.push_back(run);
      offsets.push_back(static_cast<std::int32_t>(end));
      begin = end;
    }
    const auto& chosen = spoken.empty() ? all : spoken;
    kept.insert(kept.end(), chosen.begin(), chosen.end());
    kept_per_sequence.push_back(static_cast<std::int64_t>(chosen.size()));
  }
  Context& context = logits.context();
  const auto runs = static_cast<std::int64_t>(offsets.size()), count = static_cast<std::int64_t>(kept.size());
  return {Tensor::of(context, {runs}, offsets), Tensor::of(context, {count}, kept), kept_per_sequence};
}

}  // namespace chorus
