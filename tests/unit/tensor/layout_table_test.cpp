// The table of local rules in docs/parallel.md is what the rules say: every meeting of placements is tried.
#include <chorus/core/error.h>
#include <chorus/tensor/context.h>
#include <chorus/tensor/layout_rules.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace chorus {
namespace {

/// Ops whose inputs look alike.
struct RuleLine {
  std::vector<std::string> ops;
  std::string inputs;         ///< for people
  std::vector<Shape> shapes;  ///< of the inputs, whole
  Shape result;
  int parts = 1;  ///< tensors side by side in the first input's last dim
};

const std::vector<RuleLine>& rule_lines() {
  static const std::vector<RuleLine> lines{
      {{"relu", "silu", "silu_dropout"}, "x [T, h]", {{5, 7}}, {5, 7}},
      {{"scale", "cast", "dropout"}, "x [T, h]", {{5, 7}}, {5, 7}},
      {{"add", "add_scaled"}, "x, y [T, h]", {{5, 7}, {5, 7}}, {5, 7}},
      {{"mul"}, "x, y [T, h]", {{5, 7}, {5, 7}}, {5, 7}},
      {{"add_row"}, "x [T, h], row [h]", {{5, 7}, {7}}, {5, 7}},
      {{"linear"}, "x [T, k], W [o, k]", {{5, 7}, {11, 7}}, {5, 11}},
      {{"linear"}, "x, W, bias [o]", {{5, 7}, {11, 7}, {11}}, {5, 11}},
      {{"rms_norm"}, "x [T, h], weight [h]", {{5, 7}, {7}}, {5, 7}},
      {{"layer_norm"}, "x, weight, bias", {{5, 7}, {7}, {7}}, {5, 7}},
      {{"fixed_norm"}, "x, weight, bias", {{5, 7}, {7}, {7}}, {5, 7}},
      {{"softmax"}, "x [T, h]", {{5, 7}}, {5, 7}},
      {{"glu", "swiglu"}, "x [T, 2h]", {{5, 7}}, {5, 7}, 2},
      {{"rope"}, "qkv [T, 3h]", {{5, 7}}, {5, 7}, 3},
      {{"attention"}, "qkv [T, 3h]", {{5, 7}}, {5, 7}, 3},
      {{"relative_attention"}, "qkv, biases u and v [heads, d], p [T, h]", {{5, 7}, {7, 3}, {7, 3}, {5, 7}}, {5, 7}, 3},
      {{"cached_attention"}, "q [B, h]", {{5, 7}}, {5, 7}},
      {{"depthwise_conv1d"}, "x [T, c], W [kernel, c], bias [c]", {{5, 7}, {3, 7}, {7}}, {5, 7}},
      {{"conv1d", "conv2d_subsample", "depthwise_conv2d_subsample"}, "x, W, bias", {{5, 7}, {11, 7}, {11}}, {5, 11}},
      {{"embedding"}, "table [V, h]", {{11, 7}}, {5, 7}},
      {{"gather_rows", "segment_mean"}, "x [T, h]", {{5, 7}}, {5, 7}},
      {{"concat_rows"}, "x, y [T, h]", {{5, 7}, {5, 7}}, {10, 7}},
      {{"concat_cols"}, "x, y [T, h]", {{5, 7}, {5, 7}}, {5, 14}},
      {{"linear_cross_entropy"}, "x [T, h], W [V, h]", {{5, 7}, {11, 7}}, {}},
      {{"ctc_loss"}, "logits [T, V]", {{5, 7}}, {}},
      {{"sum"}, "x [T, h]", {{5, 7}}, {}},
  };
  return lines;
}

std::string placement_text(const AxisPlacement& at) {
  std::ostringstream out;
  out << at.placement;
  if (at.parts > 1) out << "/" << at.parts;
  return out.str();
}

/// Every placement of an input; where several tensors lie side by side, each of them sharded too.
std::vector<AxisPlacement> choices(const Shape& shape, int parts) {
  std::vector<AxisPlacement> out;
  for (const Placement p : {placement::same, placement::copy, placement::sum}) out.push_back({"tp", p, 0, 1});
  for (int d = 0; d < shape.rank(); ++d) out.push_back({"tp", placement::shard(d), shape[d], 1});
  if (parts > 1) out.push_back({"tp", placement::shard(shape.rank() - 1), shape[-1], parts});
  return out;
}

/// "copy, shard(0) -> shard(1)", of all that are allowed.
std::vector<std::string> allowed(const std::string& op, const RuleLine& line) {
  Context context;
  std::vector<std::string> out;
  std::vector<std::vector<AxisPlacement>> all;
  for (std::size_t i = 0; i < line.shapes.size(); ++i) all.push_back(choices(line.shapes[i], i == 0 ? line.parts : 1));
  std::vector<std::size_t> at(all.size());
  while (true) {
    Inputs inputs;
    std::string text;
    for (std::size_t i = 0; i < all.size(); ++i) {
      Tensor x = Tensor::unbacked(context, line.shapes[i], DType::f64);
      x.set_layout(std::make_shared<const Layout>(Layout{all[i][at[i]]}));
      inputs.push_back(x);
      text += (i ? ", " : "") + placement_text(all[i][at[i]]);
    }
    try {
      const auto result = result_layout(op.c_str(), inputs, Tensor::unbacked(context, line.result, DType::f64));
      out.push_back(text + " → " + placement_text(result->at(0)));
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("has no rule for inputs"), std::string::npos) << error.what();
    }
    std::size_t i = at.size();
    while (i > 0 && ++at[i - 1] == all[i - 1].size()) at[--i] = 0;
    if (i == 0) return out;
  }
}

