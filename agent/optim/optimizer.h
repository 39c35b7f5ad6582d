#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "agent/optim/array_layout.h"
#include "agent/optim/muon.h"
#include "common/base/result.h"
#include "common/layout/model_design.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_layout.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::optim {

enum class OptimizerKind : uint8_t { kAdamW, kSgd, kAdagrad, kFtrl, kMuon };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9;         // AdamW's, also for what Muon leaves to AdamW
  double beta2 = 0.95;        // likewise
  double epsilon = 1e-8;      // likewise, and Adagrad's
  double momentum = 0;        // SGD's; 0: no momentum, and no state
  bool nesterov = false;      // SGD's
  double beta = 1;            // FTRL's
  double l1 = 0;              // FTRL's
  double weight_decay = 0.1;  // for the parameters marked in the table; FTRL's l2
  // The moving average of the parameters is a state, whose first value is the parameters after the
  // first update. 0: there is none.
  double average_decay = 0;
  // For rounding the copies: 0 rounds to nearest even, else stochastically
  // (kernels/ops/parameter_update.h).
  uint64_t rounding_seed = 0;
  MuonOptions muon = {};
};

// Parses "adamw", "sgd", "adagrad" or "muon"; kInvalid for any other name. Only parameter servers
// use FTRL.
Result<OptimizerKind> parse_optimizer(std::string_view name);

// A number that an optimizer keeps for every element of the parameters.
struct StateKind {
  const char* name;     // as in PyTorch's state_dict(): "exp_avg"
  const char* meaning;  // for people: "first moments"
};
inline constexpr size_t kStatesMax = kernels::kUpdateStatesMax;
inline constexpr char kAverageName[] = "ema";  // StateKind::name of the moving average

// Returns the states of an optimizer with these options, at most kStatesMax. Muon's are AdamW's:
// the first one of a matrix is its momentum, and the second one stays zero. Pure: the plan of the
// memory, the files of a checkpoint and the optimizer itself follow this list.
std::span<const StateKind> state_kinds(const OptimizerOptions& options);

// One state on the device, in the layout of the parameters' arena.
struct OptimizerState {
  const char* name = "";  // StateKind::name
  float* values = nullptr;
};

// The flat arrays of one rank.
struct OptimizerArenas {
  float* parameters = nullptr;
  float* gradients = nullptr;       // kMuon overwrites those of matrices
  kernels::Bf16* copies = nullptr;  // bf16 copies of the new parameters for products; null: none
  // In the order of state_kinds(), initially zero; null: allocated by the optimizer.
  std::array<float*, kStatesMax> states = {};
  // The part of the arena that this rank updates, ascending in both places; empty: all of it.
  std::vector<ShardSlice> slices = {};
  ArrayLayout parameters_layout = ArrayLayout::kArena;
  ArrayLayout gradients_layout = ArrayLayout::kArena;
  ArrayLayout copies_layout = ArrayLayout::kArena;
  ArrayLayout states_layout = ArrayLayout::kArena;
  // Only for kMuon. MuonRanks::slices of this rank are `slices`.
  MuonRanks muon_ranks = {};
  kernels::Workspace muon_memory = {};  // muon_bytes(); null: allocated by the optimizer
};

// Returns the arrays' slices; all of the arena where they have none.
std::vector<ShardSlice> updated_slices(const OptimizerArenas& arrays, const ParameterArena& arena);

struct OptimizerStep {
  double learning_rate = 0;
  float gradient_scale = 1.0f;
  const float* device_scale = nullptr;  // multiplied in; from ClipScale
  int64_t step = 1;                     // counted from 1
  int64_t first_update = 1;             // the first step that has changed, or changes, parameters
};

// Updates tensors and their states from their gradients, by the formula of the kind
// (kernels/ops/adamw.h, sgd.h, adagrad.h, ftrl.h), with the weight decays of the tensors, or
// plainly (UpdatedTensor::plain_rate). For kMuon they are no matrices, and it is AdamW's formula.
// They are memory of the stream's device, whose ops these are.
void update_tensors(const kernels::OpTable& ops, kernels::Stream& stream,
                    const OptimizerOptions& options, const OptimizerStep& step,
                    std::span<const kernels::UpdatedTensor> tensors);

// Updates a parameter arena, or a rank's slices of it, from the gradients (update_tensors()). The
// arguments of create() are caller-owned and must outlive it.
//
// With kMuon the hidden matrices are updated by parameter -= rate (update + weight_decay
// parameter), with the updates and the rate of optim/muon.h. Where several ranks divide the
// matrices, these call make_directions(), orthogonalise the matrices of muon() together, and
// apply() the updates.
class Optimizer {
 public:
  // kUnavailable if memory is short.
  static Result<Optimizer> create(const ModelDesign& design, const ParameterArena& arena,
                                  const OptimizerArenas& arenas, const OptimizerOptions& options,
                                  kernels::Device device, const kernels::OpTable& ops);

  // Updates every parameter, its states and its copy. Changes nothing if device_scale is not
  // finite. For a rank that is alone with its matrices.
  void step(kernels::Stream& stream, const OptimizerStep& step);
  // Makes the directions of matrices, if there are any (muon()).
  void make_directions(kernels::Stream& stream, const OptimizerStep& step) const;
  // Updates everything, matrices by their updates.
  void apply(kernels::Stream& stream, const OptimizerStep& step) const;
  // Null without kMuon.
  const Muon* muon() const { return muon_ ? &*muon_ : nullptr; }
  // Rebuilds the copies after parameters were loaded or received. The result has the same bits as
  // after optimizer step `step`; step 0 means before the first step, rounded to nearest.
  void refresh_copies(kernels::Stream& stream, int64_t step);

  // In the order of state_kinds().
  const std::vector<OptimizerState>& states() const { return states_; }
  // Returns everything that a step updates, ascending in the arena.
  std::span<const kernels::UpdatedTensor> tensors() const { return tensors_; }
  // As step(), of only these tensors, which are no matrices of kMuon.
  void update(kernels::Stream& stream, const OptimizerStep& step,
              std::span<const kernels::UpdatedTensor> tensors) const;

 private:
  Optimizer() = default;
  void add(const OptimizerArenas& arenas, const ShardSlice& slice,
           const kernels::ElementIndex& index, int64_t first, const Parameter& parameter);
  Status take_states(const OptimizerArenas& arenas, size_t bytes, kernels::Device device);
  Status take_matrices(const ModelDesign& design, const ParameterArena& arena,
                       const OptimizerArenas& arenas, kernels::Device device);
  void apply_matrices(kernels::Stream& stream, const OptimizerStep& step) const;

  const kernels::OpTable* ops_ = nullptr;
  OptimizerOptions options_;
  std::vector<OptimizerState> states_;
  std::array<kernels::Buffer, kStatesMax> owned_;  // the states that are not caller-owned
  std::vector<kernels::UpdatedTensor> tensors_;
  // With kMuon: what AdamW updates, and the rest of the tensors.
  std::vector<kernels::UpdatedTensor> others_;
  std::vector<kernels::UpdatedTensor> matrices_;
  std::optional<Muon> muon_;
  kernels::Buffer muon_memory_;
};

}  // namespace lockstep::optim
