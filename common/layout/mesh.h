#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep {

enum class Axis : uint8_t { kPipeline, kData, kTensor };

// "pipeline", "data", "tensor".
std::string_view axis_name(Axis axis);

// The world as pipeline x data x tensor, outer to inner: rank = (pipeline * data_size + data) *
// tensor_size + tensor. Tensor peers are therefore neighbours and share a node.
struct Mesh {
  int64_t pipeline = 1;
  int64_t data = 1;
  int64_t tensor = 1;
  // How many parts of the model are on each stage of the pipeline. Several of them make it an
  // interleaved one.
  int64_t virtual_stages = 1;
  // The layers of each part, from first to last; empty: pipeline_stage() chooses.
  std::vector<int64_t> part_layers = {};

  int64_t size() const { return pipeline * data * tensor; }
  bool operator==(const Mesh&) const = default;
};

struct MeshShape {
  int64_t world_size = 1;
  int64_t pipeline = 1;
  int64_t tensor = 1;
};

// Uses the rest of the world for data parallelism. kInvalid if pipeline x tensor does not divide
// the world size.
Result<Mesh> make_mesh(const MeshShape& shape);

struct MeshCoordinates {
  int64_t pipeline = 0;
  int64_t data = 0;
  int64_t tensor = 0;

  bool operator==(const MeshCoordinates&) const = default;
};

// Convert a rank in [0, mesh.size()) to coordinates and back.
MeshCoordinates coordinates(const Mesh& mesh, int64_t rank);
int64_t rank_of(const Mesh& mesh, const MeshCoordinates& at);

// Returns the groups along an axis. A group is the ranks that differ only in that coordinate,
// ascending; groups are ordered by their first ranks. Every rank is in exactly one group.
std::vector<std::vector<int64_t>> axis_groups(const Mesh& mesh, Axis axis);

}  // namespace lockstep
