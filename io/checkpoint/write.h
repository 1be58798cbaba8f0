// The two halves of a save, for writers on several ranks: each writes its file, one commits them all.
#pragma once
#include <chorus/io/checkpoint/manifest.h>
#include <chorus/tensor/tensor.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <span>

namespace chorus {

/// A tensor to save, or one rank's part of it.
struct CheckpointEntry {
  struct Part {
    Shape offset;  ///< of `tensor` within the whole
    Shape whole;
  };
  std::string path;  ///< "model/llm/layers/0/attention/q/weight", see `checkpoint_path`
  Tensor tensor;
  std::optional<Part> part = std::nullopt;  ///< absent: `tensor` is the whole
  /// In place of `tensor`: its shape and type, and a function that gives it when it is written, in an order of the file's own.
  struct Later {
    Shape shape;
    DType dtype;
    std::function<Tensor()> fetch;
  };
  std::optional<Later> later = std::nullopt;
};

/// What one rank has written.
struct RankFile {
  SavedFile file;
  std::vector<SavedTensor> tensors;  ///< with this rank's chunks
};

/// Writes and flushes `rank-0000.h5` in `folder`.
RankFile write_rank_file(const std::filesystem::path& folder, int rank, std::span<const CheckpointEntry> entries);

/// Adds `checkpoint.h5` and the manifest to a temporary folder that holds all rank files, and gives it its final name.
/// `about`: step, world, config and state; files and tensors are filled in. Returns the committed folder.
std::filesystem::path commit_checkpoint(const std::filesystem::path& temporary, const std::filesystem::path& directory,
                                        Manifest about, std::span<const RankFile> ranks);

}  // namespace chorus
