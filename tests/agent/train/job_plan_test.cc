// The plan of a job, compared with what its worker processes allocate.
#include "agent/train/job_plan.h"

#include <gtest/gtest.h>

#include "agent/comm/gpu/nccl_backend.h"
#include "agent/parallel/exchange_memory.h"
#include "agent/train/checkpoint/memory_states.h"
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
          .stores = false,
          .change = [sharing = StateSharing(spec.parallelism)](WorkerConfig& config) {
            static_cast<StateSharing&>(config.world.layout) = sharing;
            config.hash = world_hash(config.world);
          }};
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
  const Case cases[] = {
      {"a process", [](TrainingJobSpec&) {}},
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
      {"a llama",
       [](TrainingJobSpec& spec) {
         spec.train->model.family = "llama";
         spec.train->model.kvHeads = 1;
       }},
      {"a bert", [](TrainingJobSpec& spec) { spec.train->model.family = "bert"; }},
      {"sharded states in a file",
       [](TrainingJobSpec& spec) {
         spec.processesPerNode = 2;
         spec.parallelism.sharding = "optimizer";
         spec.parallelism.offload = "optimizer";
       }},
      {"sharded parameters in a file",
       [](TrainingJobSpec& spec) {
         spec.processesPerNode = 2;
         spec.parallelism.sharding = "parameters";
         spec.parallelism.offload = "parameters";
       }},
      {"first rank", [](TrainingJobSpec& spec) {
         spec.processesPerNode = 2;
         spec.parallelism.exchange = "firstRank";
       }}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    TrainingJobSpec spec = small_job();
    each.change(spec);
    const JobPlan job = plan_job(spec).value();
    const kernels::ArenaPlan plan = job.memory.device;
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
    EXPECT_EQ(logged(world, "gatheredBytes"),
              kernels::bytes_of(plan, kernels::ArenaUse::kGathered));
    EXPECT_EQ(logged(world, "totalBytes"), plan.bytes);
    EXPECT_EQ(logged(world, "pinnedBytes"), job.memory.pinned.bytes);
    const uint64_t offloaded = logged(world, "offloadedBytes");
    EXPECT_EQ(offloaded, job.memory.offloaded_bytes);
    EXPECT_EQ(offloaded > 0, spec.parallelism.offload != "none");
    const std::string scratch = " " + std::to_string(offloaded) + " bytes";
    const std::string report = memory_report(job, {});
    const size_t row = report.find("scratch files of a process, in $TMPDIR or /tmp:\n");
    ASSERT_EQ(row != std::string::npos, offloaded > 0);
    EXPECT_TRUE(offloaded == 0 || report.find(scratch, row) != std::string::npos) << report;
    const Holdings holdings = world.progress(0).holdings;
    EXPECT_EQ(holdings.parameters_bytes, logged(world, "parametersBytes"));
    EXPECT_EQ(holdings.gradients_bytes, logged(world, "gradientsBytes"));
    EXPECT_EQ(holdings.optimizer_bytes, logged(world, "optimizerBytes"));
    EXPECT_EQ(holdings.activations_bytes, logged(world, "activationsBytes"));
    EXPECT_EQ(holdings.sharding_ranks, job.options.sharding.ranks);
  }
}

TEST(JobPlan, OfServersIsWhatWorkersAllocateAndServersHold) {
  for (const char* consistency : {"synchronous", "asynchronous"}) {
    SCOPED_TRACE(consistency);
    TrainingJobSpec spec = small_job();
    spec.nodes = 2;
    spec.parameterServers = ParameterServersSpec{.nodes = 1, .consistency = consistency};
    spec.train->optimizer.clipNorm = 0;
    const JobPlan job = plan_job(spec).value();
    WorkerWorld::Options options = world_of(spec);
    options.servers = spec.parameterServers;
    options.change = {};
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_EQ(logged(world, "totalBytes"), job.memory.device.bytes);
    EXPECT_EQ(logged(world, "parametersBytes"), logged(world, "gradientsBytes"));
    EXPECT_EQ(kernels::bytes_of(job.memory.device, kernels::ArenaUse::kOptimizer), 0u);
    uint64_t held = 0;  // parameters, two moments, and sums
    for (const parallel::MemoryPart& part : job.server) {
      if (part.basis == parallel::MemoryBasis::kExact) held += part.bytes;
    }
    const auto parameters = static_cast<uint64_t>(parameter_count(job.options.design)) * 4;
    EXPECT_EQ(held, parameters * (spec.parameterServers->consistency == "synchronous" ? 4 : 3));
    EXPECT_EQ(world.progress(2).holdings.parameters_bytes, held);
    const std::string report = memory_report(job, limits_here(job));
    EXPECT_NE(report.find("memory of the server that holds the most:\n"), std::string::npos);
    EXPECT_NE(report.find("and 1 server up to "), std::string::npos) << report;
    EXPECT_NE(report.find(" with all 3 nodes: fits"), std::string::npos) << report;
  }
}

