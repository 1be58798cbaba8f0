// The table in docs/errors.md: every kind of bad input, provoked for real, with what the user sees and what is kept.
//
// A case is a function of a `Scene`: it makes the bad input in the scene's folder (which is the current folder meanwhile, so
// that messages show no temporary paths), provokes the fault through the library or the built executable, asserts that the
// message names what it must and that nothing was lost, and returns the two texts for the table.
#pragma once
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace chorus::errors {

/// What one case gives to the table.
struct Seen {
  std::string message;  ///< the real one
  std::string kept;     ///< what goes on and what is still there, in words
};

/// What the executable wrote and how it ended.
struct Ended {
  int status = 0;  ///< exit status, or 128 + the signal
  std::string out, err;
  /// The line of `out` or `err` that contains `part`; a failure of the test where there is none.
  std::string line(std::string_view part) const;
};

/// An empty folder that is the current one until it goes with the scene.
class Scene {
 public:
  Scene();
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  /// Writes a file (folders are made) and returns its path relative to the scene.
  std::filesystem::path write(const std::filesystem::path& name, std::string_view content) const;
  /// Runs `chorus` with these arguments, in the scene's folder, on one thread.
  Ended chorus(const std::vector<std::string>& arguments) const;

 private:
  std::filesystem::path before_, folder_;
};

/// What `f` throws as an Error; a failure of the test, and "no error", where it throws none.
std::string error_of(const std::function<void()>& f);

/// Fails unless each part is in the text.
void expect_parts(std::string_view text, std::initializer_list<std::string_view> parts);

class ErrorTable {
 public:
  void section(const std::string& title, const std::string& about = "");
  /// Runs a case; its failures name it.
  void add(const std::string& wrong, const std::function<Seen(Scene&)>& provoke);
  /// The sections as Markdown.
  std::string markdown() const { return text_; }
  int cases() const { return cases_; }

 private:
  std::string text_, section_;
  int cases_ = 0;
};

}  // namespace chorus::errors
