#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep {

// How the micro-batches of a step pass through the stages of a pipeline.
enum class PipelineKind : uint8_t {
  // One micro-batch after the other goes through all stages and back. On one stage this is gradient
  // accumulation.
  kNaive,
  // All micro-batches forward, then all backward. Source: Huang et al., "GPipe", 2019.
  kGpipe,
  // One forward, one backward: a stage begins with as many forwards as stages follow it, then
  // alternates. Source: Narayanan et al., "Memory-efficient pipeline-parallel DNN training", 2021
  // (PipeDream-Flush).
  kOneForwardOneBackward,
  // Likewise, with several chunks of the model on each stage. Source: Narayanan et al., "Efficient
  // large-scale language model training on GPU clusters using Megatron-LM", 2021, section 2.2.
  kInterleaved,
  // As kOneForwardOneBackward, with the gradients of parameters computed apart, while a stage would
  // wait for the next one. Source: Qi et al., "Zero bubble pipeline parallelism", 2023 (ZB-H1).
  kZeroBubble,
  // Without an end of the step: the stages never wait for an update, and train with several
  // versions of the parameters. Source: Narayanan et al., "PipeDream", 2019.
  kPipeDream,
};

// "naive", "gpipe", "1f1b", "interleaved", "zerobubble", "pipedream".
std::string_view pipeline_kind_name(PipelineKind kind);
// kInvalid for any other name.
Result<PipelineKind> parse_pipeline_kind(std::string_view name);

// The versions of the parameters that kPipeDream trains a micro-batch with.
struct VersionRules {
  // Backward reads the version that forward has read, which the stage keeps meanwhile; otherwise
  // the latest one.
  bool stashes = true;
  // A micro-batch reads on every stage the version that was the first stage's latest when it
  // entered that one; otherwise each stage's latest one. Needs `stashes`.
  bool is_vertical = false;

  bool operator==(const VersionRules&) const = default;
};

// The model is cut into stages * chunks parts. Part chunk * stages + stage is on `stage`.
struct PipelineShape {
  PipelineKind kind = PipelineKind::kNaive;
  int64_t stages = 1;
  int64_t micro_batches = 1;   // of one step
  int64_t chunks = 1;          // more than 1 only if interleaved
  VersionRules versions = {};  // with kPipeDream

  int64_t parts() const { return stages * chunks; }
  int64_t part(int64_t stage, int64_t chunk) const { return chunk * stages + stage; }
};

enum class ActionKind : uint8_t {
  kTake,               // loads the micro-batch: its tokens, its targets
  kReceiveActivation,  // of the part before, from `peer`
  kForward,
  kSendActivation,    // to `peer`; does not wait for the receiver, and keeps its buffer meanwhile
  kReceiveGradient,   // of the activation, from `peer`
  kBackward,          // adds to the gradients of the chunk's parameters, except with kZeroBubble
  kSendGradient,      // to `peer`; does not wait for the receiver
  kBackwardWeights,   // with kZeroBubble: adds to the gradients of the chunk's parameters
  kFinishReductions,  // orders what follows after the reductions of all gradients
  kUpdate,            // of the parameters
};

// "take", "receive activation", ...
std::string_view action_name(ActionKind kind);

// One action of one stage. Kinds that do not concern a micro-batch have none.
struct Action {
  ActionKind kind = ActionKind::kTake;
  int64_t micro_batch = -1;
  int64_t chunk = 0;
  int64_t peer = -1;  // a stage: with sends and receives
  // This backward (of weights, with kZeroBubble) is the last one that adds to the gradients of its
  // chunk. They can be reduced over the data-parallel ranks while it runs.
  bool completes_gradients = false;
  // With kPipeDream: the optimizer step of the micro-batch or of the update, and the version of the
  // parameters that a pass reads: the step whose update has made them. -1: the step under way, and
  // the latest version.
  int64_t step = -1;
  int64_t version = -1;

  bool operator==(const Action&) const = default;
};

// The actions of each stage, in order. The activations that one stage sends to another are matched
// with receives in the order of both lists, and so are the gradients.
using PipelineSchedule = std::vector<std::vector<Action>>;

// kInvalid for a shape with a size below 1, for several chunks without kInterleaved, and for
// kInterleaved with one chunk or if the micro-batches are no multiple of the stages.
Status validate(const PipelineShape& shape);

// Generates one step. Every stage runs the backwards of a chunk in ascending order of
// micro-batches, so gradients are summed in the same order whatever the schedule. Pure. Returns
// validate()'s errors, and kInvalid for kPipeDream, whose steps overlap (pipedream_schedule.h).
Result<PipelineSchedule> pipeline_schedule(const PipelineShape& shape);

// Returns the actions that add to the gradients of parameters, in the last of which those of a
// chunk are complete.
ActionKind gradients_in(const PipelineShape& shape);

// How many messages each end of a channel between two stages holds, so that one travels while the
// next one is computed.
inline constexpr int64_t kChannelSlots = 2;

// Returns how many micro-batches (each chunk's count) at most are between forward and the end of
// backward on a stage: what `actions` need activations for.
int64_t peak_in_flight(const std::vector<Action>& actions);
// Returns how many micro-batches of one chunk are.
int64_t peak_in_flight(const std::vector<Action>& actions, int64_t chunk);

// The micro-batches of each stage in a job that leaves their size open.
inline constexpr int64_t kMicroBatchesPerStage = 4;
// Returns the size of micro-batches that a job leaves open (spec.train.batch.micro: 0), for a
// rank's share of a step: all of it with one stage, otherwise so that each stage has
// kMicroBatchesPerStage, as far as there are samples, and their number is a multiple of `turn`. A
// pipeline of p stages then idles for less than a fifth of a step: (p - 1) / (m + p - 1).
int64_t automatic_micro_batch(int64_t share, int64_t stages, int64_t turn);

}  // namespace lockstep
