#include <chorus/core/error.h>
#include <chorus/io/sentencepiece_check.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace chorus {
namespace {

/// One field of a protocol buffer message.
struct Field {
  std::uint64_t number = 0;
  std::uint64_t kind = 0;     ///< 0 varint, 1 eight bytes, 2 bytes, 5 four bytes
  std::uint64_t integer = 0;  ///< of a varint
  std::string_view bytes;     ///< of all others
};

/// Cuts a message into its fields.
class Message {
 public:
  Message(std::string_view bytes, const std::string& what) : rest_(bytes), what_(what) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    field = {key >> 3, key & 7, 0, {}};
    switch (field.kind) {
      case 0: field.integer = varint(); break;
      case 1: field.bytes = take(8); break;
      case 2: field.bytes = take(varint()); break;
      case 5: field.bytes = take(4); break;
      default: check(false, "a field of unknown kind");
    }
    check(field.number > 0, "a field without a number");
    return true;
  }
  template <class... Parts>
  void check(bool ok, const Parts&... parts) const {
    require(ok, "Tokenizer", what_, parts...);
  }

 private:
  std::string_view take(std::uint64_t bytes) {
    check(bytes <= rest_.size(), "a field of ", bytes, " bytes where ", rest_.size(), " are left");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t{byte & 127U} << shift;
      if (byte < 128) return value;
    }
    check(false, "a number without an end");
    return 0;
  }

  std::string_view rest_;
  const std::string& what_;  ///< begins its messages
};

/// Darts-clone's double array: a unit holds a label, whether a value follows, and the offset of its children.
struct Unit {
  std::uint32_t bits;
  std::uint32_t offset() const { return (bits >> 10) << ((bits & (1U << 9)) >> 6); }
  std::uint32_t label() const { return bits & ((1U << 31) | 0xFF); }
  std::uint32_t value() const { return bits & ((1U << 31) - 1); }
  bool has_leaf() const { return ((bits >> 8) & 1) == 1; }
};

/// The precompiled map of characters: the size of a double array in bytes, the array, and strings that end with a zero byte.
void check_map(std::string_view map, const Message& message) {
  if (map.empty()) return;
  std::uint32_t bytes = 0;
  message.check(map.size() > sizeof bytes, "its normalisation table has ", map.size(), " bytes");
  std::memcpy(&bytes, map.data(), sizeof bytes);
  message.check(bytes % sizeof(Unit) == 0 && bytes >= sizeof(Unit) && bytes < map.size() - sizeof bytes,
                "the trie of its normalisation table has ", bytes, " of ", map.size(), " bytes");
  std::vector<Unit> units(bytes / sizeof(Unit));
  std::memcpy(units.data(), map.data() + sizeof bytes, bytes);
  const std::string_view strings = map.substr(sizeof bytes + bytes);
  message.check(strings.back() == '\0', "the strings of its normalisation table don't end");

  // Every node that a search may reach, by the place of its children.
  std::vector<bool> seen(units.size());
  std::vector<std::uint32_t> open = {units[0].offset()};
  while (!open.empty()) {
    const std::uint32_t children = open.back();
    open.pop_back();
    message.check((std::uint64_t{children} | 0xFF) < units.size(), "its normalisation table leads outside, to ", children,
                  " of ", units.size());
    if (seen[children]) continue;
    seen[children] = true;
    for (std::uint32_t label = 0; label < 256; ++label) {
      const std::uint32_t at = children ^ label;
      const Unit unit = units[at];
      if (unit.label() != label) continue;
      const std::uint32_t below = at ^ unit.offset();
      message.check(below < units.size(), "its normalisation table leads outside, to ", below, " of ", units.size());
      if (unit.has_leaf())
        message.check(units[below].value() < strings.size(), "its normalisation table has no string ", units[below].value());
      open.push_back(below);
    }
  }
}

float to_float(std::string_view bytes) {
  float value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

// Numbers of fields: sentencepiece_model.proto of version 0.1.97.
void check_sentencepiece_model(std::string_view model, const std::string& name) {
  const std::string what = name + " is no SentencePiece model (" + std::to_string(model.size()) + " bytes): ";
  Message fields(model, what);
  std::size_t pieces = 0;
  for (Field field; fields.next(field);) {
    if (field.number == 1 && field.kind == 2) {  // a piece: text, score, type
      Message piece(field.bytes, what);
      std::string_view text;
      for (Field part; piece.next(part);) {
        if (part.number == 1 && part.kind == 2) text = part.bytes;
        if (part.number == 2 && part.kind == 5)
          piece.check(std::isfinite(to_float(part.bytes)), "the score of piece ", pieces, " is ", to_float(part.bytes));
      }
      piece.check(!text.empty(), "piece ", pieces, " has no text");
      piece.check(text.find('\0') == text.npos, "piece ", pieces, " holds a zero byte");
      ++pieces;
    } else if ((field.number == 3 || field.number == 5) && field.kind == 2) {  // how text is normalised, and back
      Message spec(field.bytes, what);
      for (Field part; spec.next(part);)
        if (part.number == 2 && part.kind == 2) check_map(part.bytes, spec);
    }
  }
  fields.check(pieces > 0, "it has no pieces");
}

}  // namespace chorus
