// PipeDream on ranks computes what a sequential program with the same delays does.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "agent/model/make_model.h"
#include "agent/model/passes.h"
#include "agent/optim/optimizer.h"
#include "common/layout/pipedream_schedule.h"
#include "kernels/ops/op_table.h"
#include "tests/agent/model/initialise_arena.h"
#include "tests/agent/model/tiny_gpt.h"
#include "tests/agent/parallel/trained_ranks.h"

namespace lockstep::parallel {
namespace {

constexpr ModelConfig kGpt = [] {
  ModelConfig config = small_gpt(4);
  config.tied = false;
  return config;
}();
constexpr ModelConfig kLlama = small_llama(4, 2);
constexpr ModelConfig kBert = [] {
  ModelConfig config = small_bert(4);
  config.tied = false;
  return config;
}();

// The parameters of a whole model after each step. Each block is read in the version that is set.
class History final : public model::ParamStore {
 public:
  explicit History(const ModelDesign& design)
      : design_(design), arena_(parameter_arena(design, whole_model(design), {})) {
    versions_.emplace_back(static_cast<size_t>(arena_.count));
    model::initialise_arena(design, arena_, {}, 7, versions_[0].data());
    reads_.resize(static_cast<size_t>(block_count(design)));
  }
  struct Reads {
    int64_t forward = 0;
    int64_t backward = 0;
  };
  Reads& reads(int64_t block) { return reads_[static_cast<size_t>(block)]; }
  // Adds a version.
  std::vector<float>& add() { return versions_.emplace_back(versions_.back()); }
  const std::vector<float>& latest() const { return versions_.back(); }
  const ParameterArena& arena() const { return arena_; }

  void prefetch(const model::BlockUse&) override {}
  Result<std::span<const model::ParamView>> get(const model::BlockUse& use) override {
    const Reads& which = reads(use.block);
    const int64_t version = use.pass == model::Pass::kBackward ? which.backward : which.forward;
    views_.clear();
    for (const int64_t id : block_parameters(design_, use.block)) {
      const float* value = versions_[static_cast<size_t>(version)].data() + arena_.find(id)->offset;
      views_.push_back({.value = value, .product = kernels::ConstView(value)});
    }
    return std::span<const model::ParamView>(views_);
  }
  void release(const model::BlockUse&) override {}

 private:
  ModelDesign design_;
  ParameterArena arena_;
  std::vector<std::vector<float>> versions_;
  std::vector<Reads> reads_;
  std::vector<model::ParamView> views_;
};

// The memory of a model's passes, by part.
struct PassMemory {
  std::vector<std::byte> parts[4];

