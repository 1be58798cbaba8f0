// Writes a config struct as TOML, with the origin of each value, or as a reference of its keys.
#pragma once
#include <chorus/core/config/read.h>

#include <sstream>

namespace chorus::config {

std::string toml_text(bool value);
std::string toml_text(std::int64_t value);
std::string toml_text(double value);  ///< the shortest text that reads back as the same number
std::string toml_text(const std::string& value);

template <class T>
std::string toml_value(const T& value) {
  if constexpr (is_vector<T>) {
    std::string text = "[";
    for (std::size_t i = 0; i < value.size(); ++i) text += (i ? ", " : "") + toml_value<typename T::value_type>(value[i]);
    return text + ']';
  } else if constexpr (std::same_as<T, bool>)
    return toml_text(value);
  else if constexpr (std::integral<T>)
    return toml_text(static_cast<std::int64_t>(value));
  else if constexpr (std::same_as<T, float>)
    return toml_text(static_cast<double>(value));
  else if constexpr (std::same_as<T, std::filesystem::path>)
    return toml_text(value.string());
  else
    return toml_text(value);
}

template <class T>
inline constexpr bool is_table_like = Table<T>;
template <class T>
inline constexpr bool is_table_like<std::vector<T>> = Table<T>;
template <class T>
inline constexpr bool is_table_like<std::optional<T>> = Table<T>;

/// Prints one table: first its own values, then, in a second pass, the tables inside it, as TOML demands.
class Printer {
 public:
  Printer(std::ostream& out, const Tree* tree, std::string path, bool docs)
      : out_(out), tree_(tree), path_(std::move(path)), docs_(docs) {}

  template <class T>
  void print(T& table) {
    inner_ = false;
    table.fields(*this);
    inner_ = true;
    table.fields(*this);
  }

  template <class T, class... Checks>
  void operator()(const char* key, T& member, std::string_view doc = {}, const Checks&... checks) {
    const Tree* given = tree_ ? tree_->find(key) : nullptr;
    if constexpr (is_table_like<T>) {
      if (inner_)
        tables(key, member, doc, given);
      else if (empty(member))
        value(key, member, doc, given, checks...);
    } else {
      if (!inner_) value(key, member, doc, given, checks...);
    }
  }

 private:
  template <class T>
  static bool empty(const T& member) {
    if constexpr (is_vector<T>)
      return member.empty();
    else if constexpr (is_optional<T>)
      return !member.has_value();
    else
      return false;
  }

  template <class T, class... Checks>
  void value(const char* key, T& member, std::string_view doc, const Tree* given, const Checks&... checks) {
    constexpr bool required = (std::same_as<Checks, Required> || ...);
    if (docs_) {
      out_ << "# " << doc << (doc.empty() ? "" : "; ") << type_text<T>();
      (expectation(checks), ...);
      out_ << (required ? "; required" : "") << '\n';
      if (required) out_ << "# ";
    }
    if constexpr (is_optional<T>) {
      if (!member)
        out_ << "# " << key << " is not set";
      else if constexpr (!Table<typename T::value_type>)
        out_ << key << " = " << toml_value(*member);
    } else if constexpr (is_table_like<T>) {
      out_ << key << " = []";
    } else {
      out_ << key << " = " << toml_value(member);
    }
    if (!docs_) out_ << "  # " << origin(given);
    out_ << '\n';
  }

  template <class T>
  void tables(const char* key, T& member, std::string_view doc, const Tree* given) {
    const std::string path = path_.empty() ? key : path_ + '.' + key;
    if constexpr (is_vector<T>) {
      for (std::size_t i = 0; i < member.size(); ++i)
        table("[[" + path + "]]", path, member[i], doc, given && i < given->items.size() ? &given->items[i] : nullptr);
    } else if constexpr (is_optional<T>) {
      if (member) table('[' + path + ']', path, *member, doc, given);
    } else {
      table('[' + path + ']', path, member, doc, given);
    }
  }

  template <class T>
  void table(const std::string& header, const std::string& path, T& member, std::string_view doc, const Tree* given) {
    out_ << '\n' << header;
    if (docs_ && !doc.empty()) out_ << "  # " << doc;
    out_ << '\n';
    Printer(out_, given, path, docs_).print(member);
  }

  template <class Check>
  void expectation(const Check& check) {
    if constexpr (!std::same_as<Check, Required>) out_ << ", " << check.expected;
  }
  static std::string origin(const Tree* given) {
    if (!given) return "default";
    std::string text = to_string(given->place);
    for (const auto& item : given->items)
      if (given->place.argument < 0 && item.place.argument >= 0) return text + " and command line";
    return text;
  }

  std::ostream& out_;
  const Tree* tree_;
  std::string path_;
  bool docs_, inner_ = false;
};

}  // namespace chorus::config
