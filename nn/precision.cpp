#include <chorus/nn/path_patterns.h>
#include <chorus/nn/precision.h>

#include <algorithm>

namespace chorus::detail {

std::map<std::string, UnitTypes> types_of_units(const std::vector<std::pair<std::string, Unit*>>& units, DType dtype,
                                                const Precision& precision) {
  constexpr const char* scope = "precision";
  std::vector<std::string> paths;
  for (const auto& [path, unit] : units) paths.push_back(path);
  const std::string known = kinds_of_paths(paths);
  for (const auto& rule : precision.units) {
    const bool root = rule.units == "root";
    require(!root || !(rule.param || rule.output), scope, "what lies in no unit has the model's type, ", dtype,
            "; for 'root' only the type of sums can be chosen");
    require(root || std::ranges::any_of(units, [&](const auto& unit) { return path_matches(rule.units, unit.first); }), scope,
            "'", rule.units, "' matches no unit; ", known.empty() ? "there are none" : "units are " + known);
    for (const auto& type : {rule.param, rule.reduce, rule.output})
      require(!type || (is_floating(*type) && wide(*type) == wide(dtype)), scope, "'", rule.units, "': ", type.value_or(dtype),
              " in a model of ", dtype, "; f32 and bf16 go together, f64 stands alone");
  }
  const auto resolved = [&](const std::string& path) {
    UnitTypes types{dtype, wide(dtype), dtype};
    const auto first = [&](auto member, DType& type) {
      const auto rule = std::ranges::find_if(precision.units, [&](const UnitPrecision& r) {
        return r.*member && (path.empty() ? r.units == "root" : path_matches(r.units, path));
      });
      if (rule != precision.units.end()) type = *((*rule).*member);
    };
    first(&UnitPrecision::param, types.values);
    first(&UnitPrecision::reduce, types.reduce);
    first(&UnitPrecision::output, types.output);
    return types;
  };
  std::map<std::string, UnitTypes> out{{"", resolved("")}};
  for (const auto& [path, unit] : units) out.emplace(path, resolved(path));
  return out;
}

void tell_units(const std::vector<std::pair<std::string, Unit*>>& units, const std::map<std::string, UnitTypes>& types) {
  const DType model = types.at("").values;
  const bool alike =
      std::ranges::all_of(types, [&](const auto& of) { return of.second.values == model && of.second.output == model; });
  for (const auto& [path, unit] : units) {
    const UnitTypes& own = types.at(path);
    unit->computes = alike ? std::nullopt : std::optional(own.values);
    unit->gives = alike ? std::nullopt : std::optional(own.output);
  }
}

}  // namespace chorus::detail
