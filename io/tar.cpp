#include <chorus/core/error.h>
#include <chorus/core/posix_file.h>
#include <chorus/io/tar.h>
#include <chorus/io/tar_header.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

namespace chorus {
namespace {

/// What the headers before a member's own say about it.
struct Extended {
  std::optional<std::string> name, link;
  std::optional<std::uint64_t> bytes;
  bool sparse = false;
};

class Scanner {
 public:
  explicit Scanner(const std::filesystem::path& file) : file_(PosixFile::open(file)), end_(file_.bytes()) {
    refuse_other_formats();
  }

  TarIndex scan() {
    while (step()) {
    }
    return std::move(index_);
  }

 private:
  void refuse_other_formats() {
    std::string start(static_cast<std::size_t>(std::min<std::uint64_t>(end_, tar::block)), '\0');
    file_.read(start.data(), start.size(), 0);
    const std::pair<std::string_view, const char*> packers[] = {{"\x1f\x8b", "gzip"},
                                                                {"BZh", "bzip2"},
                                                                {std::string_view("\xfd\x37zXZ\0", 6), "xz"},
                                                                {"\x28\xb5\x2f\xfd", "zstd"},
                                                                {"\x04\x22\x4d\x18", "lz4"}};
    for (const auto& [magic, packer] : packers)
      require(!start.starts_with(magic), "tar", file_.path(), " is compressed with ", packer,
              "; recordings are read at random, which needs a plain tar file: unpack it");
    require(end_ >= tar::block, "tar", file_.path(), " is no tar file: it has ", end_, " bytes");
    tar::Block header;
    std::memcpy(header.data(), start.data(), tar::block);
    require(tar::is_zero(header) || tar::checksum_fits(header), "tar", file_.path(),
            " is no tar file: its first 512 bytes are no header");
  }

  bool stop(const std::string& why) {
    index_.problem = file_.path().string() + ": " + why + " at byte " + std::to_string(at_);
    return false;
  }

  /// Reads one header and moves behind its content; false at the end or at a problem.
  bool step() {
    if (at_ == end_) return stop("the end mark is missing");
    if (end_ - at_ < tar::block) return stop("the file ends inside a header");
    tar::Block header;
    file_.read(header.data(), header.size(), at_);
    if (tar::is_zero(header)) return false;
    if (!tar::checksum_fits(header)) return stop("damaged header");
    auto bytes = tar::size(header);
    const char type = tar::type(header);
    const bool file = type == '0' || type == '\0' || type == '7';
    if (file && next_.bytes) bytes = next_.bytes;
    // Links, devices and folders (1 to 6) may state a size, or none, without having content.
    const bool content = type < '1' || type > '6';
    if (!content) bytes = 0;
    if (!bytes) return stop("a header with an unreadable size");
    const std::uint64_t start = at_ + tar::block, there = end_ - start;
    if (*bytes > there)
      return stop("the file ends inside " + next_.name.value_or(tar::name(header)) + " (" + std::to_string(there) + " of " +
                  std::to_string(*bytes) + " bytes),");
    if (type == 'S' || next_.sparse)
      return stop("sparse member " + next_.name.value_or(tar::name(header)) + ", which is not read,");
    if (type == 'M') return stop("a continuation of another volume");
    if (type == 'x' || type == 'g' || type == 'L' || type == 'K') {
      if (!extend(type, start, *bytes)) return false;
    } else {
      if (file)
        add({next_.name.value_or(tar::name(header)), start, *bytes});
      else if (type == '1')
        link(next_.name.value_or(tar::name(header)), next_.link.value_or(tar::link_name(header)));
      next_ = {};
    }
    const std::uint64_t used = (*bytes + tar::block - 1) / tar::block * tar::block;
    at_ = start + std::min(used, there);
    return true;
  }

  bool extend(char type, std::uint64_t start, std::uint64_t bytes) {
    constexpr std::uint64_t most = 1 << 20;
    if (bytes > most) return stop("an extended header of " + std::to_string(bytes) + " bytes");
    std::string text(static_cast<std::size_t>(bytes), '\0');
    file_.read(text.data(), text.size(), start);
    if (type == 'L' || type == 'K') {
      (type == 'L' ? next_.name : next_.link) = text.substr(0, text.find('\0'));
      return true;
    }
    bool good_size = true;
    const bool good = tar::pax_records(text, [&](std::string_view key, std::string_view value) {
      if (key.starts_with("GNU.sparse.")) next_.sparse = true;
      if (type == 'g') return;  // global records hold comments in practice; a global path or size would make no sense
      if (key == "path") next_.name = value;
      if (key == "linkpath") next_.link = value;
      if (key == "size") {
        std::uint64_t size = 0;
        good_size = !value.empty() && value.size() < 19;
        for (const char c : value) {
          good_size = good_size && c >= '0' && c <= '9';
          size = 10 * size + static_cast<std::uint64_t>(c - '0');
        }
        next_.bytes = size;
      }
    });
    return (good && good_size) || stop("a malformed pax header");
  }

  void add(TarMember member) {
    if (member.name.starts_with("./")) member.name.erase(0, 2);
    places_[member.name] = index_.members.size();
    index_.members.push_back(std::move(member));
  }
  void link(const std::string& name, std::string target) {
    if (target.starts_with("./")) target.erase(0, 2);
    if (const auto it = places_.find(target); it != places_.end()) {
      const TarMember& to = index_.members[it->second];
      add({name, to.offset, to.bytes});
    }
  }

  PosixFile file_;
  std::uint64_t end_, at_ = 0;
  TarIndex index_;
  Extended next_;
  std::map<std::string, std::size_t> places_;
};

}  // namespace

TarIndex scan_tar(const std::filesystem::path& file) { return Scanner(file).scan(); }

std::vector<std::byte> read_tar_member(const std::filesystem::path& file, const TarMember& member) {
  const PosixFile in = PosixFile::open(file);
  require(member.offset >= tar::block, "tar", file, " holds no member at byte ", member.offset);
  const std::uint64_t end = in.bytes();
  require(member.offset <= end && member.bytes <= end - member.offset, "tar", file, " has ", end, " bytes; its member ",
          member.name, " would end at byte ", member.offset + member.bytes);
  tar::Block header;
  in.read(header.data(), header.size(), member.offset - tar::block);
  // Names may be shortened here, and a size over 8 GiB may stand in a pax header.
  const auto bytes = tar::size(header);
  require(tar::checksum_fits(header) && bytes && (*bytes == member.bytes || member.bytes >> 33), "tar", file,
          " has no header before its member ", member.name, " at byte ", member.offset,
          ": the file is damaged or not the one that was indexed");
  std::vector<std::byte> content(static_cast<std::size_t>(member.bytes));
  in.read(content.data(), content.size(), member.offset);
  return content;
}

}  // namespace chorus
