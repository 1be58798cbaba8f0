// What can be odd about one transcript.
#pragma once
#include <chorus/io/check.h>

namespace chorus {

/// Findings without places.
std::vector<Finding> check_text(const std::string& text);

}  // namespace chorus
