// Stages of MLPs and convolutional networks train the model of one rank.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/layout/sharding.h"
#include "tests/agent/parallel/trained_ranks.h"
#include "tests/kernels/arena_text.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kMicroBatches = 4;  // of a rank

// Layers without normalisation, and pooling.
constexpr ConvnetConfig kLenet{
    .kind = ConvnetKind::kLenet5, .height = 12, .width = 12, .channels = 1, .classes = 3};
constexpr ConvnetConfig kResnet{
    .kind = ConvnetKind::kResnet20, .height = 4, .width = 4, .channels = 1, .classes = 3};

MlpConfig mlp(MlpActivation activation) {
  MlpConfig config = kTable;
  config.activation = activation;
  return config;
}

struct Model {
  std::string name;
  ModelDesign design;
  double dropout = 0;
};

const std::vector<Model>& models() {
  static const std::vector<Model> kModels{{"Relu", mlp(MlpActivation::kRelu)},
                                          {"Gelu", mlp(MlpActivation::kGelu)},
                                          {"TanhWithDropout", mlp(MlpActivation::kTanh), 0.3},
                                          {"Lenet5", kLenet},
                                          {"Resnet20", kResnet},
                                          {"Lenet5WithDropout", kLenet, 0.3},
                                          {"GeluWithDropout", mlp(MlpActivation::kGelu), 0.3}};
  return kModels;
}

struct Cell {
  Model model;
  PipelineKind pipeline = PipelineKind::kNaive;
  Mesh mesh = {};
};

ComposeOptions options_of(const Cell& cell) {
  ComposeOptions options = options_for(cell.model.design, cell.mesh, kMicroBatches);
  options.pipeline = cell.pipeline;
  options.dropout = {.probability = cell.model.dropout, .seed = 5};
  return options;
}

// The same micro-batches without stages.
ComposeOptions uncut(ComposeOptions options) {
  options.mesh = {.data = options.mesh.data};
  return options;
}

std::vector<Cell> cells() {
  constexpr PipelineKind kPlain[] = {PipelineKind::kNaive, PipelineKind::kGpipe,
                                     PipelineKind::kOneForwardOneBackward,
                                     PipelineKind::kZeroBubble};
  std::vector<Cell> cells;
  for (const Model& model : models()) {
    for (const PipelineKind pipeline : kPlain) {
      cells.push_back({model, pipeline, {.pipeline = 2}});
      cells.push_back({model, pipeline, {.pipeline = 4}});
      cells.push_back({model, pipeline, {.pipeline = 2, .data = 2}});
    }
    cells.push_back({model, PipelineKind::kInterleaved, {.pipeline = 2, .virtual_stages = 2}});
    cells.push_back(
        {model, PipelineKind::kInterleaved, {.pipeline = 2, .data = 2, .virtual_stages = 2}});
  }
  return cells;
}

std::string name_of(const testing::TestParamInfo<Cell>& info) {
  const Mesh& mesh = info.param.mesh;
  std::string schedule(pipeline_kind_name(info.param.pipeline));
  schedule.front() = static_cast<char>(std::toupper(schedule.front()));
  return info.param.model.name + "Pipeline" + std::to_string(mesh.pipeline) + "Data" +
         std::to_string(mesh.data) + "With" + schedule;
}

class Stages : public testing::TestWithParam<Cell> {};

// Stages compute with the same micro-batches in the same order.
TEST_P(Stages, GiveTheBitsOfOneStage) {
  const ComposeOptions options = options_of(GetParam());
  expect_same_bits(train(uncut(options)), train(options));
}