  kernels::Workspace of(size_t part, size_t bytes) {
    parts[part].resize(bytes);
    return {parts[part].data(), bytes};
  }
};

// Rounding alone, over all steps.
constexpr double kTolerance = 1e-6;

struct Sequential {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> parameters;
  ParameterArena arena;
};

// The whole algorithm, without ranks. Stage i of p forwards a micro-batch with all updates of which
// the last micro-batch is at least p - i micro-batches before it, or p with vertical sync, but
// never with those of before the pipeline was last empty. The gradients of each batch update the
// latest parameters. Micro-batches of data-parallel ranks follow each other here, with the versions
// of their own rank.
Sequential train_sequentially(const ComposeOptions& pipeline, int64_t flush_every) {
  const ModelDesign& design = pipeline.design;
  kernels::Stream stream;
  model::WholeTensor whole;
  const model::ModelOptions model_options{.design = design, .stage = whole_model(design)};
  auto model = model::make_model(model_options, kernels::cpu_ops(), stream, whole).value();
  History history(design);
  test::ArenaSink sink(history.arena());
  const int64_t of_rank = pipeline.micro_batches;
  ComposeOptions alone = options_for(design, {}, of_rank * pipeline.mesh.data);
  Samples feed(alone, 0);
  const ActivationShape shape = micro_batch_shape(alone, PassMode::kTrain);
  const model::ModelMemory bytes =
      model::model_memory(model_options, {}, shape, stream.device().type);
  PassMemory memory;
  model->use_memory({.scratch = memory.of(0, bytes.scratch),
                     .gathered = {},
                     .workspace = memory.of(1, bytes.workspace),
                     .tables = memory.of(2, bytes.tables)});
  const auto micro_batch = model->new_micro_batch(shape, memory.of(3, bytes.activations)).value();
  model::MicroBatch& micro = *micro_batch;
  std::vector<float> latest = history.latest();
  auto optimizer =
      optim::Optimizer::create(design, history.arena(),
                               {.parameters = latest.data(), .gradients = sink.gradients().data()},
                               pipeline.optimizer, {}, kernels::cpu_ops())
          .value();
  Sequential run;
  const int64_t counted = kSamples * batch_design(alone).counted;
  const int64_t stages = pipeline.mesh.pipeline;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const int64_t empty = (step - 1) / flush_every * flush_every;  // step before which it was
    sink.begin_step();
    double loss = 0;
    for (int64_t i = 0; i < alone.micro_batches; ++i) {
      const int64_t number = (step - 1) * of_rank + i % of_rank;  // among those of all steps
      for (int64_t stage = 0; stage < stages; ++stage) {
        const int64_t delay = pipeline.versions.is_vertical ? stages : stages - stage;
        const int64_t ended = number - delay + 1;  // micro-batches whose gradients are known
        const int64_t version = std::max(empty, ended > 0 ? ended / of_rank : 0);
        for (const int64_t block : blocks_of(stage_chunks(design, pipeline.mesh, stage))) {
          history.reads(block) = {version, pipeline.versions.stashes ? version : step - 1};
        }
      }
      const DeviceBatch batch = feed.next().value().value();
      const float scale = 1.0f / static_cast<float>(counted);
      EXPECT_TRUE(micro.begin({.batch = batch, .gradient_scale = scale}).ok());
      EXPECT_TRUE(model::forward_pass(*model, history, micro).ok());
      EXPECT_TRUE(model::backward_pass(*model, history, micro, sink).ok());
      const model::MicroBatch::Terms losses = micro.losses();
      for (int64_t term = 0; term < losses.count; ++term) loss += losses.values[term];
    }
    double squares = 0;
    for (const Parameter& parameter : parameter_table(design)) {
      if (parameter.is_statistic) continue;
      for (const float gradient : sink.of(parameter.id)) squares += double{gradient} * gradient;
    }
    run.losses.push_back(loss / static_cast<double>(counted));
    run.norms.push_back(std::sqrt(squares));
    optimizer.step(stream, {.learning_rate = kRate, .step = step});
    history.add() = latest;
  }
  run.parameters = latest;
  run.arena = history.arena();
  return run;
}

void expect_same(const Trained& ranks, const Sequential& alone, double tolerance = kTolerance) {
  ASSERT_EQ(ranks.losses.size(), alone.losses.size());
  for (size_t step = 0; step < alone.losses.size(); ++step) {
    EXPECT_NEAR(ranks.losses[step], alone.losses[step], tolerance) << "step " << step + 1;
    EXPECT_NEAR(ranks.norms[step], alone.norms[step], tolerance) << "step " << step + 1;
  }
  ASSERT_TRUE(ranks.state.is_whole());
  for (const ArenaEntry& entry : alone.arena.entries) {
    const std::vector<float>& mine = ranks.state.tensors().at({0, entry.id});
    double difference = 0, size = 0;
    for (size_t i = 0; i < mine.size(); ++i) {
      const double expected = alone.parameters[static_cast<size_t>(entry.offset) + i];
      difference += (mine[i] - expected) * (mine[i] - expected);
      size += expected * expected;
    }
    EXPECT_LE(std::sqrt(difference), 2 * tolerance * std::sqrt(size)) << "parameter " << entry.id;
  }
}

ComposeOptions pipedream_for(const ModelDesign& design, const Mesh& mesh, int64_t micro_batches) {
  ComposeOptions options = options_for(design, mesh, micro_batches);
  options.pipeline = PipelineKind::kPipeDream;
  return options;
}

constexpr VersionRules kRules[] = {{}, {.is_vertical = true}, {.stashes = false}};

TEST(PipeDreamRanks, MatchASequentialProgramWithTheSameDelays) {
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    for (const int64_t stages : {2, 4}) {
      for (const int64_t micro_batches : {1, 2, 4}) {
        for (const VersionRules& rules : kRules) {
          SCOPED_TRACE(std::string(family_name(design)) + ", " + std::to_string(stages) +
                       " stages, " + std::to_string(micro_batches) + " micro-batches, " +
                       (rules.is_vertical ? "vertical"
                        : rules.stashes   ? "stashing"
                                          : "no stashing"));
          ComposeOptions options = pipedream_for(design, {.pipeline = stages}, micro_batches);
          options.versions = rules;
          const Trained ranks = train(options);
          expect_same(ranks, train_sequentially(options, kSteps));
        }
      }
    }
  }
}

