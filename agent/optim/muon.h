#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "agent/optim/newton_schulz.h"
#include "common/layout/model_design.h"
#include "common/layout/parameters.h"
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
  int64_t offset = 0;  // floats in the arena
  MatrixShape shape = {};
  int owner = 0;  // the rank that orthogonalises it
};

// A part of a matrix whose gradient and momentum a rank has.
struct MuonPart {
  int64_t offset = 0;  // floats in the arena
  int64_t buffer = 0;  // where its momentum begins in the rank's buffers
  int64_t count = 0;
};

// One of the ranks that divide the matrices among them.
struct MuonRank {
  int rank = 0;
  int ranks = 1;
};

// Returns the matrices of an arena without tensor shards, ascending, and deals them to `ranks`
// ranks: the next most expensive one to the rank with the least work. Pure.
std::vector<MuonMatrix> muon_matrices(const ModelDesign& design, const ParameterArena& arena,
                                      int ranks);

// Returns the bytes that a Muon of these matrices works in, whatever the owners; 0 without a
// matrix. Pure, except that it depends on set_threads() and the CPU's instructions.
size_t muon_bytes(std::span<const MuonMatrix> matrices, const MuonOptions& options);

// Makes the updates of matrices from their gradients: Nesterov's momentum, then newton_schulz().
//   b = momentum b + g; direction = g + momentum b
//   update = max(1, rows / columns)^0.5 newton_schulz(direction)
// The scale is that of the sources, and "original" of torch.optim.Muon. PyTorch's buffer is smaller
// by the factor 1 - momentum, which newton_schulz() does not see. Sources: newton_schulz.h.
class Muon {
 public:
  struct Setup {
    std::vector<MuonMatrix> matrices;
    std::vector<MuonPart> parts;  // of this rank
    MuonOptions options;
    int rank = 0;
    float* gradients = nullptr;      // of the whole arena
    float* buffers = nullptr;        // the numbers b of the parts
    kernels::Workspace memory = {};  // muon_bytes()
  };
  // The arrays are memory of the CPU, and outlive it.
  explicit Muon(Setup setup);

  // Both work in place, on the CPU's stream. make_directions() replaces the gradients of this
  // rank's parts, for a finite scale of gradients. orthogonalise() replaces the directions of the
  // matrices that this rank owns, which are whole by then, by their updates.
  void make_directions(const kernels::OpTable& ops, kernels::Stream& stream,
                       float gradient_scale) const;
  void orthogonalise(const kernels::OpTable& ops, kernels::Stream& stream) const;

  std::span<const MuonMatrix> matrices() const { return setup_.matrices; }

 private:
  Setup setup_;
  NewtonSchulz memory_;  // without a matrix
};

}  // namespace lockstep::optim
