// The state of a model whose every element tells what it is of, written by the ranks of a mesh.
#pragma once

#include <string>
#include <vector>

#include "agent/train/checkpoint/checkpoint_reader.h"
#include "agent/train/checkpoint/shard_writer.h"
#include "common/layout/state_layout.h"

namespace lockstep::train {

inline constexpr int64_t kStateKinds = 3;  // parameters, exp_avg and exp_avg_sq
inline const StateNames kTestStates = {"exp_avg", "exp_avg_sq"};
// The smallest model with a matrix, a vector and a block for each of two stages.
inline const MlpConfig kTinyMlp{.inputs = 5, .hidden = {4}, .outputs = 3};

// The state of a design at some moment of its training, which the salt (below 256) identifies.
class WrittenState {
 public:
  WrittenState(const ModelDesign& design, const Mesh& mesh, uint32_t salt)
      : layout_(design, mesh), mesh_(mesh), salt_(salt) {}

  StateTable table() const { return {layout_.table(), kTestStates}; }
  // Each element of each tensor has different bits, in this and in any other moment.
  float value(size_t kind, int64_t id, int64_t element) const;

  // Writes what one rank of the mesh writes.
  Result<std::vector<ManifestFile>> write(Storage& storage, const std::string& folder,
                                          int64_t rank) const;
  // All ranks of the mesh write to a folder that exists.
  Result<std::vector<ManifestFile>> write_all(Storage& storage, const std::string& folder) const;

  // Whether the reader gives these bits: each rank of the mesh reads its share.
  Result<bool> is_in(CheckpointReader& reader) const;

 private:
  Result<bool> share_is_in(CheckpointReader& reader, int64_t rank) const;

  StateLayout layout_;
  Mesh mesh_;
  uint32_t salt_;
};

}  // namespace lockstep::train
