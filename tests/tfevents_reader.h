// Reads event files back, written against the formats' descriptions and not the writer's code: check sums are computed bit by
// bit, fields are walked generically. Like TensorBoard it stops at a record that is cut off or doesn't match its check sum.
#pragma once
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace chorus::testing {

struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version;
  bool session_start = false;
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : bytes_(bytes) {}
  bool next() {
    if (bytes_.empty()) return false;
    const auto key = varint();
    field = static_cast<int>(key >> 3);
    switch (key & 7) {
      case 0: number = varint(); break;
      case 1: fixed(8); break;
      case 2: fixed(varint()); break;
      case 5: fixed(4); break;
      default: throw std::runtime_error("wire type");
    }
    return true;
  }
  template <class T>
  T as() const {
    if (data.size() != sizeof(T)) throw std::runtime_error("size of a fixed field");
    T value;
    std::memcpy(&value, data.data(), sizeof(T));
    return value;
  }
  int field = 0;
  std::uint64_t number = 0;
  std::string_view data;

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (bytes_.empty() || shift > 63) throw std::runtime_error("varint");
      const auto byte = static_cast<unsigned char>(bytes_[0]);
      bytes_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  }
  void fixed(std::uint64_t size) {
    if (size > bytes_.size()) throw std::runtime_error("length");
    data = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
  }
  std::string_view bytes_;
};

inline std::uint32_t slow_masked_crc(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

inline void read_value(std::string_view bytes, ReadEvent& event) {
  std::string tag, plugin, text;
  float value = 0;
  bool scalar = false;
  for (ProtoReader r(bytes); r.next();) {
    if (r.field == 1) tag = r.data;
    if (r.field == 2) {
      value = r.as<float>();
      scalar = true;
    }
    if (r.field == 8)
      for (ProtoReader tensor(r.data); tensor.next();)
        if (tensor.field == 8) text = tensor.data;
    if (r.field == 9)
      for (ProtoReader metadata(r.data); metadata.next();)
        if (metadata.field == 1)
          for (ProtoReader data(metadata.data); data.next();)
            if (data.field == 1) plugin = data.data;
  }
  if (scalar)
    event.scalars[tag] = value;
  else if (plugin == "text")
    event.texts[tag] = text;
  else
    throw std::runtime_error("a value that is neither scalar nor text");
}

inline ReadEvent parse_event(std::string_view bytes) {
  ReadEvent event;
  for (ProtoReader r(bytes); r.next();) {
    if (r.field == 1) event.wall_time = r.as<double>();
    if (r.field == 2) event.step = static_cast<std::int64_t>(r.number);
    if (r.field == 3) event.file_version = r.data;
    if (r.field == 5)
      for (ProtoReader summary(r.data); summary.next();) read_value(summary.data, event);
    if (r.field == 7)
      for (ProtoReader session(r.data); session.next();) event.session_start = session.field == 1 && session.number == 1;
  }
  return event;
}

inline std::vector<ReadEvent> read_events(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  std::vector<ReadEvent> events;
  for (std::string_view rest = all; rest.size() >= 12;) {
    std::uint64_t size;
    std::uint32_t check, data_check;
    std::memcpy(&size, rest.data(), 8);
    std::memcpy(&check, rest.data() + 8, 4);
    if (check != slow_masked_crc(rest.substr(0, 8)) || rest.size() - 12 < size + 4) break;
    const std::string_view data = rest.substr(12, size);
    std::memcpy(&data_check, rest.data() + 12 + size, 4);
    if (data_check != slow_masked_crc(data)) break;
    events.push_back(parse_event(data));
    rest.remove_prefix(16 + size);
  }
  return events;
}

/// Event files of a folder in the order in which readers take them.
inline std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::map<std::string, std::filesystem::path> sorted;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) sorted[entry.path().filename()] = entry.path();
  std::vector<std::filesystem::path> out;
  for (const auto& [name, path] : sorted) out.push_back(path);
  return out;
}

}  // namespace chorus::testing
