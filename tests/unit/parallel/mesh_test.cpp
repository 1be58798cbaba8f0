#include <chorus/parallel/mesh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace chorus {
namespace {

using Lines = std::set<std::vector<int>>;

/// The groups that all ranks of a mesh form on an axis.
Lines lines(const MeshShape& shape, const std::string& axis) {
  Lines out;
  for (int r = 0; r < shape.world(); ++r) {
    const AxisPeers peers = axis_peers(shape, axis, r);
    EXPECT_EQ(peers.ranks.at(static_cast<std::size_t>(peers.index)), r) << axis;
    out.insert(peers.ranks);
  }
  return out;
}

std::string refusal(const MeshSizes& sizes, int world) {
  try {
    mesh_shape(sizes, world);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Mesh, TensorParallelRanksAreNeighboursAndStagesFarApart) {
  // The example of megatron's two grids: 16 ranks, tp 2, pp 2, ep 4, etp 1.
  const MeshShape shape = mesh_shape({.tp = 2, .pp = 2, .ep = 4}, 16);
  EXPECT_EQ(shape.dp(), 4);
  EXPECT_EQ(shape.edp, 2);
  EXPECT_EQ(lines(shape, "tp"), (Lines{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(lines(shape, "dp"), (Lines{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(lines(shape, "ep"), (Lines{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(lines(shape, "edp"), (Lines{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(lines(shape, "pp"), (Lines{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}));
}

TEST(Mesh, FlattenedAxesSpanTheirParts) {
  const MeshShape shape = mesh_shape({.dp_replicate = 2, .tp = 2, .cp = 3}, 24);
  EXPECT_EQ(shape.dp_shard, 2);
  EXPECT_EQ(axis_peers(shape, "cp", 3).ranks, (std::vector{1, 3, 5}));
  EXPECT_EQ(axis_peers(shape, "dp_shard", 1).ranks, (std::vector{1, 7}));
  EXPECT_EQ(axis_peers(shape, "dp_shard_cp", 1).ranks, (std::vector{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(axis_peers(shape, "dp", 0).ranks, (std::vector{0, 6, 12, 18}));
  EXPECT_EQ(axis_peers(shape, "tp_cp", 13).ranks, (std::vector{12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(axis_peers(shape, "tp_cp", 15).index, 3);
  EXPECT_EQ(axis_peers(shape, "world", 5).ranks.size(), 24u);
}

TEST(Mesh, EveryAxisPartitionsTheRanks) {
  for (const auto& sizes :
       {MeshSizes{.tp = 2, .pp = 2, .ep = 2, .etp = 3}, MeshSizes{.dp_replicate = 3, .cp = 4}, MeshSizes{}}) {
    const MeshShape shape = mesh_shape(sizes, 24);
    EXPECT_EQ(shape.world(), 24);
    for (const auto& span : axis_spans()) {
      std::vector<int> seen;
      for (const auto& line : lines(shape, span.name)) seen.insert(seen.end(), line.begin(), line.end());
      EXPECT_EQ(seen.size(), 24u) << span.name;
      EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), 24u) << span.name;
    }
  }
}

TEST(Mesh, SizesThatDontFitAreNamed) {
  EXPECT_EQ(minimum_ranks({.tp = 2, .pp = 3, .cp = 2, .ep = 6}), 3 * 12);
  EXPECT_EQ(minimum_ranks({.tp = 2, .ep = 8}), 8);
  EXPECT_EQ(mesh_shape({.tp = 2, .ep = 8}, 8).dp(), 4);
  EXPECT_THAT(refusal({.tp = 3}, 8),
              ::testing::HasSubstr("8 ranks are no multiple of tp_size * cp_size * pp_size = 3 * 1 * 1 = 3"));
  EXPECT_THAT(refusal({.dp = 3, .tp = 2}, 8),
              ::testing::HasSubstr("dp_size is 3, but 8 ranks over tp_size * cp_size * pp_size = 2 leave 4"));
  EXPECT_THAT(refusal({.dp_replicate = 3}, 8),
              ::testing::HasSubstr("dp_replicate_size 3 doesn't divide the 8 data-parallel ranks"));
  EXPECT_THAT(refusal({.tp = 2, .ep = 3}, 8), ::testing::HasSubstr("ep_size * etp_size * pp_size = 3 * 1 * 1 = 3"));
  EXPECT_THAT(refusal({.tp = 0}, 8), ::testing::HasSubstr("tp_size is 0"));
  EXPECT_EQ(refusal({.dp = 4, .tp = 2}, 8), "");
}

TEST(Mesh, SaysWhatItIs) {
  EXPECT_EQ(mesh_shape({.tp = 2}, 4).describe(true), "TP2 SP DP2");
  EXPECT_EQ(mesh_shape({.tp = 2}, 4).describe(), "TP2 DP2");
  EXPECT_EQ(mesh_shape({}, 1).describe(true), "1 rank");
}

TEST(Mesh, AnUnknownAxisListsTheKnown) {
  const Mesh mesh(mesh_shape({}, 2), 0);
  try {
    mesh.axis("ddp");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("there is no axis 'ddp'; cp, dp, "));
  }
}

TEST(Mesh, FactorsAreOuterAndInner) {
  Mesh mesh(mesh_shape({.tp = 6}, 12), 10);
  mesh.factor("tp", 2, "tp.kv", "tp.rep");
  EXPECT_EQ(mesh.axis("tp").rank, 4);
  EXPECT_EQ(mesh.axis("tp.kv").rank, 1);
  EXPECT_EQ(mesh.axis("tp.kv").size, 2);
  EXPECT_EQ(mesh.axis("tp.rep").rank, 1);
  EXPECT_EQ(mesh.axis("tp.rep").size, 3);
}

}  // namespace
}  // namespace chorus