TEST(JobPlan, OfServersCountsWhatGradientsInFewerBitsLose) {
  const auto others = [](const char* precision) {
    TrainingJobSpec spec = small_job();
    spec.nodes = 2;
    spec.parameterServers = ParameterServersSpec{.nodes = 1, .pushPrecision = precision};
    spec.train->optimizer.clipNorm = 0;
    uint64_t bytes = 0;
    for (const parallel::MemoryPart& part : plan_job(spec).value().memory.others) {
      if (part.basis == parallel::MemoryBasis::kExact) bytes += part.bytes;
    }
    return bytes;
  };
  const auto parameters =
      static_cast<uint64_t>(parameter_count(plan_job(small_job()).value().options.design)) * 4;
  EXPECT_EQ(others("int8"), others("fp32") + parameters);
}

// Running statistics have no optimizer's states.
TEST(JobPlan, OfServersKnowsWhichTensorsHaveStates) {
  TrainingJobSpec spec;
  spec.nodes = 2;
  spec.parameterServers = ParameterServersSpec{.nodes = 1};
  spec.train.emplace();
  spec.train->model = {.preset = "resnet20", .outputs = 10, .batchNorm = "local"};
  spec.train->optimizer.clipNorm = 0;
  const JobPlan job = plan_job(spec).value();
  uint64_t statistics = 0;
  for (const Parameter& parameter : parameter_table(job.options.design)) {
    if (parameter.is_statistic) statistics += static_cast<uint64_t>(parameter.count());
  }
  ASSERT_GT(statistics, 0u);
  uint64_t held = 0;
  for (const parallel::MemoryPart& part : job.server) {
    if (part.basis == parallel::MemoryBasis::kExact) held += part.bytes;
  }
  const auto parameters = static_cast<uint64_t>(parameter_count(job.options.design));
  EXPECT_EQ(held, 4 * (4 * parameters - 2 * statistics)) << "values, two moments, and sums";
}

