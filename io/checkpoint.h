// Checkpoints: `<directory>/step-000120/` holds one HDF5 file per writing rank, `checkpoint.h5` with every tensor whole
// under its path (virtual datasets: any HDF5 reader sees them, also after the folder has moved), and `manifest.json`.
// A checkpoint appears whole or not at all, every byte is covered by a digest, and the newest intact one wins.
#pragma once
#include <chorus/io/checkpoint/manifest.h>
#include <chorus/io/checkpoint/write.h>
#include <chorus/io/hdf5.h>
#include <chorus/tensor/tensor.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace chorus {

/// The path of a parameter's tensor: checkpoint_path("optimizer/exp_avg", "llm.layers.0.attention.q.weight").
std::string checkpoint_path(std::string_view group, std::string_view parameter);

struct SaveOptions {
  int keep = 0;  ///< newest checkpoints to keep, at least 2; 0 keeps all
};

struct SavedCheckpoint {
  std::filesystem::path folder;
  std::vector<std::string> warnings;  ///< what could not be tidied up; the checkpoint itself is safe
};

/// Saves from one rank, durably, and blocks until it is done. On failure nothing changes: it throws an `Error` naming the
/// file and the system's reason, earlier checkpoints stay, and training may go on. Saving a step again replaces it.
/// A process that dies at any moment leaves the earlier checkpoints or also the new one; its leavings go with the next save.
SavedCheckpoint save_checkpoint(const std::filesystem::path& directory, std::uint64_t step,
                                std::span<const CheckpointEntry> entries, const nlohmann::json& state,
                                const std::string& config, const SaveOptions& options = {});

struct ReadOptions {
  bool convert = false;                        ///< allow f32, f64 and bf16 to be converted into each other
  std::optional<Shape> offset = std::nullopt;  ///< read the box at this offset instead of the whole tensor
};

/// A checkpoint opened for reading. Opening checks the manifest's digest, that the chunks cover each tensor, and that all
/// files are there with their sizes; `verify` checks every byte; `read` checks the chunks it uses before using them. None of
/// these calls HDF5: chunks are read from where the manifest says they lie.
class Checkpoint {
 public:
  explicit Checkpoint(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  bool contains(std::string_view path) const { return manifest_.find(path) != nullptr; }

  /// Fills `into`, unchanged on failure. Another shape or dtype, a missing tensor or a damaged chunk is an error naming
  /// file, tensor, what is there and what was wanted. Stages one chunk at a time on the host.
  void read(std::string_view path, const Tensor& into, const ReadOptions& options = {}) const;
  /// The whole tensor as it was saved.
  Tensor read(Context& context, std::string_view path, Category category = Category::parameters) const;

  /// What `Hdf5File` needs to open `checkpoint.h5`, which shows every tensor whole.
  std::vector<Hdf5Seal> seals() const;

  /// Reads all files once and compares all digests. Each problem names its file and the tensors it touches; none: intact.
  std::vector<std::string> verify() const;

 private:
  std::filesystem::path folder_;
  Manifest manifest_;
};

/// The newest checkpoint that passes `verify`, or nothing. Each newer one that fails is passed to `report` with the reason;
/// none is removed. An intact one of a newer schema throws `NewerSchema`.
std::optional<Checkpoint> find_checkpoint(const std::filesystem::path& directory,
                                          const std::function<void(const std::string&)>& report);

}  // namespace chorus
