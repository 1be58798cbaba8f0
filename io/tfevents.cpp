#include <chorus/io/tfevents.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace chorus {
namespace {

constexpr std::string_view prefix = "events.out.tfevents.";

// Protocol buffers (https://protobuf.dev/programming-guides/encoding): a key is field * 8 + wire type, numbers are
// little-endian.
template <class T>
void append_fixed(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}
void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void put_number(std::string& out, int field, std::int64_t value) {
  append_varint(out, static_cast<std::uint64_t>(field) * 8);
  append_varint(out, static_cast<std::uint64_t>(value));
}
void put_double(std::string& out, int field, double value) {
  append_varint(out, static_cast<std::uint64_t>(field) * 8 + 1);
  append_fixed(out, value);
}
void put_float(std::string& out, int field, float value) {
  append_varint(out, static_cast<std::uint64_t>(field) * 8 + 5);
  append_fixed(out, value);
}
void put_bytes(std::string& out, int field, std::string_view value) {
  append_varint(out, static_cast<std::uint64_t>(field) * 8 + 2);
  append_varint(out, value.size());
  out += value;
}

/// A double beyond the range of floats becomes infinite; converting it would be undefined.
float to_float(double value) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  if (std::abs(value) > std::numeric_limits<float>::max()) return value > 0 ? infinity : -infinity;
  return static_cast<float>(value);
}

/// Event { wall_time = 1; step = 2; ... }
std::string event(double wall_time, std::int64_t step) {
  std::string out;
  put_double(out, 1, wall_time);
  if (step != 0) put_number(out, 2, step);
  return out;
}

constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
    table[i] = crc;
  }
  return table;
}();

/// TFRecord stores check sums rotated and shifted, so that data which holds check sums itself doesn't weaken them.
std::uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u; }

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

/// Later than the wall clock if need be: two invocations within a second, or a clock that was put back, must not change the
/// order.
std::int64_t seconds_for_name(const std::filesystem::path& folder, double wall_time) {
  auto seconds = static_cast<std::int64_t>(wall_time);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(prefix)) continue;
    std::int64_t other = 0;
    for (std::size_t i = prefix.size(); i < name.size() && name[i] >= '0' && name[i] <= '9' && i < prefix.size() + 15; ++i)
      other = other * 10 + (name[i] - '0');
    seconds = std::max(seconds, other + 1);
  }
  return seconds;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) crc = (crc >> 8) ^ crc_table[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t next_step, double wall_time) {
  std::string seconds = std::to_string(seconds_for_name(folder, wall_time));
  seconds.insert(0, seconds.size() < 10 ? 10 - seconds.size() : 0, '0');
  file_.emplace(
      PosixFile::create(folder / (std::string(prefix) + seconds + '.' + host_name() + '.' + std::to_string(getpid()) + ".0")));
  std::string version = event(wall_time, 0), session, start = event(wall_time, next_step);
  put_bytes(version, 3, "brain.Event:2");  // file_version
  put_number(session, 1, 1);               // SessionLog.status = START
  put_bytes(start, 7, session);            // session_log
  try {
    write_record(version);
    write_record(start);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(path(), ignored);  // a full disk must not fill up with beginnings
    throw;
  }
}

void EventFile::scalars(std::int64_t step, double wall_time, std::span<const Scalar> values) {
  std::string summary, value, out = event(wall_time, step);
  for (const auto& scalar : values) {
    value.clear();
    put_bytes(value, 1, scalar.tag);
    put_float(value, 2, to_float(scalar.value));  // simple_value
    put_bytes(summary, 1, value);
  }
  put_bytes(out, 5, summary);
  write_record(out);
}

void EventFile::text(std::int64_t step, double wall_time, std::string_view tag, std::string_view markdown) {
  std::string plugin, metadata, dim, shape, tensor, value, summary, out = event(wall_time, step);
  put_bytes(plugin, 1, "text");    // SummaryMetadata.plugin_data.plugin_name
  put_bytes(metadata, 1, plugin);  // SummaryMetadata.plugin_data
  put_number(dim, 1, 1);           // one string
  put_bytes(shape, 2, dim);
  put_number(tensor, 1, 7);  // DT_STRING
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, markdown);
  put_bytes(value, 1, tag);
  put_bytes(value, 9, metadata);
  put_bytes(value, 8, tensor);
  put_bytes(summary, 1, value);
  put_bytes(out, 5, summary);
  write_record(out);
}

void EventFile::write_record(std::string_view data) {
  std::string length, record;
  append_fixed(length, static_cast<std::uint64_t>(data.size()));
  record.reserve(data.size() + 16);
  record = length;
  append_fixed(record, masked_crc(length));
  record += data;
  append_fixed(record, masked_crc(data));
  file_->write(record.data(), record.size());
}

}  // namespace chorus
