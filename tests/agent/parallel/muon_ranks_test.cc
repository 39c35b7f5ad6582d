// Ranks that divide the matrices of Muon train the model of one rank.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "agent/parallel/memory_plan.h"
#include "tests/agent/parallel/trained_ranks.h"

namespace lockstep::parallel {
namespace {

constexpr ConvnetConfig kLenet{
    .kind = ConvnetKind::kLenet5, .height = 12, .width = 12, .channels = 1, .classes = 3};

struct Model {
  std::string name;
  ModelDesign design;
};

ComposeOptions muon_for(const ModelDesign& design, const Mesh& mesh, int64_t micro_batches) {
  ComposeOptions options = options_for(design, mesh, micro_batches);
  options.optimizer.kind = optim::OptimizerKind::kMuon;
  options.optimizer.muon.rate = 2;
  return options;
}

class MuonRanks : public testing::TestWithParam<Model> {};
INSTANTIATE_TEST_SUITE_P(Of, MuonRanks,
                         testing::Values(Model{"Gpt", small_gpt(2)},
                                         Model{"Llama", small_llama(2, 2)},
                                         Model{"Bert", small_bert(2)}, Model{"Mlp", kTable},
                                         Model{"Lenet", kLenet}),
                         [](const auto& info) { return info.param.name; });

TEST_P(MuonRanks, TrainTheModelOfOneRank) {
  const ModelDesign& design = GetParam().design;
  const Trained alone = train(muon_for(design, {}, 1));
  EXPECT_NE(alone.losses, train(options_for(design, {}, 1)).losses) << "that of AdamW";
  for (const Mesh& mesh : {Mesh{.data = 2}, Mesh{.data = 4}, Mesh{.pipeline = 2, .data = 2}}) {
    SCOPED_TRACE(std::to_string(mesh.pipeline) + " stages, " + std::to_string(mesh.data) +
                 " ranks");
    expect_close(design, train(muon_for(design, mesh, mesh.pipeline)), alone);
  }
}

ComposeOptions sharded_for(const ModelDesign& design, const Mesh& mesh, int64_t ranks) {
  ComposeOptions options = muon_for(design, mesh, mesh.pipeline);
  options.sharding = {.sharding = Sharding::kOptimizer, .ranks = ranks};
  return options;
}

TEST_P(MuonRanks, TrainTheModelOfOneRankWithShardedStates) {
  const ModelDesign& design = GetParam().design;
  const Trained alone = train(muon_for(design, {}, 1));
  for (const auto& [mesh, ranks] :
       {std::pair(Mesh{.data = 2}, 2), std::pair(Mesh{.data = 4}, 4), std::pair(Mesh{.data = 4}, 2),
        std::pair(Mesh{.pipeline = 2, .data = 2}, 2)}) {
    SCOPED_TRACE(std::to_string(mesh.pipeline) + " stages, " + std::to_string(mesh.data) +
                 " ranks, " + std::to_string(ranks) + " shards");
    expect_close(design, train(sharded_for(design, mesh, ranks)), alone);
  }
}

bool is_transformer(const ModelDesign& design) {
  return transformer_of(design) != nullptr;
}

TEST_P(MuonRanks, TrainTheModelOfOneRankWithShardedGradientsAndParameters) {
  const ModelDesign& design = GetParam().design;
  const Trained alone = train(muon_for(design, {}, 1));
  for (const Sharding sharding : {Sharding::kGradients, Sharding::kParameters}) {
    for (const int64_t ranks : {2, 4}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(sharding)) + ", " + std::to_string(ranks));
      ComposeOptions options = muon_for(design, {.data = 4}, 1);
      options.sharding = {.sharding = sharding, .ranks = ranks};
      expect_close(design, train(options), alone);
    }
  }
}

TEST_P(MuonRanks, TrainTheModelOfOneRankWithShardsOfMatrices) {
  const ModelDesign& design = GetParam().design;
  if (!is_transformer(design)) return;  // the others are never cut
  const Trained alone = train(muon_for(design, {}, 1));
  for (const Mesh& mesh : {Mesh{.tensor = 2}, Mesh{.tensor = 4}, Mesh{.data = 2, .tensor = 2},
                           Mesh{.pipeline = 2, .data = 2, .tensor = 2}}) {
    SCOPED_TRACE(std::to_string(mesh.pipeline) + " x " + std::to_string(mesh.data) + " x " +
                 std::to_string(mesh.tensor));
    expect_close(design, train(muon_for(design, mesh, mesh.pipeline)), alone);
  }
  expect_close(design, train(sharded_for(design, {.data = 2, .tensor = 2}, 2)), alone);
  expect_close(design, train(sharded_for(design, {.data = 2, .tensor = 4}, 2)), alone);
  expect_close(design, train(sharded_for(design, {.data = 4, .tensor = 2}, 2)), alone);
  ComposeOptions options = sharded_for(design, {.data = 2, .tensor = 2}, 2);
  options.sharding.sharding = Sharding::kParameters;
  expect_close(design, train(options), alone);
}

