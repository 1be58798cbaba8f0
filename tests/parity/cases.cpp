#include "cases.h"

#include <chorus/core/rng.h>

#include <algorithm>
#include <set>

namespace chorus::testing {
namespace {

enum { model_, dp_, tp_, sp_, kv_, accumulation_, labels_, frozen_, tied_, dropout_, positions_, norm_, overlap_, buckets_ };

const std::string& value(const Choice& c, int factor) {
  return parity_factors()[static_cast<std::size_t>(factor)]
      .values[static_cast<std::size_t>(c[static_cast<std::size_t>(factor)])];
}

/// Choices that make no difference are brought to the first value.
Choice plain(Choice c) {
  const auto reset = [&c](int factor) { c[static_cast<std::size_t>(factor)] = 0; };
  const std::string& model = value(c, model_);
  if (model == "ctc") reset(kv_), reset(tied_);
  if (model == "decoder") reset(positions_), reset(norm_);
  if (value(c, tp_) == "1") reset(sp_);
  if (value(c, dp_) == "1" && value(c, accumulation_) == "1") reset(labels_);
  if (model == "decoder" && value(c, labels_) == "no audio on one rank") reset(labels_);
  if (value(c, frozen_) == "encoder" && (model == "decoder" || model == "ctc" || model == "perception")) reset(frozen_);
  if (value(c, frozen_) == "decoder" && (model == "ctc" || model == "perception")) reset(frozen_);
  return c;
}

}  // namespace

const std::vector<Factor>& parity_factors() {
  static const std::vector<Factor> factors{
      {"model", {"decoder", "perception", "salm", "ctc"}},
      {"dp", {"1", "2", "3"}},
      {"tp", {"1", "2", "3", "4"}},
      {"sp", {"off", "on"}},
      {"kv", {"1", "2", "4"}},
      {"accumulation", {"1", "3"}},
      {"labels", {"unequal", "none on one rank", "no audio on one rank"}},
      {"frozen", {"nothing", "encoder", "decoder"}},
      {"head", {"own", "tied"}},
      {"dropout", {"on", "off"}},
      {"positions", {"relative", "rotary"}},
      {"conv_norm", {"layer_norm", "batch_norm"}},
      {"overlap", {"on", "off"}},
      {"buckets", {"large", "small", "copies"}},
  };
  return factors;
}

ParityCase parity_case(const Choice& choice) {
  ParityCase c;
  c.variant = {.model = value(choice, model_),
               .kv_heads = std::stoi(value(choice, kv_)),
               .tied = value(choice, tied_) == "tied",
               .dropout = value(choice, dropout_) == "on",
               .rotary = value(choice, positions_) == "rotary",
               .batch_norm = value(choice, norm_) == "batch_norm",
               .sequence_parallel = value(choice, sp_) == "on",
               .freeze = {},
               .without_labels = {},
               .without_audio = {}};
  c.dp = std::stoi(value(choice, dp_));
  c.tp = std::stoi(value(choice, tp_));
  c.accumulation = std::stoi(value(choice, accumulation_));
  c.labels = value(choice, labels_);
  // Dealt like cards: what the last data-parallel rank (or the only one's second microbatch) gets.
  std::vector<int> last;
  for (int i = 0; i < 5; ++i)
    if (i % (c.dp > 1 ? c.dp : 3) == (c.dp > 1 ? c.dp - 1 : 1)) last.push_back(i);
  if (c.labels == "none on one rank") c.variant.without_labels = last;
  if (c.labels == "no audio on one rank") c.variant.without_audio = last;
  const std::string& frozen = value(choice, frozen_);
  if (frozen == "encoder" && c.variant.model == "salm") c.variant.freeze = {"encoder\\."};
  if (frozen == "decoder" && c.variant.model != "ctc" && c.variant.model != "perception")
    c.variant.freeze = {c.variant.model == "decoder" ? "llm\\.layers\\.0\\." : "llm\\."};
  c.ddp.overlap_grad_reduce = value(choice, overlap_) == "on";
  const std::string& buckets = value(choice, buckets_);
  if (buckets != "large") c.ddp.bucket_size = 700;
  c.ddp.gradient_as_bucket_view = buckets != "copies";
  return c;
}

std::string ParityCase::name() const {
  std::string out = variant.model + " dp" + std::to_string(dp) + " tp" + std::to_string(tp);
  const auto add = [&out](bool yes, const std::string& what) { out += yes ? " " + what : ""; };
  add(variant.sequence_parallel, "sp");
  add(variant.model != "ctc", "kv" + std::to_string(variant.kv_heads));
  add(accumulation > 1, "accumulation " + std::to_string(accumulation));
  add(labels != "unequal", labels);
  for (const auto& pattern : variant.freeze) add(true, "frozen " + pattern);
  add(variant.tied, "tied");
  add(!variant.dropout, "without dropout");
  add(variant.rotary, "rotary");
  add(variant.batch_norm, "batch_norm");
  add(!ddp.overlap_grad_reduce, "no overlap");
  add(ddp.bucket_size == 700, "small buckets");
  add(!ddp.gradient_as_bucket_view, "copied gradients");
  return out;
}

ParityOptions ParityCase::options() const {
  ParityOptions options;
  options.accumulation = accumulation;
  options.ddp = ddp;
  options.tp_comm_overlap = ddp.overlap_grad_reduce;
  return options;
}

std::vector<Choice> whole_product() {
  std::set<Choice> all;
  Choice c(parity_factors().size(), 0);
  while (true) {
    const ParityCase one = parity_case(c);
    if (one.dp * one.tp > 1) all.insert(plain(c));
    std::size_t f = 0;
    while (f < c.size() && ++c[f] == static_cast<int>(parity_factors()[f].values.size())) c[f++] = 0;
    if (f == c.size()) break;
  }
  return {all.begin(), all.end()};
}

std::vector<Choice> pairwise_cover(std::uint64_t seed) {
  const auto& factors = parity_factors();
  using Pair = std::array<int, 4>;  // factor, value, factor, value
  std::set<Pair> open;
  for (std::size_t f = 0; f < factors.size(); ++f)
    for (std::size_t g = f + 1; g < factors.size(); ++g)
      for (std::size_t a = 0; a < factors[f].values.size(); ++a)
        for (std::size_t b = 0; b < factors[g].values.size(); ++b)
          open.insert({static_cast<int>(f), static_cast<int>(a), static_cast<int>(g), static_cast<int>(b)});
  RandomStream stream(random_key(seed, "cover"));
  const auto covered = [&](const Choice& c) {
    std::vector<Pair> pairs;
    for (std::size_t f = 0; f < c.size(); ++f)
      for (std::size_t g = f + 1; g < c.size(); ++g) {
        const Pair pair{static_cast<int>(f), c[f], static_cast<int>(g), c[g]};
        if (open.contains(pair)) pairs.push_back(pair);
      }
    return pairs;
  };
  std::vector<Choice> cover;
  while (!open.empty()) {
    Choice best;
    std::size_t most = 0;
    for (int attempt = 0; attempt < 60; ++attempt) {  // random choices, each with one open pair in it
      Choice c;
      for (const auto& factor : factors) c.push_back(static_cast<int>(stream.below(factor.values.size())));
      auto pair = open.begin();
      std::advance(pair, static_cast<std::ptrdiff_t>(stream.below(open.size())));
      c[static_cast<std::size_t>((*pair)[0])] = (*pair)[1];
      c[static_cast<std::size_t>((*pair)[2])] = (*pair)[3];
      const std::size_t count = covered(c).size();
      if (count > most) best = c, most = count;
    }
    for (const auto& pair : covered(best)) open.erase(pair);
    const ParityCase one = parity_case(best);
    if (one.dp * one.tp > 1) cover.push_back(plain(best));
  }
  return cover;
}

Verdict judge(const ParityCase& c) {
  const auto model = parity_model(c.variant);
  ParityRun run;
  try {
    run = parity_parallel(model, c.sizes(), c.dp * c.tp, c.options());
  } catch (const Error& error) {
    const std::string text = error.what();
    return {text.find("don't divide over tp_size") != text.npos ? Verdict::refused : Verdict::failed, text, 0};
  }
  const ParityReport report = compare(parity_serial(model, c.options()), run);
  if (!report.passed()) return {Verdict::failed, report.text(), report.worst()};
  if (c.ddp.overlap_grad_reduce) {
    ParityOptions options = c.options();
    options.ddp.overlap_grad_reduce = options.tp_comm_overlap = false;
    const ParityRun after = parity_parallel(model, c.sizes(), c.dp * c.tp, options);
    if (after.losses != run.losses || after.gradients != run.gradients || after.weights != run.weights)
      return {Verdict::failed, "overlap changes bits", report.worst()};
  }
  return {Verdict::equal, "", report.worst()};
}

}  // namespace chorus::testing
