// The plan of a job, compared with what its worker processes allocate.
#include "agent/train/job_plan.h"

#include <gtest/gtest.h>

#include "agent/train/data/batch_loader.h"
#include "agent/train/memory_report.h"
#include "agent/train/weights/import_weights.h"
#include "tests/agent/train/worker_world.h"
#include "tests/kernels/cpu_levels.h"

namespace lockstep::train {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

TrainingJobSpec small_job() {
  TrainingJobSpec spec;
  spec.threadsPerProcess = 1;
  spec.train.emplace();
  spec.train->model = {.layers = 2, .width = 32, .heads = 2, .context = 16};
  spec.train->steps = 2;
  spec.train->batch = {.global = 8, .micro = 2};
  return spec;
}

TrainingJobSpec small_job_on_gpus() {
  TrainingJobSpec spec = small_job();
  spec.gpusPerNode = 1;
  return spec;
}

WorkerWorld::Options world_of(const TrainingJobSpec& spec) {
  return {.nodes = spec.nodes,
          .per_node = processes_per_node(spec),
          .train = *spec.train,
          .stores = false};
}

// Returns a number that rank 0 has logged, as name=number.
uint64_t logged(const WorkerWorld& world, const std::string& name) {
  const std::string log = world.log(0);
  const size_t at = log.find(" " + name + "=");
  EXPECT_NE(at, std::string::npos) << name << " in " << log;
  return at == std::string::npos ? 0 : std::stoull(log.substr(at + name.size() + 2));
}

struct Case {
  const char* name;
  void (*change)(TrainingJobSpec&);
};

TEST(JobPlan, IsWhatItsWorkersAllocate) {
  const Case cases[] = {{"a process", [](TrainingJobSpec&) {}},
                        {"two nodes", [](TrainingJobSpec& spec) { spec.nodes = 2; }},
                        {"two processes", [](TrainingJobSpec& spec) { spec.processesPerNode = 2; }},
                        {"bf16", [](TrainingJobSpec& spec) { spec.train->precision = "bf16"; }},
                        {"ops", [](TrainingJobSpec& spec) { spec.train->recompute = "ops"; }},
                        {"sgd", [](TrainingJobSpec& spec) { spec.train->optimizer.name = "sgd"; }},
                        {"momentum",
                         [](TrainingJobSpec& spec) {
                           spec.train->optimizer.name = "sgd";
                           spec.train->optimizer.momentum = 0.9;
                         }},
                        {"blocks",
                         [](TrainingJobSpec& spec) {
                           spec.train->recompute = "blocks";
                           spec.train->batch.micro = 0;
                         }},
                        {"a llama", [](TrainingJobSpec& spec) {
                           spec.train->model.family = "llama";
                           spec.train->model.kvHeads = 1;
                         }}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    TrainingJobSpec spec = small_job();
    each.change(spec);
    const kernels::ArenaPlan plan = plan_job(spec).value().memory.device;
    WorkerWorld world(world_of(spec));
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_EQ(logged(world, "parametersBytes"),
              kernels::bytes_of(plan, kernels::ArenaUse::kParameters));
    EXPECT_EQ(logged(world, "gradientsBytes"),
              kernels::bytes_of(plan, kernels::ArenaUse::kGradients));
    EXPECT_EQ(logged(world, "optimizerBytes"),
              kernels::bytes_of(plan, kernels::ArenaUse::kOptimizer));
    EXPECT_EQ(logged(world, "activationsBytes"),
              kernels::bytes_of(plan, kernels::ArenaUse::kActivations));
    EXPECT_EQ(logged(world, "workspaceBytes"),
              kernels::bytes_of(plan, kernels::ArenaUse::kWorkspace));
    EXPECT_EQ(logged(world, "totalBytes"), plan.bytes);
    EXPECT_EQ(logged(world, "pinnedBytes"), plan_job(spec).value().memory.pinned.bytes);
    const Holdings holdings = world.progress(0).holdings;
    EXPECT_EQ(holdings.parameters_bytes, logged(world, "parametersBytes"));
    EXPECT_EQ(holdings.gradients_bytes, logged(world, "gradientsBytes"));
    EXPECT_EQ(holdings.optimizer_bytes, logged(world, "optimizerBytes"));
    EXPECT_EQ(holdings.activations_bytes, logged(world, "activationsBytes"));
    EXPECT_EQ(holdings.sharding_ranks, 1);
  }
}

// Returns the options of a world of 2 nodes of 4 ranks, or the error.
Result<parallel::ComposeOptions> options_of(const StateSharing& sharing) {
  return compose_options(
      *small_job().train,
      {.mesh = {.data = 8}, .sharing = sharing, .ranks_per_node = 4, .micro_batch = 1});
}

TEST(ComposeOptions, CarryHowRanksShareTheState) {
  const parallel::ComposeOptions none = options_of({}).value();
  EXPECT_EQ(none.sharding, ShardingOptions{});
  EXPECT_EQ(none.offload, OffloadOptions{});
  EXPECT_EQ(none.exchange, Exchange::kAllReduce);
  const parallel::ComposeOptions all = options_of({.sharding = "parameters",
                                                   .shardingGroup = "node",
                                                   .reshardAfterForward = false,
                                                   .prefetch = false,
                                                   .gatherPrecision = "bf16",
                                                   .reducePrecision = "bf16",
                                                   .offload = "parameters",
                                                   .offloadPath = "/scratch"})
                                           .value();
  EXPECT_EQ(all.sharding, (ShardingOptions{.sharding = Sharding::kParameters,
                                           .ranks = 4,
                                           .reshard_after_forward = false,
                                           .prefetch = false,
                                           .gathers_bf16 = true,
                                           .reduces_bf16 = true}));
  EXPECT_EQ(all.offload, (OffloadOptions{.offload = Offload::kParameters, .path = "/scratch"}));
  EXPECT_EQ(options_of({.sharding = "gradients"}).value().sharding.ranks, 8);
  EXPECT_EQ(options_of({.exchange = "firstRank"}).value().exchange, Exchange::kFirstRank);
  EXPECT_EQ(options_of({.exchange = "host"}).value().exchange, Exchange::kHost);
}

TEST(ComposeOptions, NameWhatIsNotKnownAndWhatDoesNotDivide) {
  for (const auto& [sharing, word] : {std::pair(StateSharing{.sharding = "all"}, "\"all\""),
                                      std::pair(StateSharing{.offload = "disk"}, "\"disk\""),
                                      std::pair(StateSharing{.exchange = "ring"}, "\"ring\"")}) {
    const auto options = options_of(sharing);
    ASSERT_FALSE(options.ok()) << word;
    EXPECT_EQ(options.error().blame, Blame::kConfig);
    EXPECT_NE(options.error().message.find(word), std::string::npos) << options.error().message;
  }
  const auto uneven = compose_options(
      *small_job().train, {.mesh = {.data = 6},
                           .sharing = {.sharding = "optimizer", .shardingGroup = "node"},
                           .ranks_per_node = 4});
  ASSERT_FALSE(uneven.ok());
  EXPECT_EQ(uneven.error().blame, Blame::kConfig);
  EXPECT_EQ(uneven.error().message,
            "spec.parallelism.shardingGroup: node: 4 processes per node / tensor 1 does not divide "
            "the 6 data-parallel ranks, expected data");
}

TEST(ComposeOptions, OfAJobsPlanAreThoseOfItsSpec) {
  TrainingJobSpec spec = small_job();
  spec.nodes = 2;
  spec.processesPerNode = 2;
  spec.parallelism.sharding = "gradients";
  spec.parallelism.shardingGroup = "node";
  spec.parallelism.offload = "optimizer";
  const parallel::ComposeOptions options = plan_job(spec).value().options;
  EXPECT_EQ(options.sharding.sharding, Sharding::kGradients);
  EXPECT_EQ(options.sharding.ranks, 2);
  EXPECT_EQ(options.offload.offload, Offload::kOptimizer);
}

// The kernel's count of resident pages, as a large model takes more of them than a small one.
TEST(JobPlan, IsTheMemoryThatTheKernelCounts) {
  if (!std::string_view(LOCKSTEP_SANITIZERS).empty()) GTEST_SKIP() << "sanitizers take memory too";
  if (kernels::cpu_level() > kernels::CpuLevel::kAvx2) {
    GTEST_SKIP() << "oneDNN's own buffers were measured up to AVX2; the capped run measures them";
  }
  TrainingJobSpec small = small_job(), large = small_job();
  large.train->model = {.layers = 4, .width = 512, .heads = 8, .context = 64};
  uint64_t peaks[2] = {}, plans[2] = {};
  for (const int i : {0, 1}) {
    const TrainingJobSpec& spec = i == 0 ? small : large;
    plans[i] = plan_job(spec).value().node_bytes();
    WorkerWorld world(world_of(spec));
    ASSERT_NO_FATAL_FAILURE(world.run());
    peaks[i] = world.peak_bytes(0);
  }
  const auto planned = static_cast<double>(plans[1] - plans[0]);
  EXPECT_GT(planned, 200.0 * kMebibyte);
  EXPECT_NEAR(static_cast<double>(peaks[1] - peaks[0]), planned, 0.05 * planned);
  // The estimate of the program's own memory is not far off.
  EXPECT_NEAR(static_cast<double>(peaks[1]), static_cast<double>(plans[1]),
              0.05 * static_cast<double>(plans[1]) + 32.0 * kMebibyte);
}

TEST(JobPlan, CountsTheBatchesOfLoaderAndValidation) {
  TrainingJobSpec spec = small_job();
  constexpr uint64_t batch = 2 * 2 * 16 * 4;  // tokens and targets of two rows
  const uint64_t without = plan_job(spec).value().node_bytes();
  spec.train->data.validationFraction = 0.1;
  EXPECT_EQ(plan_job(spec).value().node_bytes(), without + batch);
  spec.processesPerNode = 2;
  EXPECT_EQ(plan_job(spec).value().node_bytes(), 2 * (without + batch));
}

TEST(JobPlan, NamesTheImportOfWeightsButDoesNotCountIt) {
  TrainingJobSpec spec = small_job();
  const JobPlan without = plan_job(spec).value();
  spec.train->model.weights.path = "weights.safetensors";
  const JobPlan with = plan_job(spec).value();
  EXPECT_EQ(with.node_bytes(), without.node_bytes());
  EXPECT_EQ(with.memory.others.size(), without.memory.others.size() + 1);
  EXPECT_EQ(with.memory.others.back().bytes,
            import_bytes_max(std::get<ModelConfig>(with.options.design)));
  spec.train->model.width = 1024;  // whose hidden layer is the largest matrix: 1024 x 4096
  EXPECT_EQ(import_bytes_max(model_config(*spec.train)), 2 * 4 * uint64_t{1024 * 4096} + kMebibyte);
}

TEST(JobPlan, OfAGpuThatSeveralRanksShareHasAllOfThem) {
  TrainingJobSpec spec = small_job_on_gpus();
  const JobPlan alone = plan_job(spec).value();
  EXPECT_EQ(alone.ranks_per_gpu(), 1);
  EXPECT_EQ(alone.gpu_bytes(), alone.memory.device.bytes + alone.memory.device.reserve);
  spec.processesPerNode = 2;
  const JobPlan two = plan_job(spec).value();
  EXPECT_EQ(two.ranks_per_gpu(), 2);
  EXPECT_EQ(two.gpu_bytes(), 2 * (two.memory.device.bytes + two.memory.device.reserve));
  EXPECT_EQ(plan_job(small_job()).value().gpu_bytes(), 0u);
}

TEST(JobPlan, SaysIfItLacksTheWorkspaceOfCudnn) {
  TrainingJobSpec spec = small_job_on_gpus();
  spec.train->precision = "bf16";
  EXPECT_FALSE(plan_job(spec).value().lacks_cudnn);
  spec.train->attention = "auto";
  const JobPlan plan = plan_job(spec).value();
  EXPECT_EQ(plan.lacks_cudnn, plan.options.attention == kernels::AttentionBy::kOwn);
  EXPECT_EQ(memory_report(plan, {}).find("cannot tell the workspace") != std::string::npos,
            plan.lacks_cudnn);
  spec.train->precision = "fp32";  // for which cuDNN's is not used
  EXPECT_FALSE(plan_job(spec).value().lacks_cudnn);
}

TEST(JobPlan, RefusesABatchThatCannotBeSplit) {
  TrainingJobSpec spec = small_job();
  spec.nodes = 3;
  const Result<JobPlan> plan = plan_job(spec);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.error().message.find("spec.train.batch.global"), std::string::npos);
}

