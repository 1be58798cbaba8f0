// XXH3-128 digests: they find damage (bit flips, truncation, mixed-up files), not malice.
#pragma once
#include <chorus/core/posix_file.h>

#include <cstddef>
#include <memory>
#include <string>

namespace chorus {

/// Digest of a stream of bytes, as 32 lower-case hexadecimal digits of the canonical (big-endian) form.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  void update(const void* data, std::size_t bytes);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string digest(const void* data, std::size_t bytes);

/// Of an open file's bytes, read front to back in blocks of 4 MiB.
std::string file_digest(const PosixFile& file);

}  // namespace chorus