TEST_P(MuonRanks, GoOnFromTheStateOfAnotherLayout) {
  const ModelDesign& design = GetParam().design;
  Trained first = train(muon_for(design, {.data = 4}, 1));
  const TrainingStart later{.state = &first.state, .steps = kSteps};
  const Trained alone = train(muon_for(design, {}, 1), later);
  expect_close(design, train(muon_for(design, {.data = 2}, 2), later), alone);
  expect_close(design, train(sharded_for(design, {.data = 2}, 2), later), alone);
  Trained sharded = train(sharded_for(design, {.data = 4}, 4));
  expect_close(design, train(muon_for(design, {}, 1), {.state = &sharded.state, .steps = kSteps}),
               alone);
}

// bf16 has 8 bits, so the matrices of ranks differ in the third digit.
TEST_P(MuonRanks, TrainInBf16) {
  const ModelDesign& design = GetParam().design;
  ComposeOptions options = muon_for(design, {.data = 2}, 1);
  options.precision = options.optimizer.muon.precision = kernels::Precision::kBf16;
  const Trained ranks = train(options);
  expect_same_bits(ranks, train(options));
  const Trained exact = train(muon_for(design, {}, 1));
  for (size_t step = 0; step < exact.losses.size(); ++step) {
    EXPECT_NEAR(ranks.losses[step], exact.losses[step], 0.02 * exact.losses[step]);
  }
}

TEST_P(MuonRanks, GiveTheSameBitsAgain) {
  const ComposeOptions options = sharded_for(GetParam().design, {.data = 4}, 2);
  expect_same_bits(train(options), train(options));
}

TEST(MuonRanksMemory, IsThatOfAdamWAndTwoMatrices) {
  const ModelDesign design = small_gpt(2);
  for (const int64_t ranks : {1, 4}) {
    ComposeOptions options = muon_for(design, {.data = ranks}, 1);
    const auto bytes = plan_memory(options).value().device.bytes;
    options.optimizer.kind = optim::OptimizerKind::kAdamW;
    const auto adamw = plan_memory(options).value().device.bytes;
    const std::vector<optim::MuonMatrix> matrices =
        optim::muon_matrices(design, arena_of(options), 1);
    // The largest one twice, and two squares of its shorter side.
    EXPECT_GE(optim::muon_bytes(matrices, options.optimizer.muon, kernels::DeviceType::kCpu),
              (2 * 64u * 16 + 2 * 16 * 16) * 4);
    EXPECT_EQ(
        bytes - adamw,
        (optim::muon_bytes(matrices, options.optimizer.muon, kernels::DeviceType::kCpu) + 255) /
            256 * 256)
        << ranks << " ranks";
  }
}

TEST(MuonRanksOptions, AreRefusedFarAwayOrWithoutAMatrix) {
  struct Case {
    const char* name;
    std::function<void(ComposeOptions&)> change;
  };
  const Case cases[] = {
      {"offload", [](ComposeOptions& o) { o.offload.offload = Offload::kOptimizer; }},
      {"exchange", [](ComposeOptions& o) { o.exchange = Exchange::kFirstRank; }},
      {"one hidden layer",
       [](ComposeOptions& o) { o.design = MlpConfig{.inputs = 4, .hidden = {8}, .outputs = 2}; }},
  };
  const ComposeOptions good = muon_for(small_gpt(2), {.data = 2}, 1);
  EXPECT_TRUE(check(good).ok());
  for (const Case& one : cases) {
    ComposeOptions options = good;
    one.change(options);
    const Status status = check(options);
    ASSERT_FALSE(status.ok()) << one.name;
    EXPECT_TRUE(status.error().message.starts_with("[compose] muon")) << status.error().message;
    EXPECT_EQ(status.error().blame, Blame::kConfig) << one.name;
  }
}

}  // namespace
}  // namespace lockstep::parallel
