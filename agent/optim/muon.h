#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "agent/optim/array_layout.h"
#include "agent/optim/newton_schulz.h"
#include "common/layout/model_design.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_layout.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::optim {

struct MuonOptions {
  double momentum = 0.95;
  // The rate of the matrices, as a multiple of the step's learning rate, which is that of the other
  // parameters.
  double rate = 1;
  kernels::Precision precision = kernels::Precision::kF32;  // of the products of newton_schulz()
};

// A matrix that Muon updates as one: a hidden matrix of the model, or a part of a packed one.
struct MuonMatrix {
  MatrixShape shape = {};
  // The shards that tensor-parallel ranks have: runs of its rows, or of its columns. If there are
  // fewer shards than ranks, neighbours have the same one.
  MatrixShape shard = {};
  int shards = 1;
  bool has_columns = false;
  int64_t offset = 0;  // of a rank's shard: floats in the arena
  int round = 0;       // the rounds are ascending; in each one, a rank has at most one matrix
  int owner = 0;       // the rank that orthogonalises it
};

// The ranks that divide the matrices among them. Rank i has tensor shard i % tensor.
struct MuonRanks {
  int rank = 0;  // this one
  int ranks = 1;
  int tensor = 1;
  // The slices of the arena that rank i updates are those of index i / tensor, beginning anew after
  // the last one: such ranks are replicas. Empty: each rank updates all of it.
  std::vector<std::vector<ShardSlice>> slices = {};

  // Ranks that together have everything once.
  int replica_size() const {
    return slices.empty() ? tensor : tensor * static_cast<int>(slices.size());
  }
};

// Returns the matrices of an arena, and deals them to `ranks` ranks, the most expensive ones in the
// first round. Pure.
std::vector<MuonMatrix> muon_matrices(const ModelDesign& design, const ParameterArena& arena,
                                      int ranks);

// Returns the bytes that a Muon of these matrices works in, whatever the owners. Pure, except that
// on CPUs it depends on set_threads() and the CPU's instructions.
size_t muon_bytes(std::span<const MuonMatrix> matrices, const MuonOptions& options,
                  kernels::DeviceType device);

// A run of floats of a matrix that a rank has. Its owner has room for all shards of the matrix, one
// after the other.
struct MuonRun {
  int rank = 0;
  int64_t place = 0;  // in the rank's gradients
  int64_t at = 0;     // in the owner's shards()
  int64_t count = 0;
};

// Makes the updates of matrices from their gradients: Nesterov's momentum, then newton_schulz().
//   b = momentum b + g; direction = g + momentum b
//   update = max(1, rows / columns)^0.5 newton_schulz(direction)
// The scale is that of the sources, and "original" of torch.optim.Muon. PyTorch's buffer is smaller
// by the factor 1 - momentum, which newton_schulz() does not see. Sources: newton_schulz.h.
//
// Directions and updates take the places of gradients. For each matrix, its owner gets the shards
// of the direction (collected()) into shards(), calls orthogonalise(), and returns those of the
// update (spread()). All of it is issued to a stream: nothing is read by the host.
class Muon {
 public:
  struct Setup {
    ModelDesign design;
    ParameterArena arena;
    MuonOptions options;
    MuonRanks ranks;
    float* gradients = nullptr;
    ArrayLayout gradients_layout = ArrayLayout::kArena;
    float* buffers = nullptr;  // the numbers b of what this rank updates
    ArrayLayout buffers_layout = ArrayLayout::kArena;
    kernels::DeviceType device = kernels::DeviceType::kCpu;
    kernels::Workspace memory = {};  // muon_bytes(), aligned to 256 bytes on a GPU
  };
  // The arrays are memory of the device, and outlive it.
  explicit Muon(Setup setup);

  // The factor of gradients.
  struct GradientScale {
    float factor = 1;
    const float* device_factor = nullptr;  // in memory of the device; null: 1
  };
  // Replaces the gradients of what this rank updates by directions; by zeros, and keeps the
  // momentum, if the scale is not finite.
  void make_directions(const kernels::OpTable& ops, kernels::Stream& stream,
                       const GradientScale& scale) const;
  // Returns the factor of updates in memory of the device: 1, or NaN, with which optimizers write
  // nothing, if *device_factor is not finite. It lasts until the next call.
  const float* update_factor(const kernels::OpTable& ops, kernels::Stream& stream,
                             const float* device_factor) const;
  // Replaces the direction of a matrix in shards() by its update.
  void orthogonalise(const kernels::OpTable& ops, kernels::Stream& stream,
                     const MuonMatrix& matrix) const;
  // Replaces the directions of all matrices by their updates, for a rank that is alone.
  void orthogonalise_all(const kernels::OpTable& ops, kernels::Stream& stream) const;

  // Returns the matrices in the order of rounds.
  std::span<const MuonMatrix> matrices() const { return matrices_; }
  // Both return all runs at the owner, and elsewhere those of this rank.
  // Runs of a direction from the ranks to the owner, each float once.
  std::vector<MuonRun> collected(const MuonMatrix& matrix) const;
  // Runs of an update from the owner to all ranks that apply it, itself included.
  std::vector<MuonRun> spread(const MuonMatrix& matrix) const;
  int rank() const { return setup_.ranks.rank; }
  float* gradients() const { return setup_.gradients; }
  float* shards() const { return shards_; }

 private:
  void add_runs(const MuonMatrix& matrix, int rank, std::vector<MuonRun>& runs) const;
  bool concerns(const MuonMatrix& matrix, int rank) const {
    return matrix.owner == setup_.ranks.rank || rank == setup_.ranks.rank;
  }
  std::vector<ShardSlice> slices_of(int rank, const MuonMatrix& matrix) const;

  Setup setup_;
  std::vector<MuonMatrix> matrices_;
  float* shards_ = nullptr;
  float* factors_ = nullptr;  // update_factor(), 1, and that of a norm
  NewtonSchulz memory_;       // its matrix is set for each call
};

}  // namespace lockstep::optim
