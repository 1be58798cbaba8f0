#include <chorus/apps/memory_report.h>
#include <chorus/apps/state_memory.h>
#include <chorus/apps/text_table.h>
#include <chorus/apps/trainer.h>
#include <chorus/core/text.h>
#include <chorus/models/salm/plan.h>
#include <chorus/nn/optim/optimizer.h>

#include <algorithm>
#include <sstream>

namespace chorus {
namespace {

/// Layers that keep something for backward: those with a parameter that trains in or before them.
struct WalkedLayers {
  int encoder = 0, adapter = 0, decoder = 0;
};

WalkedLayers walked_layers(Salm& model, const PhaseConfig& phase) {
  const auto trains = [&](const std::string& prefix) {
    bool any = false;
    for_each_param(model, [&](const std::string& path, const Param& param) {
      any = any || (param.trainable && path.starts_with(prefix));
    });
    return any;
  };
  const auto from_first = [&](const std::string& prefix, int layers, bool before) {
    int first = 0;
    while (!before && first < layers && !trains(prefix + '.' + std::to_string(first) + '.')) ++first;
    return layers - first;
  };
  WalkedLayers out;
  if (model.encoder)
    out.encoder = from_first("encoder.layers", static_cast<int>(model.encoder->layers.size()), trains("encoder.subsampling"));
  if (phase.llm_weight <= 0 || !model.llm) return out;
  const bool hears = trains("encoder.");
  out.adapter = from_first("adapter", static_cast<int>(model.adapter.size()), hears);
  out.decoder = from_first("llm.layers", static_cast<int>(model.llm->layers.size()),
                           hears || trains("adapter.") || trains("projection") || trains("llm.embedding"));
  return out;
}

DecoderLayerShape shape_of(const LlmConfig& c) {
  return {c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_size(), c.intermediate_size};
}

ConformerLayerShape shape_of(const ConformerConfig& c) {
  return {c.d_model, c.heads, std::int64_t{c.ff_expansion_factor} * c.d_model, c.self_attention_model == "rel_pos",
          c.conv_norm == "batch_norm"};
}

/// What `layers` layers keep, and what the one that is computed again takes beside that.
struct Activations {
  double kept = 0, again = 0;
};

template <class Layer>
Activations activations_of(int layers, const Layer& layer, LayerRows rows, DType type, const std::string& mode, LayerCut cut,
                           bool offloaded) {
  if (layers == 0) return {};
  const Recompute recompute = recompute_mode(mode);
  if (recompute == Recompute::none) return {layers * kept_by_layer(layer, rows, type, recompute, cut), 0};
  // Of what waits in a file this layer's and the next one's are there.
  const int there = offloaded ? std::min(layers, 2) : layers;
  return {there * kept_by_layer(layer, rows, type, recompute, cut), kept_by_layer(layer, rows, type, Recompute::none, cut)};
}

/// Of a model some of whose units have bf16 values, others wide ones: what a parameter takes on average.
StateBytes mean_state(const StoreSize& size, DType type, int arrays, bool masters) {
  const StateBytes narrow = whole_state(DType::bf16, arrays, masters), wide_one = whole_state(wide(type), arrays);
  const auto mean = [&](std::int64_t of_narrow, std::int64_t of_all, double StateBytes::*what) {
    const double share = of_all > 0 ? static_cast<double>(of_narrow) / static_cast<double>(of_all) : 0;
    return share * narrow.*what + (1 - share) * wide_one.*what;
  };
  const StoreSize::Elements& trained = size.trainable;
  return {mean(trained.narrow + size.frozen.narrow, trained.all + size.frozen.all, &StateBytes::values), wide_one.gradients,
          mean(trained.narrow, trained.all, &StateBytes::optimizer)};
}

std::string text_of(const std::optional<double>& bytes) { return bytes ? human_bytes(*bytes) : ""; }

std::string ratio(const MemoryLine& line) {
  if (!line.formula || !line.found || *line.found == 0) return "";
  std::ostringstream text;
  text.precision(3);
  text.setf(std::ios::fixed);
  text << *line.formula / *line.found;
  return text.str();
}

}  // namespace

MemoryReport memory_report(const RunConfig& config, const PhaseConfig& phase, const Tokenizer& tokenizer,
                           const MeshShape& layout, const RowCounts& rows, const MemoryUse& found) {
  Salm model(sized_config(config, tokenizer), tokenizer.size() + 1);
  Mesh mesh(layout, 0);
  apply(salm_plan(model.config, mesh, config.parallel.sequence_parallel), model, mesh);
  const Sharding sharding = sharding_of(config.parallel.sharding);
  const DType type = dtype_of_precision(config.trainer.precision);
  const Precision precision = precision_of(config.trainer, config.model);
  const StoreSize size =
      store_size(model, {phase.freeze_params, phase.prevent_freeze_params}, type, precision, sharding != Sharding::none);
  std::int64_t held = 0;
  for_each_param(model, [&](const std::string&, const Param& param) { held += param.box.size.numel(); });

  const int d = mesh.axis("dp_shard_cp").size;
  const StateBytes whole = mean_state(size, type, state_arrays(config.optimizer), precision.masters),
                   own = shared_state(whole, sharding, d);
  const auto count = static_cast<double>(held), trained = static_cast<double>(size.trained);
  const double gradients = config.parallel.fsdp.defer_grad_sync ? whole.gradients : own.gradients;
  const StateMemory state = state_memory(config, size, 0, d);

  const LayerCut cut{layout.tp, config.parallel.sequence_parallel};
  const WalkedLayers walked = walked_layers(model, phase);
  const bool offloaded = !config.trainer.activation_offload_folder.empty();
  const auto types = unit_types(model, type, precision);
  const auto type_of = [&](const char* layer) { return types.contains(layer) ? types.at(layer).values : type; };
  const DType heard_type = type_of("encoder.layers.0"), read_type = type_of("llm.layers.0");
  const LayerRows heard{rows.encoder, rows.longest_encoder}, read{rows.decoder, rows.longest_decoder};
  const Activations perception = activations_of(walked.encoder + walked.adapter, shape_of(model.config.encoder), heard,
                                                heard_type, config.trainer.activation_checkpointing_perception, cut, offloaded),
                    decoder = activations_of(walked.decoder, shape_of(model.config.llm), read, read_type,
                                             config.trainer.activation_checkpointing_llm, cut, offloaded);
  const double quoted = quoted_for_layer(model.config.llm.hidden_size, model.config.llm.num_attention_heads, read,
                                         static_cast<double>(size_of(read_type)),
                                         recompute_mode(config.trainer.activation_checkpointing_llm), cut);

  MemoryReport report{.phase = phase.name, .rows = rows, .lines = {}};
  if (phase.llm_weight <= 0) report.rows.decoder = report.rows.longest_decoder = 0;
  const auto add = [&](Category category, std::optional<double> formula) {
    report.lines.push_back({std::string(name(category)), formula, found.of[static_cast<std::size_t>(category)]});
  };
  add(Category::parameters, count * own.values);
  add(Category::gradients, trained * gradients);
  const bool on_disk = !config.trainer.optimizer_offload_folder.empty();
  add(Category::optimizer, on_disk ? 0 : trained * own.optimizer);
  add(Category::activations, perception.kept + decoder.kept + std::max(perception.again, decoder.again));
  if (walked.decoder > 0) {
    report.lines.push_back({"decoder, counted", decoder.kept, {}});
    report.lines.push_back({"decoder, quoted", walked.decoder * quoted, {}});
  }
  add(Category::communication,
      sharding == Sharding::none ? std::nullopt : std::optional(state.gathered + state.second_gradients));
  add(Category::workspace, std::nullopt);
  add(Category::disk, on_disk ? std::optional(trained * own.optimizer) : std::nullopt);
  report.lines.push_back({"total", {}, found.total});
  return report;
}

std::string memory_report_text(const MemoryReport& report) {
  std::ostringstream title;
  title << "memory of phase " << report.phase << ", bytes of a rank"
        << (report.step > 0 ? ", the most of its first steps" : ", estimated") << ", heaviest microbatch "
        << report.rows.encoder << " encoder rows, " << report.rows.decoder << " decoder rows\n";
  std::vector<std::vector<std::string>> rows{{"", "formula", report.step > 0 ? "measured" : "estimated", "ratio"}};
  for (const MemoryLine& line : report.lines) {
    if (line.formula.value_or(0) == 0 && line.found.value_or(0) == 0) continue;
    rows.push_back({(line.found ? "" : "  ") + line.name, text_of(line.formula), text_of(line.found), ratio(line)});
  }
  return title.str() + text_table(rows);
}

bool FirstSteps::seen(const StepReport& step, const PhaseConfig& phase, bool last) {
  if (phase_ != &phase) *this = {};
  phase_ = &phase;
  last_step_ = step.step;
  MemoryUse now;
  for (std::size_t i = 0; i < category_count; ++i) now.of[i] = static_cast<double>(step.memory_peak_of[i]);
  now.total = static_cast<double>(step.memory_step_peak);
  use_ = largest(use_, now);
  rows_ = largest(rows_, step.heaviest);
  ++steps_;
  return steps_ == enough || (last && steps_ < enough);
}

MemoryReport FirstSteps::report(const RunConfig& config, const Tokenizer& tokenizer, const MeshShape& layout) const {
  MemoryReport out = memory_report(config, *phase_, tokenizer, layout, rows_, use_);
  out.step = last_step_;
  return out;
}

}  // namespace chorus
