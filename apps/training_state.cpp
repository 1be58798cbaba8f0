#include <chorus/apps/training_state.h>
#include <chorus/io/checkpoint.h>
#include <chorus/io/digest.h>
#include <chorus/nn/path_patterns.h>
#include <chorus/parallel/merge.h>

#include <map>

namespace chorus {
nlohmann::json to_json(const Progress& p) {
  return {{"step", p.step},
          {"phase", p.phase},
          {"phase_step", p.phase_step},
          {"epoch", p.cursor.epoch},
          {"batch", p.cursor.batch},
          {"skipped_steps", p.skipped_steps},
          {"train_seconds", p.train_seconds},
          {"train_digest", p.train_digest},
          {"tokenizer_digest", p.tokenizer_digest},
          {"statistics_digest", p.statistics_digest},
          {"drops",
           {{"too_short", p.drops.too_short},
            {"too_long", p.drops.too_long},
            {"empty_text", p.drops.empty_text},
            {"text_too_long", p.drops.text_too_long},
            {"failed", p.drops.failed},
            {"without_ctc", p.drops.without_ctc}}}};
}

Progress progress_from_json(const nlohmann::json& json) {
  try {
    const auto& drops = json.at("drops");
    return {.step = json.at("step"),
            .phase = json.at("phase"),
            .phase_step = json.at("phase_step"),
            .cursor = {json.at("epoch"), json.at("batch")},
            .skipped_steps = json.value("skipped_steps", std::int64_t{0}),
            .train_seconds = json.at("train_seconds"),
            // What a start counts anew isn't kept; keys that came later are absent in older checkpoints.
            .drops = {.too_short = drops.at("too_short"),
                      .too_long = drops.at("too_long"),
                      .empty_text = drops.at("empty_text"),
                      .text_too_long = drops.at("text_too_long"),
                      .failed = drops.at("failed"),
                      .without_ctc = drops.value("without_ctc", std::int64_t{0})},
            .train_digest = json.at("train_digest"),
            .tokenizer_digest = json.value("tokenizer_digest", ""),
            .statistics_digest = json.value("statistics_digest", "")};
  } catch (const nlohmann::json::exception& error) {
    fail("checkpoint", "the state of the run can't be read: ", error.what());
  }
}

std::string tokenizer_digest(const RunInputs& inputs) {
  const std::string& model = inputs.tokenizer.model();
  return digest(model.data(), model.size());
}

std::string statistics_digest(const RunInputs& inputs) {
  Hasher hasher;
  for (const auto* values : {&inputs.statistics.mean, &inputs.statistics.deviation})
    hasher.update(values->data(), values->size() * sizeof(double));
  return hasher.hex();
}

void require_same_inputs(const Progress& saved, const RunInputs& inputs, const std::filesystem::path& folder) {
  const auto require_same = [&](const std::string& before, const std::string& now, const char* file) {
    // Checkpoints of the first version don't say.
    require(before.empty() || before == now, "run folder", (folder / file).string(),
            " isn't the one that the checkpoints were trained with; put that back or choose another run folder");
  };
  require_same(saved.tokenizer_digest, tokenizer_digest(inputs), "tokenizer.model");
  require_same(saved.statistics_digest, statistics_digest(inputs), "statistics.json");
}

std::vector<NamedPart> named_weights(const BuiltSalm& built) {
  std::vector<NamedPart> out;
  for (const auto* entries : {&built.store.trainable, &built.store.frozen})
    for (const auto& entry : *entries) out.push_back({checkpoint_path("model", entry.path), entry.master, &entry});
  for (const auto& [path, buffer] : built.store.buffers) out.push_back({checkpoint_path("buffer", path), buffer->value});
  return out;
}

std::vector<NamedPart> named_tensors(const BuiltSalm& built, const Optimizer& optimizer) {
  auto out = named_weights(built);
  for (const auto& [kind, flat] : optimizer.state())
    for (const auto& entry : built.store.trainable)
      out.push_back({checkpoint_path("optimizer/" + kind, entry.path), flat.flat_view(entry.first, {entry.count}), &entry});
  return out;
}

std::string parameter_path(std::string name) {
  name.erase(0, name.find('/') + 1);
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

std::string weight_hash(const BuiltSalm& built, Group& world, const Mesh& mesh) {
  Hasher hasher;
  const std::vector<NamedPart> parts = named_weights(built);
  WholeTensors wholes(world, parts, built.store, mesh);
  if (world.rank() > 0) {
    wholes.serve();
    return "";
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor whole = wholes.get(i);
    hasher.update(whole.data(), whole.bytes());
  }
  wholes.end();
  return hasher.hex();
}

std::size_t keep_parameters(const BuiltSalm& before, BuiltSalm& now, const std::vector<std::string>& keep, const Mesh& mesh) {
  std::map<std::string, NamedPart> old;
  for (const auto& part : named_weights(before)) old.emplace(part.name, part);
  const std::vector<NamedPart> targets = named_weights(now);
  std::vector<std::string> paths;
  for (const auto& target : targets) paths.push_back(parameter_path(target.name));
  const PathPatterns patterns("keep", keep, paths);
  std::size_t kept = 0;
  for (const auto& [name, tensor, entry] : targets) {
    if (!patterns.match(parameter_path(name))) continue;
    const NamedPart& known = old.at(name);
    // What is frozen in one phase and trained in the other may be shared out otherwise.
    const Tensor source = known.entry
                              ? held(known.tensor, *known.entry, before.store, mesh).flat_view(entry->offset, {entry->count})
                              : known.tensor;
    // A parameter that changes between frozen and trained may change between the compute type and its wider master.
    dispatch_floating(source.dtype(), "keep", [&]<class From>() {
      dispatch_floating(tensor.dtype(), "keep", [&]<class To>() {
        const From* from = source.as<From>();
        std::transform(from, from + source.numel(), tensor.as<To>(),
                       [](From x) { return static_cast<To>(static_cast<compute_type<From>>(x)); });
      });
    });
    known.tensor.let_go();
    tensor.let_go();
    ++kept;
  }
  now.store.masters_to_values();
  return kept;
}

}  // namespace chorus
