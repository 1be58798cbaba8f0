#include <chorus/apps/run_config.h>

#include <regex>

namespace chorus {

bool is_regular_expression(const std::string& pattern) {
  try {
    std::regex(pattern, std::regex::ECMAScript);
    return true;
  } catch (const std::regex_error&) {
    return false;
  }
}

template Loaded<RunConfig> load_config<RunConfig>(const std::filesystem::path&, std::span<const std::string>);
template Loaded<RunConfig> parse_config<RunConfig>(std::string_view, const std::string&, std::span<const std::string>);
template std::string resolved_toml<RunConfig>(const Loaded<RunConfig>&);
template std::string config_reference<RunConfig>();

}  // namespace chorus