TEST(MemoryReport, SaysWhatFitsAndHowMuchIsMissing) {
  const JobPlan plan = plan_job(small_job_on_gpus()).value();
  const uint64_t needed = plan.gpu_bytes();
  EXPECT_TRUE(fits(plan, {"exactly", needed}));
  EXPECT_FALSE(fits(plan, {"less", needed - 1}));
  EXPECT_EQ(
      fit_text(plan, {"exactly", needed}).find("exactly: fits, 0 bytes to spare; the largest "),
      0u);
  EXPECT_EQ(fit_text(plan, {"less", needed - 1}).find("less: does not fit, 1 byte short; "), 0u);
  EXPECT_NE(fit_text(plan, {"less", needed - 1})
                .find("spec.train.batch.micro is 1 with recompute: "
                      "none"),
            std::string::npos)
      << fit_text(plan, {"less", needed - 1});
}

TEST(MemoryReport, OfAJobOnCpusCountsAllNodesOfAMachine) {
  TrainingJobSpec spec = small_job();
  spec.nodes = 2;
  const JobPlan plan = plan_job(spec).value();
  EXPECT_TRUE(fits(plan, {"a machine for each", plan.node_bytes()}));
  EXPECT_FALSE(fits(plan, {"one for both", 2 * plan.node_bytes() - 1, 2}));
  EXPECT_TRUE(fits(plan, {"one for both", 2 * plan.node_bytes(), 2}));
  const std::vector<MemoryLimit> here = limits_here(plan);
  ASSERT_EQ(here.size(), 1u);
  EXPECT_EQ(here[0].nodes, 2);
  EXPECT_EQ(here[0].bytes, kernels::describe({})->memory_bytes);
}

