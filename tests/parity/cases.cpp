#include "cases.h"

#include <chorus/core/rng.h>

#include <algorithm>
#include <iomanip>
#include <set>
#include <sstream>

namespace chorus::testing {
namespace {

enum {
  model_,
  dp_,
  tp_,
  sp_,
  kv_,
  accumulation_,
  labels_,
  frozen_,
  tied_,
  dropout_,
  positions_,
  norm_,
  overlap_,
  buckets_,
  recompute_,
  sharding_,
  replicas_,
  reshard_,
  sync_
};

constexpr double tolerance = 1e-10;

std::size_t at(int factor) { return static_cast<std::size_t>(factor); }

const std::string& value(const Choice& c, int factor) {
  return parity_factors()[at(factor)].values[static_cast<std::size_t>(c[at(factor)])];
}

/// One value of a factor, always the same one for the same choice.
int drawn(const Choice& c, int factor) {
  std::string text = parity_factors()[at(factor)].name;
  for (const int index : c) text += ' ' + std::to_string(index);
  return static_cast<int>(RandomStream(random_key(1, text)).below(parity_factors()[at(factor)].values.size()));
}

/// Choices that make no difference are brought to the first value.
Choice plain(Choice c) {
  const auto reset = [&c](int factor) { c[at(factor)] = 0; };
  const std::string& model = value(c, model_);
  if (model == "ctc") reset(kv_), reset(tied_);
  if (model == "decoder") reset(positions_), reset(norm_);
  if (value(c, tp_) == "1") reset(sp_);
  if (value(c, dp_) == "1" && value(c, accumulation_) == "1") reset(labels_);
  if (model == "decoder" && value(c, labels_) == "no audio on one rank") reset(labels_);
  if (value(c, dp_) == "1" && value(c, labels_) == "no samples on one rank") reset(labels_);
  if (value(c, frozen_) == "encoder" && (model == "decoder" || model == "ctc" || model == "perception")) reset(frozen_);
  if (value(c, frozen_) == "decoder" && (model == "ctc" || model == "perception")) reset(frozen_);
  if (value(c, sharding_) == "none" || std::stoi(value(c, dp_)) % 2 != 0) reset(replicas_);
  if (value(c, sharding_) != "full") reset(reshard_);
  if (value(c, sharding_) == "none" || value(c, sharding_) == "optimizer" || value(c, accumulation_) == "1") reset(sync_);
  return c;
}

}  // namespace

const std::vector<Factor>& parity_factors() {
  static const std::vector<Factor> factors{
      {"model", {"decoder", "perception", "salm", "ctc"}},
      {"dp", {"1", "2", "3", "4"}},
      {"tp", {"1", "2", "3", "4"}},
      {"sp", {"off", "on"}},
      {"kv", {"1", "2", "4"}},
      {"accumulation", {"1", "3"}},
      {"labels", {"unequal", "none on one rank", "no audio on one rank", "no samples on one rank"}},
      {"frozen", {"nothing", "encoder", "decoder"}},
      {"head", {"own", "tied"}},
      {"dropout", {"on", "off"}},
      {"positions", {"relative", "rotary"}},
      {"conv_norm", {"layer_norm", "batch_norm"}},
      {"overlap", {"on", "off"}},
      {"buckets", {"large", "small", "copies"}},
      {"recompute", {"none", "full", "selective"}},
      {"sharding", {"none", "optimizer", "gradients", "full"}},
      {"replicas", {"1", "2"}},
      {"reshard", {"auto", "always", "never"}},
      {"sync", {"each microbatch", "the last"}},
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
  for (int i = 0; i < samples; ++i)
    if (i % (c.dp > 1 ? c.dp : 3) == (c.dp > 1 ? c.dp - 1 : 1)) last.push_back(i);
  if (c.labels == "none on one rank") c.variant.without_labels = last;
  if (c.labels == "no audio on one rank") c.variant.without_audio = last;
  c.variant.empty_loss = c.labels == "no samples on one rank";
  const std::string& frozen = value(choice, frozen_);
  if (frozen == "encoder" && c.variant.model == "salm") c.variant.freeze = {"encoder\\."};
  if (frozen == "decoder" && c.variant.model != "ctc" && c.variant.model != "perception")
    c.variant.freeze = {c.variant.model == "decoder" ? "llm\\.layers\\.0\\." : "llm\\."};
  c.ddp.overlap_grad_reduce = value(choice, overlap_) == "on";
  const std::string& buckets = value(choice, buckets_);
  if (buckets != "large") c.ddp.bucket_size = 700;
  c.ddp.gradient_as_bucket_view = buckets != "copies";
  c.recompute = recompute_mode(value(choice, recompute_));
  c.sharding = sharding_of(value(choice, sharding_));
  if (c.sharding != Sharding::none && c.dp % 2 == 0) c.replicas = std::stoi(value(choice, replicas_));
  c.shards = {.reshard_after_forward = value(choice, reshard_),
              .defer_grad_sync = value(choice, sync_) == "the last",
              .overlap = c.ddp.overlap_grad_reduce};
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
  add(recompute != Recompute::none, std::string(chorus::name(recompute)) + " recompute");
  add(sharding != Sharding::none, "sharding " + std::string(chorus::name(sharding)));
  add(replicas > 1, "replicas " + std::to_string(replicas));
  add(shards.reshard_after_forward != "auto", "reshard " + shards.reshard_after_forward);
  add(shards.defer_grad_sync, "sums in the last microbatch");
  return out;
}

bool ParityCase::heads_fit() const {
  return variant.model == "ctc" || variant.kv_heads % tp == 0 || tp % variant.kv_heads == 0;
}

std::string ParityCase::refusal() const {
  return "num_key_value_heads " + std::to_string(variant.kv_heads) + " don't divide over tp_size " + std::to_string(tp) +
         ", nor the other way round";
}

ParityOptions ParityCase::options() const {
  ParityOptions options;
  options.accumulation = accumulation;
  options.ddp = ddp;
  options.sharding = sharding;
  options.shards = shards;
  options.tp_comm_overlap = ddp.overlap_grad_reduce;
  options.recompute = recompute;
  // The last microbatch of a step, in which gradients are summed, gets samples first: where there are few, others go without.
  options.deal = [ranks = variant.empty_loss ? dp - 1 : dp, microbatches = accumulation](int rank, int microbatch) {
    std::vector<int> dealt;
    if (rank == ranks) return dealt;
    for (int i = rank + (microbatches - 1 - microbatch) * ranks; i < samples; i += ranks * microbatches) dealt.push_back(i);
    return dealt;
  };
  return options;
}

std::vector<Choice> whole_product() {
  const auto& factors = parity_factors();
  constexpr int derived[] = {positions_, norm_, buckets_, overlap_, recompute_, sharding_, replicas_, reshard_, sync_};
  const auto given = [&](int factor) { return std::find(std::begin(derived), std::end(derived), factor) == std::end(derived); };
  std::set<Choice> all;
  Choice c(factors.size(), 0);
  while (true) {
    if (const ParityCase one = parity_case(c); one.dp * one.tp > 1) {
      // What a serial run depends on comes from what else it depends on, so that neighbours share it.
      Choice serial = plain(c), whole = serial;
      serial[tp_] = serial[sp_] = 0;
      for (const int factor : {positions_, norm_}) whole[at(factor)] = drawn(serial, factor);
      for (const int factor : {buckets_, recompute_, sharding_, replicas_, reshard_, sync_})
        whole[at(factor)] = drawn(whole, factor);
      all.insert(plain(whole));
    }
    int f = 0;
    for (; f < static_cast<int>(c.size()); ++f) {
      if (!given(f)) continue;
      if (++c[at(f)] < static_cast<int>(factors[at(f)].values.size())) break;
      c[at(f)] = 0;
    }
    if (f == static_cast<int>(c.size())) break;
  }
  std::vector<Choice> product(all.begin(), all.end());
  const auto serial_of = [](Choice choice) {
    for (const int factor : {tp_, sp_, buckets_, recompute_, sharding_, replicas_, reshard_, sync_}) choice[at(factor)] = 0;
    return choice;
  };
  std::stable_sort(product.begin(), product.end(),
                   [&](const Choice& a, const Choice& b) { return serial_of(a) < serial_of(b); });
  return product;
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

const ParityRun& SerialRuns::of(const ParityCase& c) {
  ParityVariant variant = c.variant;
  variant.sequence_parallel = variant.empty_loss = false;
  const std::pair key(std::move(variant), c.accumulation);
  const auto known = runs_.find(key);
  if (known != runs_.end()) return known->second;
  if (runs_.size() >= 50) runs_.clear();
  ParityOptions options;  // whatever the case does otherwise must not be in what it is compared with
  options.accumulation = c.accumulation;
  return runs_[key] = parity_serial(parity_model(c.variant), options);
}

namespace {
/// What of a report isn't as it should be, in one line.
std::string wrong(const ParityReport& report) {
  std::ostringstream out;
  out << std::setprecision(2);
  if (!report.same_start) out << "initial weights differ; ";
  if (!report.counts_once) out << "the norm counts parameters not at all or twice; ";
  for (const auto& [name, worst] :
       {std::pair{"loss", &report.loss}, {"gradient", &report.gradient}, {"norm", &report.norm}, {"weight", &report.weight}})
    if (!(worst->difference <= tolerance)) out << name << " off by " << worst->difference << " at " << worst->where << "; ";
  std::string text = out.str();
  text.resize(text.size() - 2);
  return text;
}
}  // namespace

Verdict judge(const ParityCase& c, SerialRuns& serial) {
  const auto model = parity_model(c.variant);
  ParityRun run;
  try {
    run = parity_parallel(model, c.sizes(), c.dp * c.tp, c.options());
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool by_rule = !c.heads_fit() && text.find(c.refusal()) != text.npos;
    return {by_rule ? Verdict::refused : Verdict::failed, text, 0};
  }
  if (!c.heads_fit()) return {Verdict::failed, "ran, but: " + c.refusal(), 0};
  const ParityReport report = compare(serial.of(c), run);
  if (!report.passed(tolerance)) return {Verdict::failed, wrong(report), report.worst()};
  const auto changes_bits = [&](const ParityOptions& options) {
    const ParityRun other = parity_parallel(model, c.sizes(), c.dp * c.tp, options);
    return other.losses != run.losses || other.gradients != run.gradients || other.weights != run.weights;
  };
  ParityOptions bare = c.options();
  bare.ddp.overlap_grad_reduce = bare.shards.overlap = bare.tp_comm_overlap = false;
  bare.recompute = Recompute::none;
  if ((c.ddp.overlap_grad_reduce || c.recompute != Recompute::none) && changes_bits(bare))
    return {Verdict::failed, "overlap or recomputation changes bits", report.worst()};
  if (c.ddp.overlap_grad_reduce) {
    ParityOptions early = c.options();
    early.sums_at_once = true;
    if (c.dp > 1 && changes_bits(early)) return {Verdict::failed, "sums begin before all is there", report.worst()};
  }
  return {Verdict::equal, "", report.worst()};
}

}  // namespace chorus::testing
