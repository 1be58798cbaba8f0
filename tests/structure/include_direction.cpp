// Rules about the sources themselves: a folder includes only itself and the folders before it, no source is long, no header is
// quoted.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> order{"core", "tensor", "nn", "parallel", "models", "io", "apps"};
constexpr int most_lines = 600;

std::ptrdiff_t place(const std::string& folder) { return std::ranges::find(order, folder) - order.begin(); }
bool is_source(const fs::path& file) {
  const auto extension = file.extension();
  return extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh";
}

// What is wrong with one file; empty if nothing. `folder` is the part of the product it belongs to, or empty for tests and
// benches.
void check_file(const fs::path& file, const std::string& folder, std::vector<std::string>& wrong) {
  std::ifstream in(file);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::string at = file.string() + ':' + std::to_string(number) + ": ";
    if (folder.empty() || !line.starts_with("#include")) continue;
    if (line.find('"') != line.npos) wrong.push_back(at + "a quoted include; write <chorus/folder/file.h>");
    const std::string prefix = "<chorus/";
    const std::size_t begin = line.find(prefix);
    if (begin == line.npos) continue;
    const std::size_t name = begin + prefix.size();
    const std::string other = line.substr(name, line.find('/', name) - name);
    if (place(other) == std::ssize(order)) wrong.push_back(at + "'" + other + "' is no folder of the product");
    if (place(other) > place(folder)) wrong.push_back(at + folder + " includes " + other + ", which comes after it");
    // A model is written for one device; its plan, beside it, is where it meets the mesh.
    if (folder == "models" && other == "parallel" && !file.filename().string().starts_with("plan"))
      wrong.push_back(at + "a model includes parallel outside its plan");
  }
  if (number > most_lines)
    wrong.push_back(file.string() + ": " + std::to_string(number) + " lines, more than " + std::to_string(most_lines));
}

std::vector<std::string> check(const fs::path& root, int& files) {
  std::vector<std::string> wrong;
  auto folders = order;
  folders.insert(folders.end(), {"tests", "bench", "examples"});
  for (const auto& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      ++files;
      check_file(entry.path(), place(folder) < std::ssize(order) ? folder : "", wrong);
    }
  }
  return wrong;
}

TEST(Sources, FollowTheRules) {
  int files = 0;
  for (const auto& wrong : check(CHORUS_SOURCE_DIR, files)) ADD_FAILURE() << wrong;
  EXPECT_GT(files, 50) << "too few sources under " << CHORUS_SOURCE_DIR;
}

// The check itself: each mutant breaks one rule, and is found.
class Mutants : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root); }
  void TearDown() override { fs::remove_all(root); }
  std::vector<std::string> found(const std::string& file, const std::string& text) {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
    int files = 0;
    return check(root, files);
  }
  fs::path root = fs::temp_directory_path() /
                  ("chorus_structure_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
};
TEST_F(Mutants, UpwardInclude) { EXPECT_EQ(found("nn/x.h", "#include <chorus/parallel/mesh.h>\n").size(), 1u); }
TEST_F(Mutants, UpwardIncludeInCuda) { EXPECT_EQ(found("tensor/kernels/x.cu", "#include <chorus/nn/param.h>\n").size(), 1u); }
TEST_F(Mutants, UnknownFolder) { EXPECT_EQ(found("io/x.h", "#include <chorus/util/x.h>\n").size(), 2u); }
TEST_F(Mutants, QuotedInclude) { EXPECT_EQ(found("io/x.h", "#include \"audio.h\"\n").size(), 1u); }
TEST_F(Mutants, ModelKnowsTheMesh) {
  EXPECT_EQ(found("models/llm/model.cpp", "#include <chorus/parallel/mesh.h>\n").size(), 1u);
}
TEST_F(Mutants, LongFile) {
  std::string text;
  for (int i = 0; i < most_lines + 1; ++i) text += '\n';
  EXPECT_EQ(found("tests/x.cpp", text).size(), 1u);
}
TEST_F(Mutants, WhatIsAllowed) {
  EXPECT_EQ(found("models/llm/plan.cpp", "#include <chorus/parallel/mesh.h>\n#include <chorus/core/error.h>\n").size(), 0u);
  EXPECT_EQ(found("tests/unit/nn/x.cpp", "#include \"harness.h\"\n#include <chorus/apps/x.h>\n").size(), 0u);
}

}  // namespace
