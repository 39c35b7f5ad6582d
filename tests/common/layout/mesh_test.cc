#include "common/layout/mesh.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep {
namespace {

TEST(Mesh, PutsTensorPeersNextToEachOther) {
  const Mesh mesh{.pipeline = 2, .data = 2, .tensor = 2};
  EXPECT_EQ(coordinates(mesh, 5), (MeshCoordinates{.pipeline = 1, .data = 0, .tensor = 1}));
  using Groups = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(axis_groups(mesh, Axis::kTensor), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(axis_groups(mesh, Axis::kData), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(axis_groups(mesh, Axis::kPipeline), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(Mesh, CoordinatesAndRanksAreInverse) {
  const Mesh mesh{.pipeline = 3, .data = 4, .tensor = 2};
  for (int64_t rank = 0; rank < mesh.size(); ++rank) {
    EXPECT_EQ(rank_of(mesh, coordinates(mesh, rank)), rank);
  }
}

TEST(Mesh, HasEveryRankInOneGroupOfEachAxis) {
  const Mesh mesh{.pipeline = 3, .data = 4, .tensor = 2};
  for (const Axis axis : {Axis::kPipeline, Axis::kData, Axis::kTensor}) {
    std::multiset<int64_t> seen;
    for (const std::vector<int64_t>& group : axis_groups(mesh, axis)) {
      seen.insert(group.begin(), group.end());
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(mesh.size())) << axis_name(axis);
    for (int64_t rank = 0; rank < mesh.size(); ++rank) {
      EXPECT_EQ(seen.count(rank), 1u) << axis_name(axis) << " " << rank;
    }
  }
}

TEST(MakeMesh, LeavesTheRestOfTheWorldToTheDataAxis) {
  const Result<Mesh> mesh = make_mesh({.world_size = 8, .pipeline = 2, .tensor = 2});
  ASSERT_TRUE(mesh.ok());
  EXPECT_EQ(*mesh, (Mesh{.pipeline = 2, .data = 2, .tensor = 2}));
}

TEST(MakeMesh, RefusesWhatDoesNotFit) {
  const std::vector<MeshShape> shapes{
      {.world_size = 8, .pipeline = 3, .tensor = 1},
      {.world_size = 8, .pipeline = 4, .tensor = 4},
      {.world_size = 8, .pipeline = 0, .tensor = 1},
      {.world_size = 0, .pipeline = 1, .tensor = 1},
      {.world_size = 8, .pipeline = int64_t{1} << 62, .tensor = int64_t{1} << 62},
  };
  for (const MeshShape& shape : shapes) {
    const Result<Mesh> mesh = make_mesh(shape);
    ASSERT_FALSE(mesh.ok()) << shape.pipeline << " x " << shape.tensor;
    EXPECT_EQ(mesh.error().code, Code::kInvalid);
  }
}

}  // namespace
}  // namespace lockstep
