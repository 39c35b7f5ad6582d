#include "common/layout/mesh.h"

#include <string>

namespace lockstep {
namespace {

int64_t axis_size(const Mesh& mesh, Axis axis) {
  switch (axis) {
    case Axis::kPipeline:
      return mesh.pipeline;
    case Axis::kData:
      return mesh.data;
    case Axis::kTensor:
      return mesh.tensor;
  }
  return 0;
}

int64_t axis_stride(const Mesh& mesh, Axis axis) {
  switch (axis) {
    case Axis::kPipeline:
      return mesh.data * mesh.tensor;
    case Axis::kData:
      return mesh.tensor;
    case Axis::kTensor:
      return 1;
  }
  return 0;
}

}  // namespace

std::string_view axis_name(Axis axis) {
  switch (axis) {
    case Axis::kPipeline:
      return "pipeline";
    case Axis::kData:
      return "data";
    case Axis::kTensor:
      return "tensor";
  }
  return "";
}

Result<Mesh> make_mesh(const MeshShape& shape) {
  if (shape.world_size < 1 || shape.pipeline < 1 || shape.tensor < 1) {
    return invalid("[mesh] expected sizes of at least 1, got world " +
                   std::to_string(shape.world_size) + ", pipeline " +
                   std::to_string(shape.pipeline) + ", tensor " + std::to_string(shape.tensor));
  }
  // Divide one after the other: the product of two numbers from outside may overflow.
  if (shape.world_size % shape.pipeline != 0 ||
      shape.world_size / shape.pipeline % shape.tensor != 0) {
    return invalid("[mesh] pipeline " + std::to_string(shape.pipeline) + " x tensor " +
                   std::to_string(shape.tensor) + " does not divide the world of " +
                   std::to_string(shape.world_size));
  }
  return Mesh{.pipeline = shape.pipeline,
              .data = shape.world_size / shape.pipeline / shape.tensor,
              .tensor = shape.tensor};
}

MeshCoordinates coordinates(const Mesh& mesh, int64_t rank) {
  CHECK(rank >= 0 && rank < mesh.size());
  return {.pipeline = rank / (mesh.data * mesh.tensor),
          .data = rank / mesh.tensor % mesh.data,
          .tensor = rank % mesh.tensor};
}

int64_t rank_of(const Mesh& mesh, const MeshCoordinates& at) {
  return (at.pipeline * mesh.data + at.data) * mesh.tensor + at.tensor;
}

std::vector<std::vector<int64_t>> axis_groups(const Mesh& mesh, Axis axis) {
  const int64_t size = axis_size(mesh, axis);
  const int64_t stride = axis_stride(mesh, axis);
  std::vector<std::vector<int64_t>> groups;
  for (int64_t first = 0; first < mesh.size(); ++first) {
    if (first / stride % size != 0) continue;
    std::vector<int64_t>& group = groups.emplace_back();
    for (int64_t i = 0; i < size; ++i) group.push_back(first + i * stride);
  }
  return groups;
}

}  // namespace lockstep