TEST_P(Stages, ShardTheState) {
  const Cell& cell = GetParam();
  if (cell.mesh.data == 1) return;
  for (const Sharding sharding :
       {Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
    if (cell.pipeline == PipelineKind::kZeroBubble && sharding != Sharding::kOptimizer) continue;
    SCOPED_TRACE(sharding_name(sharding));
    ComposeOptions options = options_of(cell);
    options.sharding = {.sharding = sharding, .ranks = 2};
    expect_same_bits(train(uncut(options)), train(options));
  }
}

INSTANTIATE_TEST_SUITE_P(Pipeline, Stages, testing::ValuesIn(cells()), name_of);

// The samples that are normalised together are the same: all of a step.
TEST(StagesOfModels, TrainTheModelOfOneRank) {
  for (const Model& model : models()) {
    SCOPED_TRACE(model.name);
    ComposeOptions options =
        options_of({model, PipelineKind::kOneForwardOneBackward, {.pipeline = 2, .data = 2}});
    options.micro_batches = 1;
    options.micro_batch = kSamples / 2;
    ComposeOptions alone = uncut(options);
    alone.mesh = {};
    alone.micro_batch = kSamples;
    const Trained one = train(alone);
    const Trained ranks = train(options);
    if (!shares_batches(model.design)) {
      expect_close(model.design, one, ranks);
      continue;
    }
    // After the first step a rounding error may switch a ReLU, and then the gradient jumps.
    EXPECT_NEAR(ranks.losses[0], one.losses[0], 1e-5 * one.losses[0]);
    EXPECT_NEAR(ranks.norms[0], one.norms[0], 1e-5 * one.norms[0]);
  }
}

TEST(StagesOfModels, TrainVgg11WithEachSchedule) {
  constexpr ConvnetConfig kVgg{
      .kind = ConvnetKind::kVgg11, .height = 32, .width = 32, .channels = 1, .classes = 3};
  const Model model{"Vgg11", kVgg};
  const Trained alone = train(options_of({model, PipelineKind::kNaive, {}}));
  for (const PipelineKind pipeline :
       {PipelineKind::kNaive, PipelineKind::kGpipe, PipelineKind::kOneForwardOneBackward,
        PipelineKind::kZeroBubble, PipelineKind::kInterleaved}) {
    SCOPED_TRACE(pipeline_kind_name(pipeline));
    const int64_t chunks = pipeline == PipelineKind::kInterleaved ? 2 : 1;
    expect_same_bits(
        alone, train(options_of({model, pipeline, {.pipeline = 2, .virtual_stages = chunks}})));
  }
}

TEST(StagesOfModels, KeepTheStateThatTheyAreGiven) {
  for (const Model& model : models()) {
    SCOPED_TRACE(model.name);
    const Cell cell{model, PipelineKind::kInterleaved, {.pipeline = 2, .virtual_stages = 2}};
    const ComposeOptions options = options_of(cell);
    Trained first = train(uncut(options));
    const KeptState kept = saved_after_load(options, first.state);
    EXPECT_TRUE(first.state.tensors() == kept.tensors());
  }
}

TEST(StagesOfModels, HaveTheSizesThatAreGiven) {
  ComposeOptions options =
      options_of({models()[4], PipelineKind::kGpipe, {.pipeline = 2, .part_layers = {9, 2}}});
  expect_same_bits(train(uncut(options)), train(options));
  options.mesh.part_layers = {9, 1};
  EXPECT_EQ(check(options).error().message,
            "[compose] the layers of the stages: expected numbers of at least 1 whose sum is the "
            "layers, 11");
}

TEST(StagesOfModels, AreAtMostTheirLayers) {
  const ComposeOptions options = options_of({models()[4], PipelineKind::kGpipe, {.pipeline = 12}});
  EXPECT_EQ(check(options).error().message,
            "[compose] expected at most as many stages as layers, 11, got 12");
}

TEST(StagesOfModels, OfPipeDreamHaveEnoughMicroBatchesForRunningStatistics) {
  ComposeOptions options = options_of({models()[4], PipelineKind::kPipeDream, {.pipeline = 8}});
  options.versions = {.stashes = true};
  options.micro_batches = 2;
  EXPECT_EQ(check(options).error().message,
            "[compose] pipedream: expected at least 3 micro-batches a step for the running "
            "statistics of 8 stages, got 2");
  options.micro_batches = 3;
  EXPECT_TRUE(check(options).ok());
  ComposeOptions without =
      options_of({models()[3], PipelineKind::kPipeDream, {.pipeline = 5}});  // lenet5
  without.versions = {.stashes = true};
  without.micro_batches = 1;
  EXPECT_TRUE(check(without).ok()) << check(without).error().message;
}

// Each stage plans its own messages, whose sizes differ from boundary to boundary.
TEST(StagesOfModels, HaveAllocatedWhatIsPlannedWithoutThem) {
  auto world = comm::make_thread_world(4).value();
  for (const Model& model : models()) {
    SCOPED_TRACE(model.name);
    const ComposeOptions options = options_of({model, PipelineKind::kZeroBubble, {.pipeline = 4}});
    std::vector<std::jthread> ranks;
    for (auto& communicator : world) {
      ranks.emplace_back([&, rank = communicator.get()] {
        const SystemClock clock;
        ComposeOptions placed = options;
        placed.place.pipeline = rank->rank();
        const MemoryPlan plan = plan_memory(placed).value();
        const auto composition = Composition::create(options, *rank, clock).value();
        EXPECT_EQ(kernels::arena_text(composition->memory().device),
                  kernels::arena_text(plan.device));
      });
    }
  }
}

TEST(StagesOfModels, SendImagesOfTheSizeAtTheirBoundary) {
  ComposeOptions options =
      options_of({models()[3], PipelineKind::kGpipe, {.pipeline = 3, .part_layers = {1, 1, 3}}});
  // 6 channels of 6 x 6 pixels, then 16 of 1 x 1.
  const int64_t samples = options.micro_batch;
  EXPECT_EQ(edge_count(options, 0), 0);
  EXPECT_EQ(edge_count(options, 1), samples * 6 * 6 * 6);
  EXPECT_EQ(edge_count(options, 2), samples * 16);
  const std::vector<int64_t> largest = {216, 216, 16};
  for (int64_t stage = 0; stage < 3; ++stage) {
    options.place.pipeline = stage;
    EXPECT_EQ(largest_edge(options), samples * largest[static_cast<size_t>(stage)]);
  }
}

}  // namespace
}  // namespace lockstep::parallel
