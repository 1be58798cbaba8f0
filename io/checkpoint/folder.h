// The folders of a run's checkpoints, and the renames that make a new one appear whole or not at all.
//   step-000120                 committed
//   step-000120.tmp-<writer>    being written; left behind by a writer that died
//   step-000120.old             set aside while a new save of the same step takes its name
//   step-000120.del             being removed
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace chorus {

struct StepFolder {
  std::uint64_t step = 0;
  std::filesystem::path path;
};

/// "step-000120".
std::string step_name(std::uint64_t step);

/// Committed folders, newest step first. A `.old` one counts where its successor is missing. No folder: none.
std::vector<StepFolder> step_folders(const std::filesystem::path& directory);

/// Names a new temporary folder after this writer (host, process, its start time), so that others can tell when it died.
std::filesystem::path temporary_folder(const std::filesystem::path& directory, std::uint64_t step);

/// Removes what died writers left behind: their temporary folders (a writer on another host counts as dead when its folder
/// hasn't changed for an hour), half-removed folders, and `.old` ones whose successor exists; others get their name back.
/// `idle`: this process is writing nothing here, so temporary folders of its own are leavings too, of a save that failed and
/// could not remove them.
void clean_up(const std::filesystem::path& directory, bool idle = false);

/// Gives a completely written and flushed temporary folder its final name, durably; replaces a committed one of that
/// step, which keeps its name `.old` until the next `clean_up`. On failure the one before has its name or `.old`.
std::filesystem::path commit_folder(const std::filesystem::path& temporary, const std::filesystem::path& directory,
                                    std::uint64_t step);

/// Keeps the `keep` (at least 2) newest of the folders that `valid` accepts, and `latest` whatever its step; folders that it
/// doesn't accept are neither counted nor removed.
void retain(const std::filesystem::path& directory, int keep, const std::filesystem::path& latest,
            const std::function<bool(const std::filesystem::path&)>& valid);

}  // namespace chorus
