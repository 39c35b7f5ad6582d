#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "agent/comm/communicator.h"
#include "tests/agent/train/training.h"

// Trainings of several ranks on devices that the CPU plays.
namespace lockstep {

// What came of the steps, on one rank.
struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> state;  // parameters and both moments, at the end

  bool operator==(const Trained&) const = default;
};

// Ranks as threads, on communicators that serve their devices' memory.
enum class GradientPath : uint8_t {
  kCpu,         // everything on the CPU
  kHostMemory,  // one emulated device for each rank, gradients by way of host memory
  kNccl,        // the same, by a fake NCCL on the devices' streams
};
// Calls body(communicator, device) on a thread for every rank; all of it is gone when it returns.
void on_emulated_ranks(int64_t ranks, GradientPath path,
                       const std::function<void(Communicator&, Device)>& body);
// Of every rank. `setup`'s device is chosen by the path.
std::vector<Trained> train_ranks(const TrainingSetup& setup, GradientPath path, int64_t steps);

}  // namespace lockstep
