#include <chorus/core/posix_file.h>
#include <chorus/io/digest.h>
#include <chorus/io/tar.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>

namespace chorus {
namespace {

using nlohmann::json;

/// What an index was made for: a changed file has another size or time.
std::string state_of(const std::filesystem::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0) fail_errno("tar", "look at", file);
  return std::to_string(found.st_size) + " bytes, changed " + std::to_string(found.st_mtim.tv_sec) + '.' +
         std::to_string(found.st_mtim.tv_nsec);
}

/// One line of digest, then JSON.
std::optional<TarIndex> read_index(const std::filesystem::path& file, const std::string& state) {
  if (!std::filesystem::exists(file)) return {};
  try {
    const std::string text = read_file(file);
    const std::size_t line = text.find('\n');
    if (line == text.npos || text.substr(0, line) != digest(text.data() + line + 1, text.size() - line - 1)) return {};
    const json content = json::parse(text.substr(line + 1));
    if (content.at("format") != 1 || content.at("of") != state) return {};
    TarIndex index;
    for (const json& m : content.at("members")) index.members.push_back({m.at(0), m.at(1), m.at(2)});
    return index;
  } catch (const Error&) {  // unreadable: it is made anew
    return {};
  } catch (const json::exception&) {
    return {};
  }
}

/// Readers find the old index, the new one or none. A folder that can't be written costs the time of scanning, nothing else.
void keep_index(const std::filesystem::path& file, const std::string& state, const TarIndex& index) {
  json members = json::array();
  for (const TarMember& m : index.members) members.push_back({m.name, m.offset, m.bytes});
  const std::filesystem::path temporary = file.string() + '.' + std::to_string(::getpid());
  try {
    const std::string text = json{{"format", 1}, {"of", state}, {"members", std::move(members)}}.dump();
    write_file(temporary, digest(text.data(), text.size()) + '\n' + text);
    rename_path(temporary, file);
  } catch (const std::exception&) {  // also names that are no UTF-8, which JSON can't hold
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
  }
}

}  // namespace

TarIndex tar_index(const std::filesystem::path& file) {
  const std::filesystem::path beside = file.string() + ".chorus.idx";
  const std::string state = state_of(file);
  if (auto kept = read_index(beside, state)) return std::move(*kept);
  TarIndex index = scan_tar(file);
  if (index.problem.empty()) keep_index(beside, state, index);
  return index;
}

}  // namespace chorus
