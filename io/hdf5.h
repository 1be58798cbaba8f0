// Tensors in HDF5 files, readable by any HDF5 program. Types: IEEE floats and two's-complement integers, little-endian;
// bf16 is uint16 with an attribute `dtype` = "bf16". HDF5's own printing of errors is off during our calls only; its
// error stack becomes the text of an `Error` that names file and dataset. Calls of all threads take turns.
#pragma once
#include <chorus/tensor/tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace chorus {

struct Hdf5Dataset {
  std::string path;  ///< "model/llm/embedding/weight": groups and name, without a leading slash
  Shape shape;
  DType dtype = DType::f32;
};

/// A box of a virtual dataset, and the whole dataset of another file that fills it.
struct Hdf5Source {
  std::string file;  ///< relative to the folder of the virtual dataset's file, so that the folder may move
  std::string dataset;
  Shape offset, shape;
};

/// Where the bytes of a dataset lie in its file, and their XXH3-128.
struct Hdf5Extent {
  std::string path;
  std::uint64_t position = 0, bytes = 0;
  std::string digest;
};

/// What `Hdf5Writer::finish` has put on the disk.
struct Hdf5FileRecord {
  std::uint64_t bytes = 0;
  std::string digest;               ///< of the whole file
  std::vector<Hdf5Extent> extents;  ///< one per added tensor, in order of addition
};

/// Writes one new file. HDF5 lays the file out in memory (the structure only: a few hundred bytes per dataset), and plain
/// writes bring structure and tensors to the disk. So a full disk is an ordinary error: HDF5 1.10 itself is left with
/// dangling state, and crashes later, when closing a file fails.
class Hdf5Writer {
 public:
  explicit Hdf5Writer(std::filesystem::path path);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  /// The values are read by `finish`. Missing groups are made. A path can't be added twice.
  void add(const std::string& path, const Tensor& tensor);
  /// Of this shape and type; `finish` calls `fetch` when it writes the values, one tensor after another, in an order of its
  /// own.
  void add(const Hdf5Dataset& dataset, std::function<Tensor()> fetch);
  /// Presents boxes of other files as one tensor.
  void add_virtual(const Hdf5Dataset& dataset, std::span<const Hdf5Source> sources);
  /// Creates the file, writes it and flushes it to the disk. Equal tensors give equal bytes. Once only.
  Hdf5FileRecord finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What the bytes of a file must be before HDF5 may open it.
struct Hdf5Seal {
  std::string name;  ///< within the folder of the file that is opened
  std::uint64_t bytes = 0;
  std::string digest;  ///< XXH3-128 of the whole file
};

/// An existing file, for reading by HDF5. HDF5 1.10 crashes on some damaged files (docs/fuzzing.md), so none is opened whose
/// digest isn't known and hasn't been compared, neither this one nor those that its virtual datasets lead to.
class Hdf5File {
 public:
  /// `seals`: of this file, and of the files beside it that hold parts of its virtual datasets. Reads each once, in blocks,
  /// before it calls HDF5; a difference is an error naming the file. Checkpoints keep the seals in their manifest.
  Hdf5File(std::filesystem::path path, std::span<const Hdf5Seal> seals);
  ~Hdf5File();
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;

  std::vector<Hdf5Dataset> datasets() const;  ///< all, sorted by path
  Hdf5Dataset dataset(const std::string& path) const;
  Tensor read(Context& context, const std::string& path, Category category = Category::activations) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chorus