TEST(JobPlan, OfServersCountsTheirCopies) {
  const auto held = [](int64_t copies) {
    TrainingJobSpec spec = small_job();
    spec.nodes = 2;
    spec.parameterServers = ParameterServersSpec{.nodes = 3, .copies = copies};
    spec.train->optimizer.clipNorm = 0;
    const JobPlan job = plan_job(spec).value();
    uint64_t bytes = 0;
    for (const parallel::MemoryPart& part : job.server) {
      if (part.basis == parallel::MemoryBasis::kExact) bytes += part.bytes;
    }
    return bytes;
  };
  const auto parameters =
      static_cast<uint64_t>(parameter_count(plan_job(small_job()).value().options.design)) * 4;
  EXPECT_LT(held(0), held(1));
  EXPECT_EQ(held(2), 4 * parameters) << "each server holds all";
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
  EXPECT_FALSE(none.sequence_parallel);
  EXPECT_TRUE(options_of({.sequenceParallel = true}).value().sequence_parallel);
  EXPECT_FALSE(none.transfer);
  EXPECT_EQ(options_of({.transferPrecision = "fp32"}).value().transfer, kernels::DType::kF32);
  EXPECT_EQ(options_of({.transferPrecision = "bf16"}).value().transfer, kernels::DType::kBf16);
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

TEST(ComposeOptions, WithGpipeBackwardRecomputesUnlessTheJobSaysOtherwise) {
  TrainingJobSpec spec = small_job();
  spec.nodes = 2;
  spec.processesPerNode = 1;
  spec.parallelism.pipeline = 2;
  spec.train->model.layers = 2;
  spec.train->batch.micro = 1;
  const auto recompute = [&] { return plan_job(spec).value().options.recompute; };
  EXPECT_EQ(recompute(), Recompute::kNone);
  spec.parallelism.pipelineSchedule = "gpipe";
  EXPECT_EQ(recompute(), Recompute::kBlocks);
  spec.train->recompute = "none";
  EXPECT_EQ(recompute(), Recompute::kNone);
}

TEST(ComposeOptions, ANodeWithSeveralStagesDividesTheStateOfEach) {
  const auto ranks = [](const Mesh& mesh) {
    const auto options = compose_options(
        *small_job().train, {.mesh = mesh,
                             .sharing = {.sharding = "optimizer", .shardingGroup = "node"},
                             .schedule = "1f1b",
                             .ranks_per_node = 4});
    return options.ok() ? options->sharding.ranks : 0;
  };
  EXPECT_EQ(ranks({.pipeline = 2, .data = 2}), 2);
  EXPECT_EQ(ranks({.pipeline = 2, .data = 4}), 4);
  EXPECT_EQ(ranks({.pipeline = 2, .data = 2, .tensor = 2}), 2);
  EXPECT_EQ(ranks({.pipeline = 4, .data = 3}), 0) << "a stage is on two nodes";
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

// The first rank alone has states. With NCCL it receives a bucket of gradients; ranks that share a
// GPU do without NCCL.
TEST(JobPlan, IsThatOfTheFirstRankWhereItTakesTheMost) {
  TrainingJobSpec spec = small_job_on_gpus();
  spec.nodes = 2;
  spec.parallelism.exchange = "firstRank";
  const auto arriving = [](const JobPlan& plan) {
    return plan.memory.device.parts[static_cast<size_t>(parallel::DevicePart::kStaging)].bytes;
  };
  const JobPlan alone = plan_job(spec).value();
  const auto count = parameter_arena(alone.options.design, whole_model(alone.options.design)).count;
  EXPECT_EQ(arriving(alone), parallel::float_bytes(count)) << "all of it is one bucket";
  EXPECT_EQ(kernels::bytes_of(alone.memory.device, kernels::ArenaUse::kOptimizer),
            2 * parallel::float_bytes(count));
  EXPECT_NE(memory_report(alone, {}).find("These are the bytes of rank 0."), std::string::npos);
  EXPECT_EQ(memory_line(alone).find("rank 0 takes the most of 2 processes, "), 0u);
  spec.nodes = 1;
  spec.processesPerNode = 2;
  const JobPlan sharing = plan_job(spec).value();
  EXPECT_EQ(arriving(sharing), 0u);
  EXPECT_EQ(alone.memory.device.reserve - sharing.memory.device.reserve, comm::kNcclMemoryBytes);
  spec.parallelism.exchange = "allReduce";
  EXPECT_EQ(memory_report(plan_job(spec).value(), {}).find("rank 0"), std::string::npos);
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

// A convolutional network takes cuDNN's convolutions wherever they are.
TEST(JobPlan, SaysIfItLacksTheWorkspaceOfCudnnsConvolutions) {
  TrainingJobSpec spec = small_job_on_gpus();
  spec.train->model = {.preset = "resnet20", .outputs = 10};
  const JobPlan plan = plan_job(spec).value();
  EXPECT_EQ(plan.lacks_cudnn, plan.options.convolutions == kernels::Conv2dBy::kOwn);
  const std::string report = memory_report(plan, {});
  EXPECT_NE(report.find(plan.lacks_cudnn ? "; convolutions: own, as this machine cannot tell the "
                                           "workspace of cuDNN's"
                                         : "; convolutions: cudnn"),
            std::string::npos)
      << report;
  spec.gpusPerNode = 0;
  EXPECT_EQ(memory_report(plan_job(spec).value(), {}).find("convolutions"), std::string::npos);
}

TEST(JobPlan, CountsTheStatesInMemoryAndThoseOfAnotherNode) {
  TrainingJobSpec spec = small_job();
  spec.nodes = 2;
  const uint64_t without = plan_job(spec).value().node_bytes();
  spec.checkpoint.memory.emplace();
  const JobPlan own = plan_job(spec).value();
  const uint64_t states = MemoryStates::bytes(parallel::largest_share(own.options));
  EXPECT_EQ(own.node_bytes() - without, states);
  spec.checkpoint.memory->copies = 1;
  EXPECT_EQ(plan_job(spec).value().node_bytes() - without, 2 * states);
}

TEST(JobPlan, RefusesABatchThatCannotBeSplit) {
  TrainingJobSpec spec = small_job();
  spec.nodes = spec.train->batch.global + 1;
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

TEST(MemoryReport, OfAPipelineSaysHowLongStagesWait) {
  TrainingJobSpec spec = small_job();
  spec.nodes = 4;
  spec.processesPerNode = 1;
  spec.parallelism.pipeline = 4;
  spec.train->model.layers = 4;
  spec.train->batch = {.global = 16, .micro = 1};
  EXPECT_NE(memory_report(plan_job(spec).value(), {})
                .find("4 stages, 1f1b: 16 micro-batches of a step pass through them, and a stage "
                      "waits 15.8 % of the time\n"),
            std::string::npos);
  spec.parallelism.pipelineSchedule = "interleaved";
  spec.parallelism.virtualStages = 2;
  spec.train->model.layers = 8;
  EXPECT_NE(memory_report(plan_job(spec).value(), {})
                .find("4 stages of 2 chunks each, interleaved: 16 micro-batches of a step pass "
                      "through them, and a stage waits 8.6 % of the time\n"),
            std::string::npos);
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