TEST(PipeDreamRanks, MatchItOnMeshesWithDataAndTensorAxes) {
  for (const Mesh& mesh :
       {Mesh{.pipeline = 2, .data = 2}, Mesh{.pipeline = 2, .data = 2, .tensor = 2}}) {
    const ComposeOptions options = pipedream_for(kGpt, mesh, 2);
    const Trained ranks = train(options);
    expect_same(ranks, train_sequentially(options, kSteps));
    expect_same_bits(ranks, train(options));
  }
}

// A running statistic moves towards the statistics of a micro-batch from where it was in the
// version that backward reads.
TEST(PipeDreamRanks, MatchItWithMlpsAndConvolutionalNetworks) {
  constexpr ConvnetConfig kResnet{
      .kind = ConvnetKind::kResnet20, .height = 4, .width = 4, .channels = 1, .classes = 3};
  for (const ModelDesign& design : {ModelDesign(kTable), ModelDesign(kResnet)}) {
    for (const int64_t stages : {2, 4}) {
      for (const VersionRules& rules : kRules) {
        SCOPED_TRACE(std::string(family_name(design)) + ", " + std::to_string(stages) + " stages");
        ComposeOptions options = pipedream_for(design, {.pipeline = stages}, 2);
        options.versions = rules;
        const Trained ranks = train(options);
        expect_same(ranks, train_sequentially(options, kSteps));
      }
    }
  }
}

TEST(PipeDreamRanks, NormaliseOverTheRanksOfAStage) {
  constexpr ConvnetConfig kResnet{
      .kind = ConvnetKind::kResnet20, .height = 4, .width = 4, .channels = 1, .classes = 3};
  const ComposeOptions options = pipedream_for(kResnet, {.pipeline = 2, .data = 2}, 1);
  const Trained ranks = train(options);
  expect_same_bits(ranks, train(options));
  // After the first step a rounding error may switch a ReLU, and then the gradient jumps.
  const Trained alone = train(pipedream_for(kResnet, {.pipeline = 2}, 1));
  EXPECT_NEAR(ranks.losses[0], alone.losses[0], 1e-5 * alone.losses[0]);
  EXPECT_NEAR(ranks.norms[0], alone.norms[0], 1e-5 * alone.norms[0]);
}

TEST(PipeDreamRanks, ExchangeGradientsInAnyWay) {
  ComposeOptions options = pipedream_for(kGpt, {.pipeline = 2, .data = 2}, 2);
  const Trained reduced = train(options);
  options.exchange = Exchange::kFirstRank;
  expect_close(kGpt, reduced, train(options));
}

// Muon's iterations make rounding errors larger.
TEST(PipeDreamRanks, OrthogonaliseTheMatricesOfTheirStages) {
  for (const Mesh& mesh :
       {Mesh{.pipeline = 4}, Mesh{.pipeline = 2, .data = 2}, Mesh{.pipeline = 2, .tensor = 2}}) {
    ComposeOptions options = pipedream_for(kGpt, mesh, 2);
    const Trained with_adamw = train(options);
    options.optimizer.kind = optim::OptimizerKind::kMuon;
    const Trained ranks = train(options);
    EXPECT_NE(ranks.losses, with_adamw.losses);
    expect_same(ranks, train_sequentially(options, kSteps), 1e-5);
  }
}

TEST(PipeDreamRanks, OffloadTheOptimizersStates) {
  ComposeOptions options = pipedream_for(kGpt, {.pipeline = 2, .data = 2}, 2);
  const Trained kept = train(options);
  options.offload = {.offload = Offload::kOptimizer, .path = ::testing::TempDir()};
  expect_same_bits(kept, train(options));
}

TEST(PipeDreamRanks, BeginAgainWhereThePipelineIsEmptied) {
  const ComposeOptions options = pipedream_for(kGpt, {.pipeline = 4}, 2);
  const Trained ranks = train(options, {.flush_every = 4});
  expect_same(ranks, train_sequentially(options, 4));
  EXPECT_NE(ranks.losses[5], train(options).losses[5]);
}

TEST(PipeDreamRanks, DifferFromASynchronousPipeline) {
  const Mesh mesh{.pipeline = 2};
  ComposeOptions options = pipedream_for(kGpt, mesh, 2);
  const Trained late = train(options);
  options.pipeline = PipelineKind::kOneForwardOneBackward;
  EXPECT_NE(late.losses[2], train(options).losses[2]);
}

