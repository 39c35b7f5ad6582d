// Moving averages of the parameters: in every layout, over restarts, and exported.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "agent/train/weights/export_weights.h"
#include "common/base/json.h"
#include "tests/agent/train/stored_tensors.h"
#include "tests/agent/train/worker_world.h"

namespace lockstep::train {
namespace {

constexpr int64_t kSteps = 6;
constexpr double kDecay = 0.8;

using Tensors = std::map<std::string, std::vector<float>>;

// Reads a tensor of F32 from a safetensors file.
std::vector<float> tensor_of_file(const std::string& path, const std::string& name) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  const Json header = parse_json(bytes.substr(8, header_bytes)).value();
  const Json& offsets = header.at(name).at("data_offsets");
  const auto begin = offsets[0].get<size_t>();
  std::vector<float> values((offsets[1].get<size_t>() - begin) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + 8 + header_bytes + begin,
              values.size() * sizeof(float));
  return values;
}

struct Layout {
  const char* name;
  int64_t nodes;
  int64_t per_node;
  std::function<void(ParallelismSpec&)> change;
};

class AveragesTest : public testing::TestWithParam<Layout> {
 protected:
  static WorkerWorld::Options options() {
    WorkerWorld::Options options{.nodes = GetParam().nodes, .per_node = GetParam().per_node};
    options.train.model = {.layers = 2, .width = 16, .heads = 2, .context = 16};
    options.train.steps = kSteps;
    options.train.batch = {.global = 8, .micro = 1};
    options.train.optimizer = {.learningRate = 5e-3};
    options.train.ema = kDecay;
    options.checkpoint_every = 1;
    options.checkpoint_keep = 100;
    ParallelismSpec parallelism;
    GetParam().change(parallelism);
    options.pipeline = parallelism.pipeline;
    options.change_spec = [parallelism](TrainingJobSpec& spec) { spec.parallelism = parallelism; };
    return options;
  }

  // Makes the averages from the parameters of all checkpoints.
  static Tensors expected(const WorkerWorld& world) {
    Tensors averages;
    for (int64_t step = 1; step <= kSteps; ++step) {
      for (const auto& [name, values] : stored_tensors(world.checkpoint_folder(step), "model")) {
        std::vector<float>& average = averages.try_emplace(name, values).first->second;
        for (size_t i = 0; i < values.size(); ++i) {
          average[i] += static_cast<float>(1 - kDecay) * (values[i] - average[i]);
        }
      }
    }
    return averages;
  }

  static void expect_near(const Tensors& expected, const Tensors& states) {
    ASSERT_FALSE(expected.empty());
    for (const auto& [name, average] : expected) {
      const auto found = states.find(name + ".ema");
      ASSERT_NE(found, states.end()) << name;
      ASSERT_EQ(found->second.size(), average.size());
      for (size_t i = 0; i < average.size(); ++i) {
        ASSERT_NEAR(found->second[i], average[i], 1e-6) << name << " " << i;
      }
    }
  }
};

TEST_P(AveragesTest, AreInCheckpointsAndGoOnFromThem) {
  WorkerWorld world(options());
  ASSERT_NO_FATAL_FAILURE(world.run());
  const auto states = [&] { return stored_tensors(world.checkpoint_folder(kSteps), "optimizer"); };
  expect_near(expected(world), states());
  expect_same_bits_from(world, 3);
}

TEST_P(AveragesTest, AreExported) {
  WorkerWorld world(options());
  ASSERT_NO_FATAL_FAILURE(world.run());
  const std::string from = world.checkpoint_folder(kSteps);
  const std::string to = world.folder().file("averages");
  const Result<ExportedWeights> done = export_weights(from, to, {.kind = WeightsKind::kAverages});
  ASSERT_TRUE(done.ok()) << done.error().message;
  const Result<ExportedWeights> now = export_weights(from, world.folder().file("now"));
  ASSERT_TRUE(now.ok()) << now.error().message;
  EXPECT_EQ(done->tensors, now->tensors);
  const std::vector<float> average = expected(world).at("transformer.ln_f.weight");
  const std::vector<float> exported = tensor_of_file(to, "transformer.ln_f.weight");
  ASSERT_EQ(exported.size(), average.size());
  for (size_t i = 0; i < average.size(); ++i) EXPECT_NEAR(exported[i], average[i], 1e-6);
}

const Layout kLayouts[] = {
    {"OneProcess", 1, 1, [](ParallelismSpec&) {}},
    {"Zero3", 2, 1, [](ParallelismSpec& spec) { spec.sharding = "parameters"; }},
    {"FirstRank", 2, 1, [](ParallelismSpec& spec) { spec.exchange = "firstRank"; }},
    {"Host", 1, 2, [](ParallelismSpec& spec) { spec.exchange = "host"; }},
    {"Pipeline", 2, 1, [](ParallelismSpec& spec) { spec.pipeline = 2; }},
    {"Offloaded", 1, 1,
     [](ParallelismSpec& spec) {
       spec.offload = "optimizer";
       spec.offloadPath = testing::TempDir();
     }},
};

INSTANTIATE_TEST_SUITE_P(Layouts, AveragesTest, testing::ValuesIn(kLayouts),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Averages, OfAJobThatKeepsNoneAreNotExported) {
  WorkerWorld::Options options;
  options.train.model = {.layers = 1, .width = 16, .heads = 2, .context = 16};
  options.train.steps = 2;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  const Result<ExportedWeights> done = export_weights(
      world.checkpoint_folder(2), world.folder().file("to"), {.kind = WeightsKind::kAverages});
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, Code::kInvalid);
  EXPECT_NE(done.error().message.find("has no moving averages"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::train
