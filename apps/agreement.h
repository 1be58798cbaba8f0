// Ranks that compute other things than each other would not notice.
#pragma once
#include <chorus/io/loader.h>
#include <chorus/parallel/group/group.h>

#include <string>
#include <vector>

namespace chorus {

/// All ranks of `world` call it: an error that names the first rank whose `text` is another one than rank 0's, and `what` it
/// is.
void require_agreement(Group& world, const std::string& what, const std::string& text);

/// What all ranks of `group` have, in order of rank. All of them call it.
std::vector<std::int64_t> gathered(Group& group, std::span<const std::int64_t> own);

/// The ranks of `peers` have the same samples and must leave out the same: each leaves out what failed on any of them. Returns
/// what this rank should tell of it: failures that no rank before it has had, and how many ranks had them where others had not.
std::vector<std::string> agree_on_failures(LoadedBatch& batch, Group& peers);

}  // namespace chorus
