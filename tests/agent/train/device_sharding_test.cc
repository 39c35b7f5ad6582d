// Every way to share the state trains the same model on CUDA devices, emulated or real,
// whichever stream runs first.
#include <gtest/gtest.h>

#include <mutex>

#include "tests/agent/parallel/kept_state.h"
#include "tests/agent/train/device_ranks.h"

namespace lockstep::train {
namespace {

const MlpConfig kTable{.inputs = 6, .hidden = {48, 40, 48}, .outputs = 3};
constexpr ModelConfig kTied{
    .layers = 2, .width = 16, .heads = 2, .context = kContext, .vocabulary = 64};

struct Way {
  std::string name;
  ShardingOptions sharding = {};
  OffloadOptions offload = {};
};

// Returns the ways in which groups of `group` ranks share the state. Files are in the folder.
std::vector<Way> ways(int64_t group, const std::string& folder) {
  std::vector<Way> all;
  for (const Sharding sharding :
       {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
    const ShardingOptions options{.sharding = sharding,
                                  .ranks = sharding == Sharding::kNone ? 1 : group};
    const Offload offload =
        sharding == Sharding::kParameters ? Offload::kParameters : Offload::kOptimizer;
    const std::string name(sharding_name(sharding));
    all.push_back({name, options});
    all.push_back({name + " in page-locked memory", options, {.offload = offload}});
    // A GPU's parameters are not offloaded to a file.
    all.push_back(
        {name + ", states in a file", options, {.offload = Offload::kOptimizer, .path = folder}});
  }
  const ShardingOptions kept{.sharding = Sharding::kParameters,
                             .ranks = group,
                             .reshard_after_forward = false,
                             .prefetch = false};
  all.push_back({"kept parameters", kept});
  return all;
}

// The results of the first rank, and what all ranks saved.
struct Shared {
  std::vector<double> losses;
  std::vector<double> norms;
  double validation = 0;  // of tables
  parallel::KeptState state;
};

Shared train(TrainingSetup setup, GradientPath path) {
  Shared shared{.losses = {}, .norms = {}, .state = parallel::KeptState(setup.design)};
  std::mutex one_at_a_time;
  on_device_ranks(setup.ranks, path, [&](comm::Communicator& world, kernels::Device device) {
    TrainingSetup own = setup;
    own.device = device;
    const bool is_table = transformer_of(own.design) == nullptr;
    Training training(own, world);
    training.train(kFewSteps);
    const double validation = is_table ? training.validate() : 0;
    training.model().reserve_snapshot();
    ASSERT_TRUE(training.model().take_snapshot().ok());
    const std::lock_guard lock(one_at_a_time);
    shared.state.add(training.model().snapshot());
    if (world.rank() != 0) return;
    shared.losses = training.losses;
    shared.norms = training.norms;
    shared.validation = validation;
  });
  EXPECT_TRUE(shared.state.is_whole());
  return shared;
}

void expect_same_bits(const Shared& a, const Shared& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.validation, b.validation);
  EXPECT_TRUE(a.state.tensors() == b.state.tensors());
}

struct World {
  const char* name;
  int64_t ranks;
  GradientPath path;
  kernels::Precision precision;
};

std::string name_of_world(const testing::TestParamInfo<World>& info) {
  return info.param.name;
}

class DeviceSharding : public testing::TestWithParam<World> {
 protected:
  void SetUp() override {
    if (!can_exchange(GetParam().path, GetParam().ranks)) {
      GTEST_SKIP() << "NCCL takes no two ranks on one GPU";
    }
  }
  TrainingSetup setup(const ModelDesign& design, int64_t micro_batches) const {
    return {.device = {},
            .precision = GetParam().precision,
            .design = design,
            .accumulation = micro_batches,
            .ranks = GetParam().ranks,
            .rounding_seed = 5};
  }
  // Each run has its own order of streams.
  Shared run(TrainingSetup setup, const Way& way) {
    setup.sharding = way.sharding;
    setup.offload = way.offload;
    vary_order(++seed_);
    return train(setup, GetParam().path);
  }
  const std::string& folder() const { return folder_.path(); }
  std::vector<Way> ways() const { return train::ways(GetParam().ranks, folder()); }

