#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "agent/comm/communicator.h"
#include "tests/agent/train/training.h"

// Training with several ranks, which are threads, on CUDA devices. Two implementations:
// device_ranks_emulated.cc, with an emulated device for each rank, and device_ranks_gpu.cc, with
// ranks that share this machine's first GPU.
namespace lockstep::train {

// The results of the steps on one rank.
struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> state;  // parameters and both moments, at the end

  bool operator==(const Trained&) const = default;
};

// How ranks exchange gradients.
enum class GradientPath : uint8_t {
  kCpu,         // everything on the CPU
  kHostMemory,  // a device for each rank, gradients through host memory
  kNccl,        // the same, with NCCL on the devices' streams; a fake one if they are emulated
};

// Returns whether ranks can exchange gradients in this way: NCCL takes no two ranks on one GPU.
bool can_exchange(GradientPath path, int64_t ranks);

// Sets the seed of the order in which emulated devices run what is issued; a GPU has its own order.
void vary_order(uint64_t seed);

// Calls body(communicator, device) on one thread per rank. Everything is released when it returns.
void on_device_ranks(int64_t ranks, GradientPath path,
                     const std::function<void(comm::Communicator&, kernels::Device)>& body);
// Returns every rank's results. `path` determines the device of `setup`.
std::vector<Trained> train_ranks(const TrainingSetup& setup, GradientPath path, int64_t steps);

}  // namespace lockstep::train
