#include <chorus/apps/memory_probe.h>
#include <chorus/apps/state_memory.h>
#include <chorus/core/rng.h>
#include <chorus/models/salm/plan.h>
#include <chorus/nn/optim/optimizer.h>
#include <chorus/nn/path_patterns.h>
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/ops/ctc.h>

#include <algorithm>
#include <map>
#include <set>

namespace chorus {
namespace {

/// Numbers of layers of each kind: encoder, adapter, decoder.
using Layers = std::array<int, 3>;

Layers layers_of(const SalmConfig& model) {
  const bool adapts = model.perception && model.decoder && model.modality_adapter == "conformer";
  return {model.perception ? model.encoder.layers : 0, adapts ? model.adapter_layers : 0,
          model.decoder ? model.llm.num_hidden_layers : 0};
}

void set_layers(SalmConfig& model, const Layers& layers) {
  if (model.perception) model.encoder.layers = layers[0];
  if (layers[1] > 0) model.adapter_layers = layers[1];
  if (model.decoder) model.llm.num_hidden_layers = layers[2];
}

/// How many layers of each kind tell what one more takes: one, or two where a layer is computed again beside the gradients of
/// those behind it, or three where values of neighbours are gathered or gradients of them summed meanwhile.
Layers telling_layers(const RunConfig& config) {
  const auto with = [&](const std::string& mode) { return config.parallel.sharding != "none" ? 3 : mode == "none" ? 1 : 2; };
  const int perception = with(config.trainer.activation_checkpointing_perception);
  return {perception, perception, with(config.trainer.activation_checkpointing_llm)};
}

struct LayerPath {
  std::string kind;  ///< "llm.layers", of what is in no layer its first name: "projection"
  std::string path;  ///< without the layer's number: "llm.layers.#.norm.weight"
};
LayerPath without_layer(const std::string& path) {
  for (const std::string kind : {"encoder.layers", "adapter", "llm.layers"}) {
    if (!path.starts_with(kind + '.')) continue;
    return {kind, kind + ".#" + path.substr(path.find('.', kind.size() + 1))};
  }
  return {path.substr(0, path.find('.')), path};
}

/// Which parameters of the whole model are frozen; `alike` tells whether that is the same for all layers of a kind, and types
/// too.
struct Frozen {
  std::set<std::string> paths;
  bool alike = true;
};

/// Whether each entry of mp_policy means all layers of a kind or none.
bool types_alike(const RunConfig& config, Salm& declared) {
  for (const auto& policy : config.trainer.mp_policy) {
    std::map<std::string, bool> by_kind;
    bool alike = true;
    visit_fields(declared, "", [&]<class Leaf>(const std::string& path, Leaf&) {
      if constexpr (std::is_same_v<Leaf, Unit>) {
        const bool means = path_matches(policy.units, detail::unit_path(path));
        const auto [seen, fresh] = by_kind.emplace(without_layer(path).path, means);
        alike = alike && (fresh || seen->second == means);
      }
    });
    if (!alike) return false;
  }
  return true;
}

Frozen frozen_parameters(const RunConfig& config, const PhaseConfig& phase, const Tokenizer& tokenizer) {
  Salm declared(sized_config(config, tokenizer), tokenizer.size() + 1);
  std::vector<std::string> paths;
  for_each_param(declared, [&](const std::string& path, const Param&) { paths.push_back(path); });
  const PathPatterns freeze("freeze_params", phase.freeze_params, paths),
      prevent("prevent_freeze_params", phase.prevent_freeze_params, paths);
  Frozen out;
  std::map<std::string, bool> by_kind;
  for (const auto& path : paths) {
    const bool is_frozen = freeze.match(path) && !prevent.match(path);
    if (is_frozen) out.paths.insert(path);
    const auto [seen, fresh] = by_kind.emplace(without_layer(path).path, is_frozen);
    out.alike = out.alike && (fresh || seen->second == is_frozen);
  }
  out.alike = out.alike && types_alike(config, declared);
  return out;
}

/// The same rules for a model with fewer layers: exactly the frozen parameters that it has.
FreezeRules rules_for(const RunConfig& smaller, const Tokenizer& tokenizer, const Frozen& frozen) {
  Salm declared(sized_config(smaller, tokenizer), tokenizer.size() + 1);
  FreezeRules rules;
  for_each_param(declared, [&](const std::string& path, const Param&) {
    if (!frozen.paths.contains(path)) return;
    std::string pattern;
    for (const char c : path) pattern += c == '.' ? std::string("\\.") : std::string(1, c);
    rules.freeze.push_back(pattern + '$');
  });
  return rules;
}

/// Tokens without special pieces, and no two alike beside each other: those would need more frames for CTC.
std::vector<std::int32_t> made_up_text(std::int64_t tokens, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> text;
  for (std::int64_t i = 0; i < tokens; ++i) text.push_back(tokenizer.size() - 1 - static_cast<std::int32_t>(i % 2));
  return text;
}

std::int64_t audio_items(const RunConfig& config, const SampleShape& sample) {
  const std::int64_t rows = subsampled_length(sample.frames, config.model.encoder.subsampling_factor);
  return config.model.ctc_compressor ? std::clamp<std::int64_t>(sample.tokens, 1, std::max<std::int64_t>(rows, 1)) : rows;
}

struct Workload {
  SalmBatch batch;
  SalmLossOptions options;
};

Workload made_up(Context& context, const RunConfig& config, const PhaseConfig& phase, const Tokenizer& tokenizer,
                 std::span<const SampleShape> shapes) {
  const Prompt prompt(config.prompt, tokenizer, config.model.perception);
  std::vector<std::vector<float>> features;
  std::vector<std::vector<std::int32_t>> texts;
  std::vector<SpeechSample> samples;
  Workload work;
  for (const auto& shape : shapes) {
    std::vector<float> noise(static_cast<std::size_t>(shape.frames * config.features.mels));
    fill_normal(random_key(0, features.size(), "memory_probe"), 0, std::span(noise), 0.0, 1.0);
    features.push_back(std::move(noise));
    texts.push_back(made_up_text(shape.tokens, tokenizer));
    const LossCounts own = loss_counts(shape.frames, texts.back(), config, prompt);
    work.options.counts.labels += own.labels;
    work.options.counts.ctc_targets += own.ctc_targets;
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) samples.push_back({static_cast<std::int64_t>(i), features[i], texts[i]});
  work.batch = make_salm_batch(context, samples, config, tokenizer, prompt, true);
  // The compressor of a model with a constant CTC head leaves one item of each audio; text that nothing is learned from stands
  // for the others.
  for (std::size_t i = 0; config.model.perception && config.model.ctc_compressor && i < shapes.size(); ++i) {
    auto& c = work.batch.conversations[i];
    const auto more = static_cast<std::size_t>(audio_items(config, shapes[i]) - 1);
    const auto tag = std::find(c.tokens.begin(), c.tokens.end(), work.batch.audio_tag) - c.tokens.begin();
    c.tokens.insert(c.tokens.begin() + tag + 1, more, tokenizer.unk());
    c.answer.insert(c.answer.begin() + tag + 1, more, 0);
  }
  work.options.llm_weight = phase.llm_weight;
  work.options.ctc_weight = phase.ctc_weight;
  work.options.label_smoothing = phase.label_smoothing;
  work.options.corruption = token_corruption(phase, tokenizer);
  return work;
}

/// What a step takes, part by part: until the first gradient arrives, then while gradients of one kind of layer do, e.g. head,
/// decoder layers, embedding, and at its end. Models that differ in numbers of layers have the same parts, and in each part
/// memory is an affine function of these numbers, since a layer holds either its activations or its gradients.
using MemoryByPart = std::vector<MemoryUse>;

/// The first rank of a layout with its part of a model, ready for a step.
struct FirstRank {
  FirstRank(const RunConfig& config, const Tokenizer& tokenizer, const Frozen& frozen, const MeshShape& layout)
      : mesh(Mesh::silent(layout, 0)) {
    if (config.parallel.tp_comm_overlap) mesh->overlap_exchanges();
    RunConfig here = config;
    use_folders_that_are_there(here.trainer);
    here.trainer.optimizer_offload_folder.clear();  // `state_on_disk` counts it
    built = build_salm(context, here, tokenizer, rules_for(config, tokenizer, frozen), *mesh);
    parallel = make_data_parallel(built->store, *mesh, config.parallel.data_parallel(), [&] {
      return loss_term(loss_without_rows(built->model, context, dtype_of_precision(config.trainer.precision)), *mesh);
    });
    // Nobody trains this model; only its shapes matter. A compressor needs a constant head.
    for (const auto* entries : {&built->store.trainable, &built->store.frozen}) {
      for (const auto& entry : *entries) {
        if (!built->model.ctc_head || !config.model.ctc_compressor) continue;
        entry.value.fill(0);
        entry.master.fill(0);
      }
    }
    parallel->values_loaded();
  }
  Context context;
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<BuiltSalm> built;
  std::unique_ptr<DataParallel> parallel;
};

MemoryByPart measured(const RunConfig& config, const PhaseConfig& phase, const Tokenizer& tokenizer, const Frozen& frozen,
                      std::span<const SampleShape> shapes, bool accumulates, const MeshShape& layout) {
  FirstRank rank(config, tokenizer, frozen, layout);
  auto& [context, mesh, built, parallel] = rank;
  std::map<const Node*, std::string> part_of;
  for (const auto& entry : built->store.trainable) part_of[entry.param->leaf.get()] = without_layer(entry.path).kind;
  const MemoryStats before = context.memory.stats();
  MemoryByPart parts;
  const auto close_part = [&] {
    const MemoryStats now = context.memory.stats();
    MemoryUse use;
    for (std::size_t i = 0; i < category_count; ++i) use.of[i] = static_cast<double>(now.peak[i] - before.current[i]);
    use.total = static_cast<double>(now.peak_total - before.total);
    parts.push_back(use);
    context.memory.reset_peak();
  };
  context.memory.reset_peak();
  parallel->start_step();
  const int microbatches = accumulates ? 2 : 1;
  for (int micro = 0; micro < microbatches; ++micro) {
    std::string part;
    const Workload work = made_up(context, config, phase, tokenizer, shapes);
    const SalmLoss loss = built->model.loss(work.batch, work.options, {.training = true, .seed = 1, .step = 0});
    const auto after = [&](const Node& node) {
      for (const auto& input : node.inputs) {
        const auto leaf = part_of.find(input.get());
        if (leaf == part_of.end() || leaf->second == part) continue;
        close_part();
        part = leaf->second;
      }
    };
    parallel->backward(loss_term(loss.total, *mesh), micro + 1 == microbatches, {.after = after});
    close_part();
  }
  parallel->finish_step();
  close_part();
  return parts;
}

/// a + n (b - base), part by part.
MemoryByPart extrapolated(MemoryByPart a, const MemoryByPart& b, const MemoryByPart& base, double n) {
  require(a.size() == b.size() && a.size() == base.size(), "memory estimate", "steps of ", a.size(), ", ", b.size(), " and ",
          base.size(), " parts");
  for (std::size_t p = 0; p < a.size(); ++p) {
    for (std::size_t i = 0; i < category_count; ++i) a[p].of[i] += n * (b[p].of[i] - base[p].of[i]);
    a[p].total += n * (b[p].total - base[p].total);
  }
  return a;
}

MemoryUse largest(const MemoryByPart& parts) {
  MemoryUse use;
  for (const MemoryUse& part : parts) use = largest(use, part);
  return use;
}

/// What `measure` finds of models with few layers, extrapolated to all of them.
MemoryUse over_layers(const RunConfig& config, const Frozen& frozen,
                      const std::function<MemoryByPart(const RunConfig& smaller)>& measure) {
  const Layers whole = layers_of(config.model);
  const auto with = [&](const Layers& layers) {
    RunConfig smaller = config;
    set_layers(smaller.model, layers);
    return measure(smaller);
  };
  if (!frozen.alike) return largest(with(whole));
  Layers base = telling_layers(config);
  for (std::size_t kind = 0; kind < whole.size(); ++kind) base[kind] = std::min(base[kind], whole[kind]);
  const MemoryByPart first = with(base);
  MemoryByPart use = first;
  for (std::size_t kind = 0; kind < whole.size(); ++kind) {
    if (whole[kind] == base[kind]) continue;
    Layers more = base;
    ++more[kind];
    use = extrapolated(use, with(more), first, whole[kind] - base[kind]);
  }
  return largest(use);
}

/// What the optimizer holds lies on disk, all of it, if it is offloaded.
MemoryUse state_on_disk(MemoryUse use, const TrainerConfig& trainer) {
  double& optimizer = use.of[static_cast<std::size_t>(Category::optimizer)];
  if (trainer.optimizer_offload_folder.empty()) return use;
  use.of[static_cast<std::size_t>(Category::disk)] += optimizer;
  use.total -= optimizer;
  optimizer = 0;
  return use;
}

}  // namespace

MemoryUse operator+(MemoryUse a, const MemoryUse& b) {
  for (std::size_t i = 0; i < category_count; ++i) a.of[i] += b.of[i];
  a.total += b.total;
  return a;
}

MemoryUse largest(MemoryUse a, const MemoryUse& b) {
  for (std::size_t i = 0; i < category_count; ++i) a.of[i] = std::max(a.of[i], b.of[i]);
  a.total = std::max(a.total, b.total);
  return a;
}

MemoryUse fixed_memory(const RunConfig& config, const PhaseConfig& phase, const Tokenizer& tokenizer, const MeshShape& layout) {
  Salm declared(sized_config(config, tokenizer), tokenizer.size() + 1);
  Mesh mesh(layout, 0);
  apply(salm_plan(declared.config, mesh, config.parallel.sequence_parallel), declared, mesh);
  const StoreSize size =
      store_size(declared, {phase.freeze_params, phase.prevent_freeze_params}, dtype_of_precision(config.trainer.precision),
                 precision_of(config.trainer, config.model), config.parallel.sharding != "none");
  const StateBytes held = state_memory(config, size, 0, mesh.axis("dp_shard_cp").size).held;
  MemoryUse use;
  use.of[static_cast<std::size_t>(Category::parameters)] = held.values;
  use.of[static_cast<std::size_t>(Category::optimizer)] = held.optimizer;
  use.total = held.values + held.optimizer;
  return state_on_disk(use, config.trainer);
}

RowCounts row_counts(const RunConfig& config, const Prompt& prompt, std::span<const SampleShape> samples) {
  RowCounts rows;
  const auto template_tokens = static_cast<std::int64_t>(prompt.train(0, {}).tokens.size()) - (config.model.perception ? 1 : 0);
  for (const auto& sample : samples) {
    RowCounts own{.decoder = template_tokens + sample.tokens - 1};  // the last token is predicted, not read
    if (config.model.perception) {
      own.encoder = subsampled_length(sample.frames, config.model.encoder.subsampling_factor);
      own.decoder += audio_items(config, sample);
    }
    rows.encoder += own.encoder;
    rows.decoder += own.decoder;
    rows.longest_encoder = std::max(rows.longest_encoder, own.encoder);
    rows.longest_decoder = std::max(rows.longest_decoder, own.decoder);
  }
  return rows;
}

RowCounts largest(const RowCounts& a, const RowCounts& b) {
  return {std::max(a.encoder, b.encoder), std::max(a.decoder, b.decoder), std::max(a.longest_encoder, b.longest_encoder),
          std::max(a.longest_decoder, b.longest_decoder)};
}

MemoryUse step_memory(const RunConfig& config, const PhaseConfig& phase, const Tokenizer& tokenizer,
                      std::span<const SampleShape> samples, bool accumulates, const MeshShape& layout) {
  const Frozen frozen = frozen_parameters(config, phase, tokenizer);
  return over_layers(config, frozen, [&](const RunConfig& smaller) {
    return measured(smaller, phase, tokenizer, frozen, samples, accumulates, layout);
  });
}

}  // namespace chorus
