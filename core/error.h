// Errors carry the operation, the values and the place that found them. No macros: the place is a default argument.
#pragma once
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace chorus {

/// What every failed check throws. The text names the operation, the values given, what was expected and the source line.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Names an operation and remembers who asked: `require(ok, "matmul", "inner sizes differ: ", a, " and ", b)`.
struct At {
  At(const char* op, std::source_location where = std::source_location::current()) : op(op), where(where) {}
  std::string_view op;
  std::source_location where;
};

namespace detail {
inline constexpr const char* before_place = "  [";
}

/// What an error says: all parts, each written with operator<<.
template <class... Parts>
std::string error_text(At at, const Parts&... parts) {
  std::ostringstream text;
  text << at.op << ": ";
  (text << ... << parts);
  std::string_view file = at.where.file_name();
  file.remove_prefix(file.find_last_of('/') == file.npos ? 0 : file.find_last_of('/') + 1);
  text << detail::before_place << file << ':' << at.where.line() << ']';
  return text.str();
}

/// What an error says to people who have no source: its text without the place at the end.
inline std::string without_place(const Error& error) {
  const std::string text = error.what();
  return text.substr(0, text.rfind(detail::before_place));
}

/// Throws an `Error` made of all parts.
template <class... Parts>
[[noreturn]] void fail(At at, const Parts&... parts) {
  throw Error(error_text(at, parts...));
}

/// Throws like `fail` unless `ok`. The parts are only formatted on failure.
template <class... Parts>
void require(bool ok, At at, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(at, parts...);
}

}  // namespace chorus
