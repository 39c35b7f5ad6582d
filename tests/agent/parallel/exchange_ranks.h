#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/exchange_memory.h"
#include "agent/parallel/gradient_exchange.h"
#include "agent/parallel/rank_groups.h"

// Ranks that exchange drawn gradients and train nothing else.
namespace lockstep::parallel {

struct ExchangeSetup {
  Exchange exchange = Exchange::kAllReduce;
  optim::OptimizerOptions optimizer = {};
  bool has_copies = false;      // bf16, for products
  double clip_norm = 0.5;       // below the norms that appear
  int64_t bucket_bytes = 2048;  // several buckets
  SharedSegment::Place shared = {};
  kernels::DeviceType device = kernels::DeviceType::kCpu;
};

// The results of a rank's steps.
struct Exchanged {
  std::vector<double> norms;
  std::vector<float> parameters;
  std::vector<kernels::Bf16> copies;

  bool operator==(const Exchanged& other) const;
};

ModelDesign exchanged_model();

// One rank with its memory.
class ExchangeRank {
 public:
  ExchangeRank(const ExchangeSetup& setup, comm::Communicator& world);
  ~ExchangeRank();

  // Gives the gradients of two micro-batches to the exchange. `extra` is added to the first one's
  // first element.
  Status backward(int64_t step, float extra = 0);
  // Does what comes after backward: update() is a part of it.
  Status finish(int64_t step);
  Status update(int64_t step);
  Status step(int64_t step, float extra = 0);
  // The parts of backward(). make() draws the gradients of a micro-batch; add() gives those of the
  // parameters [first, last] to the exchange, from the last one down.
  Status make(int64_t micro_batch, float extra);
  Status add(int64_t first, int64_t last);
  Exchanged result();

  const ParameterArena& arena() const { return arena_; }
  uint64_t arena_bytes() const { return float_bytes(arena_.count); }
  GradientExchange& exchange() { return *exchange_; }
  kernels::Stream& compute() { return compute_; }
  const kernels::OpTable& ops() const { return *ops_; }

 private:
  struct Memory;
  kernels::Device device() const {
    return {setup_.device, setup_.device == kernels::DeviceType::kCpu ? 0 : world_.rank()};
  }
  void write_parameters();

  ExchangeSetup setup_;
  comm::Communicator& world_;
  Mesh mesh_;
  ParameterArena arena_;
  RankGroups groups_;
  const kernels::OpTable* ops_;
  kernels::Stream compute_;
  kernels::Stream communication_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<GradientExchange> exchange_;
  std::vector<double> norms_;
};

// Trains `steps` steps on a rank.
Exchanged exchanged(const ExchangeSetup& setup, comm::Communicator& world, int64_t steps);

// Relative L2 distance.
double distance(const std::vector<float>& a, const std::vector<float>& b);

// A memfd, as an agent makes one for the ranks of its node.
class SharedFile {
 public:
  SharedFile();
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace lockstep::parallel
