// Ranks that share the tensors of every layer also divide the rows between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/layout/sharding.h"
#include "tests/agent/parallel/trained_ranks.h"

namespace lockstep::parallel {
namespace {

constexpr ModelConfig kGpt = small_gpt(2);
constexpr ModelConfig kLlama = small_llama(2, 2);
constexpr ModelConfig kBert = small_bert(2);

ComposeOptions sequence_options(const ModelDesign& design, const Mesh& mesh,
                                int64_t micro_batches) {
  ComposeOptions options = options_for(design, mesh, micro_batches);
  options.sequence_parallel = true;
  return options;
}

class SplitRows : public testing::TestWithParam<Mesh> {};

TEST_P(SplitRows, TrainTheModelOfOneRank) {
  const Mesh mesh = GetParam();
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    const Trained alone = train(options_for(design, {}, 1));
    for (const Sharding sharding :
         {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
      SCOPED_TRACE(std::string(family_name(design)) + ", " + std::string(sharding_name(sharding)));
      ComposeOptions options = sequence_options(design, mesh, 2);
      options.sharding.sharding = sharding;
      options.sharding.ranks = sharding == Sharding::kNone ? 1 : mesh.data;
      expect_close(design, alone, train(options));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sequence, SplitRows,
                         testing::Values(Mesh{.tensor = 2}, Mesh{.tensor = 4},
                                         Mesh{.data = 2, .tensor = 2},
                                         Mesh{.pipeline = 2, .tensor = 2},
                                         Mesh{.pipeline = 2, .data = 2, .tensor = 2}),
                         [](const auto& mesh) {
                           return "Pipeline" + std::to_string(mesh.param.pipeline) + "Data" +
                                  std::to_string(mesh.param.data) + "Tensor" +
                                  std::to_string(mesh.param.tensor);
                         });

TEST(Sequence, TrainsWithGradientsThatTheFirstRankCollects) {
  ComposeOptions options = sequence_options(kGpt, {.data = 2, .tensor = 2}, 2);
  options.exchange = Exchange::kFirstRank;
  const Trained alone = train(options_for(kGpt, {}, 1));
  const Trained split = train(options);
  for (size_t step = 0; step < alone.losses.size(); ++step) {
    EXPECT_NEAR(alone.losses[step], split.losses[step], 1e-5);
  }
}

TEST(Sequence, GivesTheSameBitsEachTime) {
  const ComposeOptions options = sequence_options(kGpt, {.data = 2, .tensor = 2}, 2);
  expect_same_bits(train(options), train(options));
}

TEST(Sequence, GivesTheSameBitsWithRecomputation) {
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    const Trained kept = train(sequence_options(design, {.tensor = 2}, 2));
    for (const Recompute recompute : {Recompute::kOps, Recompute::kBlocks}) {
      ComposeOptions options = sequence_options(design, {.tensor = 2}, 2);
      options.recompute = recompute;
      expect_same_bits(kept, train(options));
    }
  }
}

TEST(Sequence, TrainsWithBf16) {
  ComposeOptions options = sequence_options(kGpt, {.tensor = 2}, 1);
  const Trained plain = train(options);
  options.precision = kernels::Precision::kBf16;
  const Trained rounded = train(options);
  for (size_t step = 0; step < plain.losses.size(); ++step) {
    EXPECT_NEAR(plain.losses[step], rounded.losses[step], 0.02);
  }
}

// Calls `use` with the composition and the world of each rank, on threads.
template <class Use>
void on_ranks(const ComposeOptions& options, Use use) {
  const SystemClock clock;
  auto world = comm::make_thread_world(static_cast<int>(options.mesh.size())).value();
  std::vector<std::jthread> ranks;
  for (auto& communicator : world) {
    ranks.emplace_back([&, rank = communicator.get()] {
      auto created = Composition::create(options, *rank, clock);
      ASSERT_TRUE(created.ok()) << created.error().message;
      ASSERT_TRUE((*created)->initialise(7).ok());
      use(**created, *rank);
    });
  }
}

void run_step(Composition& model, BatchFeed& feed, int step) {
  const auto report = model.run_step(feed, {.step = step, .learning_rate = 0.01, .clip_norm = 0.5});
  ASSERT_TRUE(report.ok()) << report.error().message;
}

TEST(Sequence, LeavesTheSameNormsOnAllTensorPeers) {
  const ComposeOptions options = sequence_options(kGpt, {.tensor = 4}, 2);
  std::vector<std::vector<float>> norms(4);  // by rank: their parameters and states
  on_ranks(options, [&](Composition& model, comm::Communicator& world) {
    Samples feed(options, 0);
    for (int step = 1; step <= 3; ++step) run_step(model, feed, step);
    const DeviceState state = model.state();
    for (const Parameter& parameter : parameter_table(options.design)) {
      if (!parameter.works_on_rows) continue;
      const ArenaEntry& entry = *state.arena->find(parameter.id);
      auto& mine = norms[static_cast<size_t>(world.rank())];
      const auto add = [&](const float* values) {
        mine.insert(mine.end(), values + entry.offset, values + entry.offset + entry.count);
      };
      add(state.parameters);
      for (const optim::OptimizerState& each : state.optimizer) add(each.values);
    }
  });
  EXPECT_EQ(norms[0].size(), 3u * 2u * 5u * 16u);  // five norms with weight and bias
  for (const auto& others : norms) EXPECT_EQ(norms[0], others);
}

// Returns the bytes that each rank sends in a step.
std::vector<int64_t> bytes_sent(const ComposeOptions& options) {
  std::vector<int64_t> sent(static_cast<size_t>(options.mesh.size()));
  on_ranks(options, [&](Composition& model, comm::Communicator& world) {
    Samples feed(options, model.place().data);
    run_step(model, feed, 1);
    const uint64_t before = world.traffic().bytes_sent;
    run_step(model, feed, 2);
    sent[static_cast<size_t>(world.rank())] =
        static_cast<int64_t>(world.traffic().bytes_sent - before);
  });
  return sent;
}

// A reduce-scatter and an all-gather send what an all-reduce does. Two more all-gathers per layer
// bring the inputs of its products to backward, and the norms' gradients are summed once. Between
// two ranks, every algorithm sends the same.
TEST(Sequence, SendsTheInputsOfProductsOnceMoreAndTheNormsGradients) {
  for (const ModelConfig& config : {kGpt, kLlama}) {
    for (const int64_t data : {1, 2}) {
      const Mesh mesh{.data = data, .tensor = 2};
      constexpr int64_t kMicroBatches = 2;
      const int64_t rows = kSamples / data / kMicroBatches * kSequence;
      const int64_t gather = rows / 2 * config.width * 4;
      const int64_t norms = 2 * config.layers + 1;
      const int64_t more = kMicroBatches * 2 * config.layers * gather +
                           norms * config.design().norm_parameters() * config.width * 4;
      const std::vector<int64_t> whole = bytes_sent(options_for(config, mesh, kMicroBatches));
      const std::vector<int64_t> parts = bytes_sent(sequence_options(config, mesh, kMicroBatches));
      for (size_t rank = 0; rank < whole.size(); ++rank) {
        EXPECT_EQ(parts[rank], whole[rank] + more) << family_name(config) << " " << rank;
      }
    }
  }
}

uint64_t bytes_of_part(const ComposeOptions& options, DevicePart part) {
  return plan_memory(options).value().device.parts[static_cast<size_t>(part)].bytes;
}

// Legend as in common/layout/activations.h. All places are multiples of its alignment.
TEST(Sequence, KeepsAPartOfTheRows) {
  constexpr ModelConfig kAligned{
      .layers = 3, .width = 64, .heads = 4, .context = 64, .vocabulary = 512};
  constexpr int64_t kBatch = 4, kRows = kBatch * 64, kWidth = 64;
  for (const int64_t shards : {2, 4}) {
    ComposeOptions options = sequence_options(kAligned, {.tensor = shards}, 1);
    options.micro_batch = kBatch;
    options.sequence = 64;
    const int64_t kept = kRows / shards;
    const int64_t stream = kept * kWidth;
    const int64_t split = kRows * (3 + 1 + 4 + 4) * kWidth / shards;  // qkv, attention, MLP
    const int64_t lse = kRows * 4 / shards;
    const int64_t layer = 4 * stream + split + lse + 4 * kept;
    const int64_t head = stream + kRows + 2 * kept;
    EXPECT_EQ(bytes_of_part(options, DevicePart::kActivations), 4 * (3 * layer + stream + head));
    EXPECT_EQ(bytes_of_part(options, DevicePart::kScratch),
              4 * (stream + kRows * kWidth + kRows * 512 / shards + 3 * kRows))
        << "logits are wider than hidden values";
    EXPECT_EQ(bytes_of_part(options, DevicePart::kGatheredRows), 4 * kRows * kWidth);
    options.sequence_parallel = false;
    const int64_t saved = (kRows - kept) * (3 * (4 * kWidth + 4) + 2 * kWidth + 2);
    EXPECT_EQ(bytes_of_part(options, DevicePart::kActivations),
              4 * (3 * layer + stream + head + saved));
    EXPECT_EQ(bytes_of_part(options, DevicePart::kGatheredRows), 0u);
  }
}

// Windows begin at 16 tokens, which three ranks cannot divide.
TEST(Sequence, SamplesWithAnyNumberOfRanks) {
  for (ModelConfig config : {kGpt, kLlama}) {
    config.width = 24;
    config.heads = config.family == Family::kLlama ? 3 : 6;
    if (config.family == Family::kLlama) config.kv_heads = 3;
    config.context = 48;
    std::vector<std::vector<int32_t>> texts;
    for (const int64_t shards : {1, 3}) {
      ComposeOptions options = options_for(config, {.tensor = shards}, 1);
      options.sequence = 48;
      options.sequence_parallel = shards > 1;
      on_ranks(options, [&](Composition& model, comm::Communicator& world) {
        const auto text = model.generate({.prompt = {1, 2, 3}, .tokens = 40, .temperature = 0});
        ASSERT_TRUE(text.ok()) << text.error().message;
        if (world.rank() == 0) texts.push_back(text->value());
      });
    }
    ASSERT_EQ(texts.size(), 2u);
    EXPECT_EQ(texts[0], texts[1]);
  }
}

TEST(Sequence, IsRefusedWhereTheRanksCannotDivideIt) {
  for (const auto& [tensor, sequence] : {std::pair<int64_t, int64_t>{1, 8}, {3, 8}, {2, 1}}) {
    ComposeOptions options = sequence_options(kGpt, {.tensor = tensor}, 1);
    options.sequence = sequence;
    auto world = comm::make_thread_world(static_cast<int>(tensor)).value();
    const SystemClock clock;
    const auto created = Composition::create(options, *world.front(), clock);
    ASSERT_FALSE(created.ok());
    EXPECT_EQ(created.error().message, "[compose] " + std::to_string(tensor) +
                                           " tensor-parallel ranks cannot divide sequences of " +
                                           std::to_string(sequence));
  }
}

}  // namespace
}  // namespace lockstep::parallel
