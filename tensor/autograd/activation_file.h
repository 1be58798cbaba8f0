// Tensors that backward wants later wait in a file instead of in memory.
#pragma once
#include <chorus/core/posix_file.h>
#include <chorus/tensor/tensor.h>

#include <future>
#include <map>

namespace chorus {

class OffloadedTensors;

/// A file of one rank, in a folder that must exist. It has no name, so it goes however the program ends. Room of what was
/// brought back is used again: the file is as large as the most that waited at once. One thread uses it, beside a thread of its
/// own that reads ahead.
class ActivationFile {
 public:
  explicit ActivationFile(const std::filesystem::path& folder) : file_(PosixFile::temporary(folder, "activations")) {}
  std::uint64_t bytes() const { return end_; }     ///< of the file
  std::uint64_t waiting() const { return used_; }  ///< bytes in it that somebody will ask for

 private:
  friend class OffloadedTensors;
  std::uint64_t take(std::uint64_t bytes);
  void give_back(std::uint64_t position, std::uint64_t bytes);

  PosixFile file_;
  std::map<std::uint64_t, std::uint64_t> free_;  ///< position and bytes of what lies between; no two touch
  std::uint64_t end_ = 0, used_ = 0;
  std::vector<OffloadedTensors*> written_;  ///< in this order; they are wanted in the opposite one
};

/// Some tensors on disk.
class OffloadedTensors {
 public:
  /// Writes `tensors` and empties the handles; a full disk is an error with the bytes that are free.
  OffloadedTensors(std::shared_ptr<ActivationFile> file, Context& context, const std::vector<Tensor*>& tensors);
  ~OffloadedTensors();
  OffloadedTensors(const OffloadedTensors&) = delete;
  OffloadedTensors& operator=(const OffloadedTensors&) = delete;
  /// Puts the tensors back into as many handles, and begins to read those that were written before these. Once.
  void bring_back(const std::vector<Tensor*>& tensors);

 private:
  struct Place {
    std::uint64_t position;
    Tensor like;  ///< shape, type and layout, without memory; then the tensor
  };
  void start_reading();
  void leave();

  std::shared_ptr<ActivationFile> file_;
  Context& context_;
  std::vector<Place> places_;
  std::future<void> reading_;
};

}  // namespace chorus
