#include <chorus/core/posix_file.h>
#include <chorus/io/checkpoint/folder.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <fstream>
#include <random>
#include <sstream>
#include <system_error>

namespace chorus {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view old_suffix = ".old", removed_suffix = ".del", temporary_mark = ".tmp-";

/// The step of "step-000120"; nothing for any other name.
std::optional<std::uint64_t> parse_step(std::string_view name) {
  constexpr std::string_view prefix = "step-";
  if (!name.starts_with(prefix) || name.size() < prefix.size() + 6) return {};
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size() || step_name(step) != name) return {};
  return step;
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  std::string text = name.data();
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '-' || c == '.'; }, '_');  // they separate parts of names
  return text;
}

/// When a process started, in clock ticks since boot: with its number, unique. Empty if there is no such process.
std::string start_time(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(')');  // the name before it may hold anything
  if (name_end == text.npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return field;
}

bool writer_is_dead(const fs::path& folder, bool idle) {
  const std::string name = folder.filename().string();
  std::vector<std::string> parts;  // host, process, start time, random
  std::istringstream writer(name.substr(name.find(temporary_mark) + temporary_mark.size()));
  for (std::string part; std::getline(writer, part, '-');) parts.push_back(part);
  if (parts.size() == 4 && parts[0] == host_name()) {
    return start_time(parts[1]) != parts[2] || (idle && parts[1] == std::to_string(::getpid()));
  }
  std::error_code ignored;
  auto latest = fs::last_write_time(folder, ignored);
  for (const auto& entry : fs::directory_iterator(folder, ignored)) latest = std::max(latest, entry.last_write_time(ignored));
  return fs::file_time_type::clock::now() - latest > std::chrono::hours(1);
}

void remove_folder(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  require(!error, "checkpoint", "cannot remove ", folder.string(), ": ", error.message(), " (errno ", error.value(), ")");
}

std::vector<fs::path> folders_in(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::directory_iterator entries(directory, error);
  if (error == std::errc::no_such_file_or_directory) return found;
  require(!error, "checkpoint", "cannot list ", directory.string(), ": ", error.message(), " (errno ", error.value(), ")");
  for (const auto& entry : entries) {
    if (entry.is_directory()) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::string step_name(std::uint64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 6) digits.insert(0, 6 - digits.size(), '0');
  return "step-" + digits;
}

std::vector<StepFolder> step_folders(const fs::path& directory) {
  std::vector<StepFolder> found;
  for (const fs::path& path : folders_in(directory)) {
    const bool old = path.extension() == old_suffix;
    if (old && fs::exists(directory / path.stem())) continue;
    const std::string name = (old ? path.stem() : path.filename()).string();
    if (const auto step = parse_step(name)) found.push_back({*step, path});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return found;
}

fs::path temporary_folder(const fs::path& directory, std::uint64_t step) {
  const std::string process = std::to_string(::getpid());
  return directory / (step_name(step) + std::string(temporary_mark) + host_name() + '-' + process + '-' + start_time(process) +
                      '-' + std::to_string(std::random_device{}()));
}

void clean_up(const fs::path& directory, bool idle) {
  for (const fs::path& path : folders_in(directory)) {
    const std::string name = path.filename().string();
    if (!parse_step(name.substr(0, name.find('.')))) continue;
    if (path.extension() == removed_suffix) {
      remove_folder(path);
    } else if (path.extension() == old_suffix) {
      const fs::path successor = directory / path.stem();
      fs::exists(successor) ? remove_folder(path) : rename_path(path, successor);
    } else if (name.find(temporary_mark) != name.npos && writer_is_dead(path, idle)) {
      remove_folder(path);
    }
  }
}

fs::path commit_folder(const fs::path& temporary, const fs::path& directory, std::uint64_t step) {
  const fs::path target = directory / step_name(step), old = target.string() + std::string(old_suffix);
  sync_folder(temporary);
  // A folder can't be replaced in one rename; between the two, readers find the old one under its other name.
  const bool replaces = fs::exists(target);
  if (replaces) rename_path(target, old);
  try {
    rename_path(temporary, target);
  } catch (...) {
    std::error_code ignored;  // where this fails too, readers take `.old`
    if (replaces) fs::rename(old, target, ignored);
    throw;
  }
  sync_folder(directory);
  return target;
}

void retain(const fs::path& directory, int keep, const fs::path& latest, const std::function<bool(const fs::path&)>& valid) {
  int kept = 0;
  for (const StepFolder& folder : step_folders(directory)) {
    if (!valid(folder.path) || ++kept <= keep || folder.path == latest) continue;
    const fs::path doomed = folder.path.string() + std::string(removed_suffix);
    rename_path(folder.path, doomed);
    remove_folder(doomed);
  }
}

}  // namespace chorus
