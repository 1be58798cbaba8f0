// What a checkpoint's `manifest.json` says: where each part of each tensor lies, and the digests that prove it whole.
#pragma once
#include <chorus/tensor/dtype.h>
#include <chorus/tensor/shape.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

/// A box of a tensor, stored as one contiguous HDF5 dataset.
struct SavedChunk {
  Shape offset, shape;         ///< of the box within the tensor
  std::string file, dataset;   ///< the file lies in the checkpoint's folder
  std::uint64_t position = 0;  ///< of its first byte within the file
  std::string digest;          ///< XXH3-128 of its bytes
};

struct SavedTensor {
  std::string path;  ///< "model/llm/layers/0/attention/q/weight"
  Shape shape;
  DType dtype = DType::f32;
  std::vector<SavedChunk> chunks;  ///< disjoint, and together the whole tensor
};

struct SavedFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string digest;  ///< XXH3-128 of the whole file
};

struct Manifest {
  static constexpr int current_schema = 1;
  int schema = current_schema;
  std::uint64_t step = 0;
  int world = 1;         ///< ranks that trained
  std::string config;    ///< the resolved configuration
  nlohmann::json state;  ///< schedule, seed, data cursor, phase ...: whatever a run needs besides tensors
  std::vector<SavedFile> files;
  std::vector<SavedTensor> tensors;  ///< sorted by path

  const SavedTensor* find(std::string_view path) const;
};

/// Throws unless the chunks of each tensor lie inside it, are disjoint and cover it, and lie within files of the checkpoint.
void check_coverage(const Manifest& manifest);

/// The text of `manifest.json`: one JSON object whose first line holds the digest of every later byte. Text that JSON
/// can't carry unchanged (NaN, infinities, invalid UTF-8) in state or config is an error.
std::string to_text(const Manifest& manifest);

/// Accepts exactly what `to_text` of this or an older schema wrote. `name` is for messages. Throws `Error` on any
/// difference, and `NewerSchema` for an intact manifest that a later version wrote.
Manifest parse_manifest(std::string_view text, const std::string& name);

/// An intact checkpoint that only a later version can read. Resuming from an older one behind it would lose work, so
/// nothing skips it silently.
class NewerSchema : public Error {
 public:
  using Error::Error;
};

}  // namespace chorus
