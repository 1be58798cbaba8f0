#include <chorus/apps/run_config.h>

namespace chorus {

template Loaded<RunConfig> load_config<RunConfig>(const std::filesystem::path&, std::span<const std::string>);
template Loaded<RunConfig> parse_config<RunConfig>(std::string_view, const std::string&, std::span<const std::string>);
template std::string resolved_toml<RunConfig>(const Loaded<RunConfig>&);
template std::string config_reference<RunConfig>();

}  // namespace chorus
