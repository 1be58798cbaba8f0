#include <chorus/apps/checkpoint_fit.h>
#include <chorus/core/error.h>

#include <set>
#include <sstream>

namespace chorus {
namespace {

/// "; 12 are missing: a, b, c ..." of one kind of difference; nothing where there is none.
std::string listed(const char* what, const std::vector<std::string>& names) {
  constexpr std::size_t shown = 6;
  if (names.empty()) return {};
  std::string text = "\n  " + std::to_string(names.size()) + what;
  for (std::size_t i = 0; i < std::min(shown, names.size()); ++i) text += (i ? ", " : " ") + names[i];
  return text + (names.size() > shown ? " ..." : "");
}

std::string group_of(const std::string& name) { return name.substr(0, name.find('/')); }

}  // namespace

void read_parts(const Checkpoint& checkpoint, std::span<const NamedPart> parts, const ReadOptions& options) {
  std::set<std::string> wanted, groups;
  std::vector<std::string> missing, extra, shapes;
  for (const NamedPart& part : parts) {
    const std::string& name = part.name;
    wanted.insert(name);
    groups.insert(group_of(name));
    const SavedTensor* saved = checkpoint.manifest().find(name);
    if (!saved) {
      missing.push_back(name);
    } else if (!(saved->shape == part.shape())) {
      std::ostringstream text;
      text << name << ' ' << saved->shape << " instead of " << part.shape();
      shapes.push_back(text.str());
    }
  }
  for (const SavedTensor& saved : checkpoint.manifest().tensors)
    if (!wanted.contains(saved.path) && groups.contains(group_of(saved.path))) extra.push_back(saved.path);
  require(missing.empty() && extra.empty() && shapes.empty(), "checkpoint", checkpoint.folder().string(),
          " is of another model than config.toml and tokenizer.model of the run describe:",
          listed(" of another shape:", shapes), listed(" missing in it:", missing), listed(" that the model lacks:", extra));
  for (const NamedPart& part : parts) fill_part(part, [&](const Tensor& whole) { checkpoint.read(part.name, whole, options); });
}

}  // namespace chorus
