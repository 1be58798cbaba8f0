// One rank of a group whose others say nothing.
#include <chorus/parallel/group/silent.h>
#include <chorus/parallel/mesh.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

using Values = std::vector<double>;

TEST(SilentGroup, BringsZerosOfOthersAndItsOwnPart) {
  SilentGroup group("three", 1, {4, 5, 6});
  EXPECT_EQ(group.size(), 3);
  EXPECT_EQ(group.rank(), 1);
  const std::vector<std::int64_t> counts{2, 1, 3};
  Values sum{1, 2};
  group.all_reduce(std::span(sum));
  EXPECT_EQ(sum, (Values{1, 2}));

  const Values own{7};
  Values all(6, 9);
  group.all_gather(std::span(own), std::span(all), counts);
  EXPECT_EQ(all, (Values{0, 0, 7, 0, 0, 0}));
  Values in_place{9, 9, 8, 9, 9, 9};
  group.all_gather(std::span(in_place).subspan(2, 1), std::span(in_place), counts);
  EXPECT_EQ(in_place, (Values{0, 0, 8, 0, 0, 0}));

  const Values parts{1, 2, 3, 4, 5, 6};
  Values part(1);
  group.reduce_scatter(std::span(parts), std::span(part), counts);
  EXPECT_EQ(part, (Values{3}));

  const std::vector<std::int64_t> sent{1, 2, 3}, received{3, 2, 0};
  Values exchanged(5, 9);
  group.all_to_all(std::span(parts), sent, std::span(exchanged), received);
  EXPECT_EQ(exchanged, (Values{0, 0, 0, 2, 3}));

  Values mine{5}, theirs{5}, message{5};
  group.broadcast(std::span(mine), 1);
  group.broadcast(std::span(theirs), 0);
  group.receive(std::span(message), 2);
  group.send(std::span<const double>(mine), 0);
  group.barrier();
  EXPECT_EQ(mine, (Values{5}));
  EXPECT_EQ(theirs, (Values{0}));
  EXPECT_EQ(message, (Values{0}));
}

TEST(SilentMesh, HasTheGroupsOfARealOne) {
  const MeshShape shape = mesh_shape({.tp = 4}, 12);
  const auto mesh = Mesh::silent(shape, 5);
  mesh->factor("tp", 2, "tp.kv", "tp.rep");
  EXPECT_EQ(mesh->axis("tp").group->members(), (std::vector{4, 5, 6, 7}));
  EXPECT_EQ(mesh->axis("dp").group->members(), (std::vector{1, 5, 9}));
  EXPECT_EQ(mesh->axis("dp").group->rank(), 1);
  EXPECT_EQ(mesh->axis("tp.rep").group->members(), (std::vector{4, 5}));
  EXPECT_EQ(mesh->axis("pp").group->size(), 1);
}

}  // namespace
}  // namespace chorus
