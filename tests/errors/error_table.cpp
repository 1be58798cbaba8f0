#include "errors/error_table.h"

#include <chorus/core/error.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

namespace chorus::errors {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The same on every machine and after every edit: without the scene's folder, the place in the source, and the words of the
/// parsers of TOML, JSON and the command line, which change with their versions.
std::string stable(std::string text, const fs::path& folder) {
  for (const std::string& prefix : {folder.string() + '/', folder.string()})
    for (auto at = text.find(prefix); at != text.npos; at = text.find(prefix)) text.erase(at, prefix.size());
  text = std::regex_replace(text, std::regex(R"( +\[[a-z0-9_]+\.(cpp|h|cu):[0-9]+\])"), "");
  return std::regex_replace(text, std::regex(R"((rror while parsing|not in range) [^;\n]*)"), "$1 ...");
}

/// A cell of a Markdown table with its lines as code.
std::string code_cell(const std::string& text) {
  if (text == "nothing") return text;  // is said about what is simply used
  std::istringstream lines(text);
  std::string cell;
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, line.find_first_not_of(" "));
    if (line.empty()) continue;
    const bool ticks = line.find('`') != line.npos;
    std::string escaped;
    for (const char c : line) (c == '|' ? escaped += '\\' : escaped) += c;
    cell += (cell.empty() ? "" : "<br>") + (ticks ? "`` " + escaped + " ``" : '`' + escaped + '`');
  }
  return cell;
}

}  // namespace

std::string Ended::line(std::string_view part) const {
  std::istringstream lines(err + '\n' + out);
  for (std::string line; std::getline(lines, line);)
    if (line.find(part) != line.npos) return line;
  ADD_FAILURE() << "no line with \"" << part << "\" in\n" << err << out;
  return {};
}

Scene::Scene() : before_(fs::current_path()) {
  std::string name = (fs::temp_directory_path() / "chorus-errors-XXXXXX").string();
  require(::mkdtemp(name.data()) != nullptr, "test", "no temporary folder");
  folder_ = fs::canonical(name);
  fs::current_path(folder_);
}

Scene::~Scene() {
  std::error_code ignored;
  fs::current_path(before_, ignored);
  fs::remove_all(folder_, ignored);
}

fs::path Scene::write(const fs::path& name, std::string_view content) const {
  if (name.has_parent_path()) fs::create_directories(folder_ / name.parent_path());
  std::ofstream out(folder_ / name, std::ios::binary);
  out << content;
  out.flush();
  require(out.good(), "test", "can't write ", name);
  return name;
}

Ended Scene::chorus(const std::vector<std::string>& arguments) const {
  std::vector<std::string> words = {CHORUS_EXECUTABLE};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // Beside the scene's folder, whose content is the case's own.
  const fs::path out = folder_.string() + ".out", err = folder_.string() + ".err";
  const pid_t child = ::fork();
  require(child >= 0, "test", "no process");
  if (child == 0) {
    const int to_out = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int to_err = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int from = ::open("/dev/null", O_RDONLY);
    ::dup2(from, STDIN_FILENO);
    ::dup2(to_out, STDOUT_FILENO);
    ::dup2(to_err, STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  require(::waitpid(child, &status, 0) == child, "test", "the process is gone");
  Ended ended{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content(out), content(err)};
  fs::remove(out);
  fs::remove(err);
  return ended;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "no error";
}

void expect_parts(std::string_view text, std::initializer_list<std::string_view> parts) {
  for (const auto part : parts) EXPECT_NE(text.find(part), text.npos) << '"' << part << "\" is not in \"" << text << '"';
}

void ErrorTable::section(const std::string& title, const std::string& about) {
  section_ = title;
  text_ += "\n## " + title + "\n\n" + (about.empty() ? "" : about + "\n\n") +
           "| what is wrong | what the user sees | what is kept |\n|---|---|---|\n";
}

void ErrorTable::add(const std::string& wrong, const std::function<Seen(Scene&)>& provoke) {
  SCOPED_TRACE(section_ + ": " + wrong);
  ++cases_;
  Scene scene;
  Seen seen;
  try {
    seen = provoke(scene);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "the case itself threw: " << error.what();
  }
  EXPECT_FALSE(seen.message.empty()) << "no message";
  EXPECT_FALSE(seen.kept.empty()) << "the case doesn't say what is kept";
  text_ += "| " + wrong + " | " + code_cell(stable(seen.message, scene.folder())) + " | " + seen.kept + " |\n";
}

}  // namespace chorus::errors