TEST(MemoryReport, HasEveryPartWithItsBytes) {
  TrainingJobSpec spec = small_job_on_gpus();
  spec.nodes = 2;
  spec.train->precision = "bf16";
  const JobPlan plan = plan_job(spec).value();
  const std::string report = memory_report(plan, {{"1 GB", 1'000'000'000}});
  for (const kernels::ArenaPlan* arena : {&plan.memory.device, &plan.memory.pinned}) {
    for (const kernels::ArenaPart& part : arena->parts) {
      if (part.bytes == 0) continue;
      EXPECT_NE(report.find(std::string(name_of(part.use)) + ": " + part.name), std::string::npos);
      EXPECT_NE(report.find(" " + std::to_string(part.bytes) + " bytes"), std::string::npos);
    }
  }
  for (const parallel::MemoryPart& part : plan.memory.others) {
    EXPECT_NE(report.find(part.name), std::string::npos) << part.name;
    EXPECT_NE(report.find(" " + std::to_string(part.bytes) + " bytes"), std::string::npos);
  }
  EXPECT_NE(report.find("\n1 GB: does not fit, "), std::string::npos) << report;
  EXPECT_EQ(memory_line(plan).find("each of 2 processes takes "), 0u) << memory_line(plan);
}

}  // namespace
}  // namespace lockstep::train
