// Ranks that compute other things than each other would not notice.
#pragma once
#include <chorus/parallel/group/group.h>

#include <string>

namespace chorus {

/// All ranks of `world` call it: an error that names the first rank whose `text` is another one than rank 0's, and `what` it
/// is.
void require_agreement(Group& world, const std::string& what, const std::string& text);

}  // namespace chorus
