// Tar files as random-access containers of recordings: an index of their members, made by reading the headers only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

namespace chorus {

/// Where the content of one regular file lies.
struct TarMember {
  std::string name;
  std::uint64_t offset = 0, bytes = 0;
  friend bool operator==(const TarMember&, const TarMember&) = default;
};

struct TarIndex {
  std::vector<TarMember> members;  ///< in the order of the file; hard links are members of their own at their target's place
  std::string problem;             ///< why reading ended early, empty if it did not; members before it can be used
};

/// Reads all headers of a ustar, GNU or pax archive (POSIX.1-2017, pax; GNU tar manual, "Basic Tar Format"). Folders,
/// symbolic links and devices are passed over. Throws when the file can't be opened, is compressed or no tar at all.
/// A sparse member, a damaged header or a missing end ends the index with a problem.
TarIndex scan_tar(const std::filesystem::path& file);

/// The same, kept in `<file>.chorus.idx` so that later runs need not scan. An index that was made for another size or time of
/// change, or is damaged, is made anew. Indices with a problem are not kept; where nothing can be written, none is.
TarIndex tar_index(const std::filesystem::path& file);

/// The content of a member. Its header is checked again, so an index that no longer fits its file is an error.
std::vector<std::byte> read_tar_member(const std::filesystem::path& file, const TarMember& member);

}  // namespace chorus
