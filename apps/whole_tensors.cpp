#include <chorus/apps/training_state.h>
#include <chorus/apps/whole_tensors.h>

#include <map>

namespace chorus {
namespace {

/// The parameters of which this rank holds a part, by path.
std::map<std::string, const Param*> divided(const ParamStore& store) {
  std::map<std::string, const Param*> out;
  for (const auto* entries : {&store.trainable, &store.frozen})
    for (const auto& entry : *entries)
      for (const auto& at : entry.param->layout)
        if (at.placement.kind == Placement::shard_kind) out.emplace(entry.path, entry.param);
  return out;
}

/// "optimizer/exp_avg/llm/norm/weight" -> "llm.norm.weight": state is named after its parameter.
std::string owner(const std::string& name) {
  const bool state = name.starts_with("optimizer/");
  return parameter_path(state ? name.substr(name.find('/') + 1) : name);
}

}  // namespace

NamedTensors whole_tensors(const NamedTensors& parts, const ParamStore& store, const Mesh& mesh) {
  const auto params = divided(store);
  NamedTensors wholes;
  for (const auto& [name, part] : parts) {
    const auto param = params.find(owner(name));
    wholes.push_back({name, param == params.end() ? part : merged(part.clone(), *param->second, mesh)});
  }
  return wholes;
}

void fill_parts(const NamedTensors& parts, const ParamStore& store, const std::function<void(const NamedTensors&)>& fill) {
  const auto params = divided(store);
  NamedTensors wholes;
  for (const auto& [name, part] : parts) {
    const auto param = params.find(owner(name));
    wholes.push_back({name, param == params.end()
                                ? part
                                : Tensor::empty(part.context(), param->second->global, part.dtype(), Category::workspace)});
  }
  fill(wholes);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto param = params.find(owner(parts[i].first));
    if (param != params.end()) parts[i].second.copy_from(part_of(wholes[i].second, *param->second));
  }
}

}  // namespace chorus