 private:
  const TemporaryFolder folder_;
  uint64_t seed_ = 0;
};

TEST_P(DeviceSharding, TrainsTheSameBitsInEveryWay) {
  const TrainingSetup setup = this->setup(kTable, 1);
  const Shared none = run(setup, {});
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    expect_same_bits(run(setup, way), none);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, DeviceSharding,
    testing::Values(World{"OneRank", 1, GradientPath::kHostMemory, kernels::Precision::kBf16},
                    World{"OneRankByNccl", 1, GradientPath::kNccl, kernels::Precision::kF32},
                    World{"TwoRanksByHostMemory", 2, GradientPath::kHostMemory,
                          kernels::Precision::kF32},
                    World{"TwoRanksByNccl", 2, GradientPath::kNccl, kernels::Precision::kBf16}),
    name_of_world);

class DeviceAccumulation : public DeviceSharding {};

TEST_P(DeviceAccumulation, AddsUpMicroBatchesInEveryWay) {
  const TrainingSetup setup = this->setup(kTable, 2);
  const Shared none = run(setup, {});
  for (const Way& way : ways()) {
    if (way.offload.offload != Offload::kNone) continue;  // which only concerns updates
    SCOPED_TRACE(way.name);
    const Shared shared = run(setup, way);
    EXPECT_LT(distance(setup.design, none.state, shared.state), 1e-6);
    expect_near(shared.losses, none.losses, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, DeviceAccumulation,
    testing::Values(World{"OneRank", 1, GradientPath::kHostMemory, kernels::Precision::kF32},
                    World{"TwoRanksByHostMemory", 2, GradientPath::kHostMemory,
                          kernels::Precision::kBf16},
                    World{"TwoRanksByNccl", 2, GradientPath::kNccl, kernels::Precision::kF32}),
    name_of_world);

class DevicePair : public DeviceSharding {};

// The embedding is used at both ends of the model.
TEST_P(DevicePair, TrainsATiedTransformer) {
  const TrainingSetup setup = this->setup(kTied, 1);
  const Shared none = run(setup, {});
  for (const Sharding sharding : {Sharding::kGradients, Sharding::kParameters}) {
    SCOPED_TRACE(sharding_name(sharding));
    expect_same_bits(run(setup, {"", {.sharding = sharding, .ranks = setup.ranks}}), none);
  }
}

TEST_P(DevicePair, ReducesBf16GradientsToTheSameBits) {
  const TrainingSetup setup = this->setup(kTable, 1);
  const Shared exact = run(setup, {});
  const Shared none = run(setup, {"", {.reduces_bf16 = true}});
  EXPECT_NE(none.losses, exact.losses);
  expect_near(none.losses, exact.losses, 1e-2);
  for (const Sharding sharding :
       {Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
    SCOPED_TRACE(sharding_name(sharding));
    expect_same_bits(
        run(setup, {"", {.sharding = sharding, .ranks = setup.ranks, .reduces_bf16 = true}}), none);
  }
}

TEST_P(DevicePair, GathersBf16ParametersToTheSameBits) {
  const TrainingSetup setup = this->setup(kTable, 1);
  ShardingOptions gathers{
      .sharding = Sharding::kParameters, .ranks = setup.ranks, .gathers_bf16 = true};
  const Shared gathered = run(setup, {"", gathers});
  expect_near(gathered.losses, run(setup, {}).losses, 1e-2);
  expect_same_bits(run(setup, {"", gathers, {.offload = Offload::kParameters}}), gathered);
  gathers.reshard_after_forward = false;
  gathers.prefetch = false;
  expect_same_bits(run(setup, {"", gathers}), gathered);
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, DevicePair,
    testing::Values(World{"ByHostMemory", 2, GradientPath::kHostMemory, kernels::Precision::kF32},
                    World{"ByNccl", 2, GradientPath::kNccl, kernels::Precision::kBf16}),
    name_of_world);

}  // namespace
}  // namespace lockstep::train
