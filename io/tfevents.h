// Event files, which TensorBoard reads: TFRecord frames around protocol buffers. Four kinds of fields are all that is needed,
// so they are encoded by hand.
#pragma once
#include <chorus/core/posix_file.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace chorus {

/// CRC-32C (Castagnoli) as in RFC 3720, B.4.
std::uint32_t crc32c(std::string_view bytes);

/// One value of a curve. TensorBoard keeps it in single precision.
struct Scalar {
  std::string_view tag;
  double value = 0;
};

/// Writes one event file, "events.out.tfevents.<seconds>.<host>.<process>.0", whose name sorts behind those that are in the
/// folder already: readers take them in this order. A file is never opened again, so that a torn end, at which readers stop,
/// hides nothing. Each event reaches the system in one write; failures throw, and the file should then be given up. Not
/// thread-safe.
class EventFile {
 public:
  /// `next_step` is the first step that this file is going to hold: readers forget what earlier files say from there on.
  /// `wall_time` is in seconds since 1970, here and below.
  EventFile(const std::filesystem::path& folder, std::int64_t next_step, double wall_time);

  const std::filesystem::path& path() const { return file_->path(); }
  /// Values that are no numbers are written too: TensorBoard marks them.
  void scalars(std::int64_t step, double wall_time, std::span<const Scalar> values);
  /// Markdown, on TensorBoard's text page.
  void text(std::int64_t step, double wall_time, std::string_view tag, std::string_view markdown);

 private:
  void write_record(std::string_view event);
  std::optional<PosixFile> file_;
};

}  // namespace chorus
