// Messages for whoever runs the program. The library never prints: the application gives a sink, without one messages are
// dropped.
#pragma once
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace chorus {

enum class Level { debug, info, warning, error };
constexpr std::string_view name(Level level) {
  constexpr std::string_view names[] = {"debug", "info", "warning", "error"};
  return names[static_cast<int>(level)];
}

/// A small value: copies share nothing but what the sink itself refers to. Parts are only formatted when somebody listens.
class Log {
 public:
  /// Takes one message without a line end. Called from whichever thread logs.
  using Sink = std::function<void(Level, std::string_view)>;

  Log() = default;
  explicit Log(Sink sink, Level least = Level::info) : sink_(std::move(sink)), least_(least) {}

  bool listens(Level level) const { return sink_ && level >= least_; }
  template <class... Parts>
  void write(Level level, const Parts&... parts) const {
    if (!listens(level)) return;
    std::ostringstream text;
    (text << ... << parts);
    sink_(level, text.view());
  }
  template <class... Parts>
  void debug(const Parts&... parts) const {
    write(Level::debug, parts...);
  }
  template <class... Parts>
  void info(const Parts&... parts) const {
    write(Level::info, parts...);
  }
  template <class... Parts>
  void warning(const Parts&... parts) const {
    write(Level::warning, parts...);
  }
  template <class... Parts>
  void error(const Parts&... parts) const {
    write(Level::error, parts...);
  }

 private:
  Sink sink_;
  Level least_ = Level::info;
};

}  // namespace chorus
