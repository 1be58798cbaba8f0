// Configurations: a file, and after zero bytes what the command line overrides. What is accepted prints as TOML that is
// accepted again and prints the same. Instrumented: core/config/tree.cpp core/config/read.cpp core/config/print.cpp
// core/text.cpp
#include <chorus/core/config.h>

#include <optional>
#include <sstream>

#include "fuzz/fuzz.h"

namespace {

struct Inner {
  double rate = 0.5;
  std::vector<double> numbers;
  std::optional<std::string> name;
  template <class V>
  void fields(V&& v) {
    v("rate", rate, "a number", chorus::between(0.0, 1.0));
    v("numbers", numbers, "some numbers");
    v("name", name, "a text that may be missing");
  }
};

struct Whole {
  bool on = false;
  int count = 3;
  std::string kind = "one";
  std::filesystem::path file;
  std::vector<std::string> words;
  Inner inner;
  std::vector<Inner> list;
  std::optional<Inner> maybe;
  template <class V>
  void fields(V&& v) {
    v("on", on, "a switch");
    v("count", count, "an integer", chorus::at_least(1));
    v("kind", kind, "a word", chorus::one_of("one", "two"));
    v("file", file, "a path");
    v("words", words, "some texts");
    v("inner", inner, "a table");
    v("list", list, "tables");
    v("maybe", maybe, "a table that may be missing");
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace chorus;
  std::istringstream parts{std::string(fuzz::text_of(data, size))};
  std::string text, part;
  std::getline(parts, text, '\0');
  std::vector<std::string> overrides;
  while (std::getline(parts, part, '\0')) overrides.push_back(part);
  std::optional<Loaded<Whole>> loaded;
  if (!fuzz::accepts([&] { loaded.emplace(parse_config<Whole>(text, "input", overrides)); })) return 0;
  const std::string printed = resolved_toml(*loaded);
  const auto again = parse_config<Whole>(printed, "printed");
  const auto values = [](const std::string& toml) {  // without the comments that say where each comes from
    std::istringstream lines(toml);
    std::string out;
    for (std::string line; std::getline(lines, line);) out += line.substr(0, line.rfind("  # ")) + '\n';
    return out;
  };
  fuzz::must(values(resolved_toml(again)) == values(printed));
  return 0;
}
