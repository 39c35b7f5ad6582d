#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/compose.h"
#include "agent/train/train_step.h"
#include "agent/train/validator.h"
#include "common/base/clock.h"
#include "tests/agent/train/temporary_folder.h"

// Trainings of tiny models on devices that the CPU plays, beside the same on the CPU.
namespace lockstep {

inline constexpr Device kEmulated{DeviceType::kCuda, 0};
inline constexpr int64_t kTinyContext = 8;
inline constexpr int64_t kTinyMicroBatch = 2;
inline constexpr ModelConfig kTinyGpt{2, 32, 2, kTinyContext, 64};
inline constexpr ModelConfig kTinyLlama{.layers = 2,
                                        .width = 32,
                                        .heads = 4,
                                        .context = kTinyContext,
                                        .vocabulary = 64,
                                        .family = Family::kLlama,
                                        .hidden = 88,
                                        .tied = false,
                                        .kv_heads = 2};

struct TrainingSetup {
  Device device;
  Precision precision = Precision::kF32;
  Recompute recompute = Recompute::kNone;
  ModelConfig config = kTinyGpt;
  int64_t accumulation = 2;
  int64_t ranks = 1;
};

// What came of the steps, on one rank.
struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> state;  // parameters and both moments, at the end

  bool operator==(const Trained&) const = default;
};

// One rank with all that it trains with: the same data and the same beginning for every setup. The
// world outlives it.
class Training {
 public:
  Training(const TrainingSetup& setup, Communicator& world);

  // Fails the test where a step does.
  void train(int64_t steps);
  double validate();
  std::vector<int32_t> write_on();
  std::vector<float> state();
  Composition& model() { return *model_; }

  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<StepSeconds> seconds;

 private:
  Communicator& world_;
  TemporaryFolder folder_;
  BatchShape batch_;
  TokenSource source_;
  DataSplit split_;
  std::unique_ptr<Composition> model_;
  BatchLoader loader_;
  ExitReason reason_;
  SystemClock clock_;
};

// A rank alone.
std::unique_ptr<Communicator> lone_world();

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

void expect_near(const std::vector<double>& ours, const std::vector<double>& theirs,
                 double tolerance);

}  // namespace lockstep
