// Whether a configuration's model and sizes fit so many ranks, before any of them is started.
#pragma once
#include <chorus/apps/run_config.h>

namespace chorus {

/// Throws one `ConfigError` with the place of each key that keeps the run from being laid out on `ranks` ranks: sizes that
/// don't give that number, heads that don't divide.
void check_layout(const Loaded<RunConfig>& loaded, int ranks);

/// Why `ranks` ranks shouldn't be threads of one process on `cores` cores; empty: they may. Up to 64, or 16 a core: a layout
/// can be tried with many more ranks than cores, but each takes threads, memory for its part of the model and a share of the
/// cores.
std::string too_many_ranks(int ranks, int cores);

}  // namespace chorus
