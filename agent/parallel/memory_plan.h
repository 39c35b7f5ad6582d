#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/parallel/compose_options.h"
#include "common/base/result.h"
#include "kernels/device/arena.h"

namespace lockstep::parallel {

// Micro-batches whose tensors are on the device at a time: one that is trained on, the next one,
// and one that is evaluated.
inline constexpr size_t kBatchSlots = 3;
inline constexpr size_t kTrainingSlots[] = {0, 1};
inline constexpr size_t kEvaluationSlot = 2;

// The places of one such micro-batch, of the same size; empty on the CPU.
struct BatchMemory {
  kernels::Workspace device;
  kernels::Workspace pinned;
};

// The parts of the two arenas, in the order of the plans' requests.
enum class DevicePart : size_t {
  kParameters,
  kCopies,
  kStashed,  // versions of the parameters before the latest one
  kStashedCopies,
  kGradients,
  kStates,  // the first of the optimizer's; without a state its place is empty
  kGathered = kStates + optim::kStatesMax,  // ShardMemory names these four
  kGatheredCopies,
  kUnitGradients,
  kTravelling,
  kStaging,      // of an exchange
  kFirstBuffer,  // of offloaded pieces
  kSecondBuffer,
  kMuon,  // matrices that are orthogonalised
  kActivations,
  kScratch,
  kGatheredRows,
  kOperations,
  kTables,
  kScalars,
  kMessages,  // between stages
  kData,      // of the micro-batches in flight
  kBatches,   // the first of the slots
};
enum class PinnedPart : size_t {
  kScalars,
  kFirstPiece,  // of the model's state (HostTransfer)
  kSecondPiece,
  kFirstCopiedPiece,  // of a share that is copied during a step (Composition::copy_share())
  kSecondCopiedPiece,
  kSample,
  kFarStates,  // the first of the optimizer's, where they are offloaded to page-locked memory
  kFarParameters = kFarStates + optim::kStatesMax,
  kFirstFarBuffer,  // of pieces between a GPU and a scratch file
  kSecondFarBuffer,
  kBatches,  // the first of the slots
};

enum class MemoryPlace : uint8_t {
  kPinned,  // page-locked memory of the process
  kHost,    // other memory of the process
  kShared,  // memory that the ranks of a node share, once per node
};
// Returns for example "page-locked".
const char* name_of(MemoryPlace place);

enum class MemoryBasis : uint8_t {
  kExact,
  kAtMost,  // an upper bound, which is rarely reached
  kEstimate,
};

// Memory outside of the arenas.
struct MemoryPart {
  MemoryPlace place = MemoryPlace::kHost;
  MemoryBasis basis = MemoryBasis::kExact;
  std::string name;
  uint64_t bytes = 0;

  bool operator==(const MemoryPart&) const = default;
};

// All memory that one rank takes. The Composition allocates the two arenas from these plans and
// nothing else, so they are exact to the byte, for training, evaluation, sampling and checkpoints.
struct MemoryPlan {
  kernels::ArenaPlan device;  // on a CPU: ordinary memory. Its reserve is an estimate
  kernels::ArenaPlan pinned;  // page-locked memory of the host; on a CPU: ordinary memory
  std::vector<MemoryPart> others;
  // Part of the scratch: the logits of one chunk of a transformer's rows; 0 for other families.
  int64_t logits_rows = 0;
  uint64_t logits_bytes = 0;
  // Bytes of the optimizer's states and of parameters outside of the device: part of `pinned`, or
  // in a scratch file.
  uint64_t offloaded_bytes = 0;
};

// Facts that only a machine with the device knows.
struct DeviceFindings {
  model::KernelChoice kernels = {};  // as prepared there; by default, our own
  // The sum over device_groups(); none: as much as NCCL takes, if there are other ranks.
  std::optional<uint64_t> collectives_bytes = {};
  int64_t data_rank = 0;           // the rank's place on the data axis
  bool is_stream_ordered = false;  // the group's DeviceTraits
};

// Returns how many groups of ranks exchange memory of the device. Each takes
// DeviceTraits::memory_bytes.
uint64_t device_groups(const ComposeOptions& options);

// Plans the memory of a rank, even without such a device. Pure, except that the CPU's plan depends
// on set_threads() and the CPU's instructions. The options' model must pass validate(). Returns
// plan_arena()'s errors.
Result<MemoryPlan> plan_memory(const ComposeOptions& options, const DeviceFindings& findings = {});

// Returns the size of a buffer for messages between stages, of the rank's largest one; 0 without a
// pipeline.
size_t message_bytes(const ComposeOptions& options);
// Returns how many micro-batches' data a rank keeps while they are in flight, and the size of each
// one's place; 0 if there is only one, which is read where the feed has it.
int64_t data_places(const ComposeOptions& options);
size_t data_bytes(const ComposeOptions& options);
// Returns the activations of a micro-batch that trains on one of the rank's chunks, rounded up to
// what the next one's memory can follow.
size_t activation_bytes(const ComposeOptions& options, const Stage& chunk,
                        const model::KernelChoice& kernels);

// Returns the copy of a rank's share of the state that is saved in the background (Snapshot).
MemoryPart snapshot_memory(const ComposeOptions& options);

// Returns how many values of the state a rank saves, of all kinds together: its share.
uint64_t largest_share(const ComposeOptions& options);

// Returns what the communicator takes for such a rank: messages of other ranks that it has not
// asked for yet, the memory that the ranks of a node share, and on GPUs the buffers of collectives
// through host memory, which serve where NCCL cannot.
std::vector<MemoryPart> collectives_memory(const ComposeOptions& options, int64_t ranks_per_node);

}  // namespace lockstep::parallel
