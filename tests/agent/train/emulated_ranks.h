#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "agent/comm/communicator.h"
#include "tests/agent/train/training.h"

// Training with several ranks on emulated CUDA devices.
namespace lockstep::train {

// The results of the steps on one rank.
struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> state;  // parameters and both moments, at the end

  bool operator==(const Trained&) const = default;
};

// How ranks, which are threads, exchange gradients.
enum class GradientPath : uint8_t {
  kCpu,         // everything on the CPU
  kHostMemory,  // one emulated device per rank, gradients through host memory
  kNccl,        // the same, with a fake NCCL on the devices' streams
};
// Calls body(communicator, device) on one thread per rank. Everything is released when it returns.
void on_emulated_ranks(int64_t ranks, GradientPath path,
                       const std::function<void(comm::Communicator&, kernels::Device)>& body);
// Returns every rank's results. `path` determines the device of `setup`.
std::vector<Trained> train_ranks(const TrainingSetup& setup, GradientPath path, int64_t steps);

}  // namespace lockstep::train
