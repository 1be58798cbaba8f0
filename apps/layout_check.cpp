#include <chorus/apps/layout_check.h>
#include <chorus/models/conformer/plan.h>
#include <chorus/models/llm/plan.h>
#include <chorus/models/salm/model.h>
#include <chorus/nn/materialize.h>

#include <algorithm>
#include <initializer_list>

namespace chorus {
namespace {

/// Where a key of nested tables was given; of the nearest table around it otherwise.
config::Place place_of(const config::Tree& given, std::initializer_list<const char*> path) {
  const config::Tree* at = &given;
  for (const char* key : path) {
    const config::Tree* next = at->find(key);
    if (!next) break;
    at = next;
  }
  return at == &given ? config::Place{} : at->place;
}

}  // namespace

void check_layout(const Loaded<RunConfig>& loaded, int ranks) {
  const RunConfig& config = loaded.value;
  config::Problems problems;
  if (const auto wrong = wrong_size(config.parallel.sizes(), ranks)) {
    const config::Tree* parallel = loaded.given.find("parallel");
    std::string key = wrong->name;
    const auto other_name = [&](const char* name, const char* other) {
      if (key == name && !(parallel && parallel->find(name))) key = other;
    };
    other_name("tp_size", "tensor_parallel_size");
    other_name("dp_size", "data_parallel_size");
    problems.add(place_of(loaded.given, {"parallel", key.c_str()}), "parallel." + key + ": " + wrong->why);
  }
  const int tp = config.parallel.tp();
  if (config.model.decoder)
    for (const WrongSize& wrong : wrong_heads(config.model.llm, tp))
      problems.add(place_of(loaded.given, {"model", "llm", wrong.name.c_str()}), "model.llm." + wrong.name + ": " + wrong.why);
  if (config.model.perception)
    for (const WrongSize& wrong : wrong_heads(config.model.encoder, tp))
      problems.add(place_of(loaded.given, {"model", "encoder", wrong.name.c_str()}),
                   "model.encoder." + wrong.name + ": " + wrong.why);
  if (!config.trainer.mp_policy.empty()) {
    SalmConfig nameless = config.model;  // the names of units don't depend on the vocabulary
    nameless.encoder.features = config.features.mels;
    nameless.llm.vocab_size = 1;
    Salm model(nameless, 2);
    try {
      unit_types(model, dtype_of_precision(config.trainer.precision), precision_of(config.trainer, config.model));
    } catch (const Error& error) {
      problems.add(place_of(loaded.given, {"trainer", "mp_policy"}), "trainer.mp_policy: " + without_place(error));
    }
  }
  problems.raise();
}

std::string too_many_ranks(int ranks, int cores) {
  const int most = std::max(64, 16 * cores);
  if (ranks <= most) return "";
  return "--ranks " + std::to_string(ranks) + ": ranks are threads of this process, which may use " + std::to_string(cores) +
         (cores == 1 ? " core" : " cores") + "; at most " + std::to_string(most) +
         " are started on them. What each of so many would hold is shown by --dry-run and by chorus plan layout; mpirun starts "
         "ranks on several machines";
}

}  // namespace chorus