std::string table() {
  std::string text = "| op | inputs | legal along one axis |\n|---|---|---|\n";
  for (const auto& line : rule_lines()) {
    const auto rows = allowed(line.ops.front(), line);
    std::string names, cells;
    for (const auto& op : line.ops) {
      names += (names.empty() ? "`" : ", `") + op + "`";
      EXPECT_EQ(allowed(op, line), rows) << op << " and " << line.ops.front();
    }
    for (const auto& row : rows) cells += (cells.empty() ? "" : "; ") + row;
    text += "| " + names + " | " + line.inputs + " | " + cells + " |\n";
  }
  return text;
}

std::string whole_text(const std::string& file) {
  std::ifstream in(std::string(CHORUS_SOURCE_DIR) + "/" + file);
  EXPECT_TRUE(in.good()) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(LayoutTable, IsWhatTheRulesSay) {
  const std::string begin = "<!-- rules: begin -->\n", end = "<!-- rules: end -->";
  std::string page = whole_text("docs/parallel.md");
  const std::size_t from = page.find(begin), to = page.find(end);
  ASSERT_TRUE(from != page.npos && to != page.npos && from < to);
  const std::string expected = table();
  const std::size_t first = from + begin.size();
  if (std::getenv("CHORUS_WRITE_RULES")) {
    page.replace(first, to - first, expected);
    std::ofstream(std::string(CHORUS_SOURCE_DIR) + "/docs/parallel.md") << page;
  }
  EXPECT_EQ(page.substr(first, page.find(end) - first), expected)
      << "CHORUS_WRITE_RULES=1 build/release/tests/test_unit_tensor writes it anew";
}

TEST(LayoutTable, HasEveryOp) {
  const std::string source = whole_text("tensor/layout_rules.cpp");
  const std::regex entry(R"re(\{"(\w+)", \w+\},)re");
  std::set<std::string> ruled, shown;
  for (std::sregex_iterator at(source.begin(), source.end(), entry), last; at != last; ++at) ruled.insert((*at)[1]);
  for (const auto& line : rule_lines()) shown.insert(line.ops.begin(), line.ops.end());
  EXPECT_GT(ruled.size(), 30u);
  EXPECT_EQ(ruled, shown);
}

}  // namespace
}  // namespace chorus