TEST(PipeDreamRanks, RecomputeWithTheVersionsOfTheirForward) {
  ComposeOptions options = pipedream_for(kGpt, {.pipeline = 2}, 2);
  const Trained kept = train(options);
  options.recompute = Recompute::kBlocks;
  expect_same_bits(kept, train(options));
}

TEST(PipeDreamRanks, ResumeWithTheSameBitsWhereThePipelineWasEmpty) {
  const ComposeOptions options = pipedream_for(kGpt, {.pipeline = 2, .data = 2}, 2);
  Trained first = train(options);
  Trained again = train(options, {.state = &first.state, .steps = kSteps});
  expect_same_bits(again, train(options, {.state = &first.state, .steps = kSteps}));
}

// A stop is learned later on later stages, and ends the training at the same step on all.
TEST(PipeDreamRanks, AllStopAtTheSameStep) {
  for (const int64_t stages : {2, 4}) {
    const ComposeOptions options = pipedream_for(kGpt, {.pipeline = stages}, 1);
    for (int stopped = 0; stopped < stages; ++stopped) {
      auto world = comm::make_thread_world(static_cast<int>(stages)).value();
      std::vector<int64_t> ends(world.size());
      {
        std::vector<std::jthread> ranks;
        for (auto& communicator : world) {
          ranks.emplace_back([&, rank = communicator.get()] {
            const SystemClock clock;
            auto model = Composition::create(options, *rank, clock).value();
            ASSERT_TRUE(model->initialise(7).ok());
            Samples feed(options, 0);
            for (int64_t step = 1; step <= 20; ++step) {
              const bool stop = rank->rank() == stopped && step >= 3;
              const auto report = model->run_step(
                  feed, {.step = step, .learning_rate = kRate, .flush = 20, .stop = stop});
              ASSERT_TRUE(report.ok()) << report.error().message;
              ends[static_cast<size_t>(rank->rank())] = step;
              if (report->stop) break;
            }
          });
        }
      }
      EXPECT_EQ(ends, std::vector<int64_t>(world.size(), 3 + stages - 1));
    }
  }
}

// Fewer parameters are old than with one micro-batch a batch.
TEST(PipeDreamRanks, DifferLessWithMoreMicroBatches) {
  const auto distance = [](int64_t micro_batches) {
    ComposeOptions options = pipedream_for(kGpt, {.pipeline = 2}, micro_batches);
    const Trained late = train(options);
    options.pipeline = PipelineKind::kOneForwardOneBackward;
    return std::abs(late.losses.back() - train(options).losses.back());
  };
  EXPECT_LT(2 * distance(4), distance(1));
}

TEST(PipeDreamRanks, PlanTheMemoryOfTheVersionsThatTheyKeep) {
  ComposeOptions options = pipedream_for(kGpt, {.pipeline = 2}, 2);
  const auto stashed = [&](int64_t stage) {
    options.place.pipeline = stage;
    const MemoryPlan plan = plan_memory(options).value();
    return plan.device.parts[static_cast<size_t>(DevicePart::kStashed)].bytes;
  };
  const auto arena = [&](int64_t stage) {
    options.place.pipeline = stage;
    return static_cast<size_t>(arena_of(options).count) * sizeof(float);
  };
  EXPECT_EQ(stashed(0), arena(0));
  EXPECT_EQ(stashed(1), 0u);
  options.versions.is_vertical = true;
  EXPECT_EQ(stashed(1), arena(1));
}

TEST(PipeDreamRanks, AreRefusedWithWhatTheyCannotDo) {
  ComposeOptions options = pipedream_for(kGpt, {.pipeline = 2, .data = 2}, 2);
  EXPECT_TRUE(check(options).ok());
  const auto message = [](const ComposeOptions& of) { return check(of).error().message; };
  ComposeOptions tied = options;
  tied.design = small_gpt(4);
  EXPECT_EQ(message(tied), "[compose] pipedream works only without a tied embedding");
  ComposeOptions sharded = options;
  sharded.sharding = {.sharding = Sharding::kOptimizer, .ranks = 2};
  EXPECT_EQ(message(sharded), "[compose] pipedream works only without sharding");
  ComposeOptions vertical = options;
  vertical.versions = {.stashes = false, .is_vertical = true};
  EXPECT_EQ(message(vertical), "[compose] vertical sync works only with weight stashing");
  ComposeOptions recomputed = options;
  recomputed.versions.stashes = false;
  recomputed.recompute = Recompute::kOps;
  EXPECT_EQ(message(recomputed),
            "[compose] pipedream without weight stashing works only without recomputation, which "
            "would read other parameters than forward");
}

}  // namespace
}  // namespace lockstep::parallel
