#include "common/layout/convnet_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "common/layout/model_design.h"

namespace lockstep {
namespace {

int64_t trained_values(const ConvnetConfig& config) {
  int64_t count = 0;
  for (const Parameter& parameter : parameter_table(config)) {
    if (!parameter.is_statistic) count += parameter.count();
  }
  return count;
}

// Those of torchvision and of the papers.
TEST(Convnets, HaveTheNumberOfParametersThatTheirPapersSay) {
  EXPECT_EQ(trained_values(convnet_preset("lenet5")->config), 61706);
  EXPECT_EQ(trained_values(convnet_preset("resnet18")->config), 11689512);
  EXPECT_EQ(trained_values(convnet_preset("resnet50")->config), 25557032);
}

TEST(Convnets, HaveHiddenMatricesBetweenTheFirstLayerAndTheLast) {
  std::vector<std::string> lenet;
  for (const Parameter& parameter : parameter_table(convnet_preset("lenet5")->config)) {
    if (parameter.is_hidden_matrix) lenet.push_back(parameter.name);
  }
  EXPECT_EQ(lenet, (std::vector<std::string>{"conv2.weight", "fc1.weight", "fc2.weight"}));
  for (const ConvnetPreset& preset : convnet_presets()) {
    const std::vector<Parameter> table = parameter_table(preset.config);
    const auto is_hidden = [](const Parameter& each) { return each.is_hidden_matrix; };
    const auto is_matrix = [](const Parameter& each) { return each.rank == 2; };
    EXPECT_EQ(std::ranges::count_if(table, is_hidden), std::ranges::count_if(table, is_matrix) - 2)
        << preset.name;
  }
}

TEST(Convnets, HaveUnitsThatFitTogether) {
  for (const ConvnetPreset& preset : convnet_presets()) {
    ConvnetConfig config = preset.config;
    for (const int64_t edge : {preset.edge_min, config.height}) {
      config.height = edge;
      config.width = edge + 3;
      const std::vector<ConvUnit> units = convnet_units(config);
      for (size_t i = 0; i < units.size(); ++i) {
        const ConvUnit& unit = units[i];
        ASSERT_LT(unit.input, static_cast<int64_t>(i)) << preset.name;
        EXPECT_GE(unit.out_height(), 1) << preset.name << " " << unit.conv;
        EXPECT_GE(unit.out_width(), 1) << preset.name << " " << unit.conv;
        if (unit.shortcut < 0) continue;
        const ConvUnit& added = units[static_cast<size_t>(unit.shortcut)];
        EXPECT_EQ(added.out_values(), unit.conv_values()) << preset.name << " " << unit.conv;
        EXPECT_TRUE(unit.has_norm()) << "which adds it";
      }
      EXPECT_EQ(units.back().out_values(), config.classes);
    }
  }
}

TEST(Convnets, HaveConsecutiveParametersInEachBlock) {
  const ModelDesign design = convnet_preset("resnet20")->config;
  int64_t next = 0;
  for (int64_t block = 0; block < block_count(design); ++block) {
    for (const int64_t id : block_parameters(design, block)) EXPECT_EQ(id, next++);
  }
  EXPECT_EQ(next, std::ssize(parameter_table(design)));
  std::set<std::string> names;
  for (const Parameter& parameter : parameter_table(design)) names.insert(parameter.name);
  EXPECT_EQ(std::ssize(names), next);
  EXPECT_TRUE(names.contains("layer2.0.downsample.1.running_var"));
}

TEST(Convnets, AreCutBetweenLayersAndResidualBlocks) {
  for (const ConvnetPreset& preset : convnet_presets()) {
    SCOPED_TRACE(preset.name);
    const std::vector<ConvUnit> units = convnet_units(preset.config);
    int64_t next = 0;
    for (const Stage& piece : convnet_pieces(preset.config)) {
      EXPECT_EQ(piece.begin, next);
      EXPECT_GT(piece.end, piece.begin);
      next = piece.end;
      for (int64_t unit = piece.begin; unit < std::ssize(units); ++unit) {
        const ConvUnit& reads = units[static_cast<size_t>(unit)];
        for (const int64_t read : {reads.input, reads.shortcut}) {
          if (read == -1 || read >= piece.begin) continue;
          EXPECT_EQ(read, piece.begin - 1) << "what passes to the stage";
        }
      }
    }
    EXPECT_EQ(next, std::ssize(units));
  }
  EXPECT_EQ(stage_layers(convnet_preset("lenet5")->config), 5);
  EXPECT_EQ(stage_layers(convnet_preset("vgg11")->config), 9);
  EXPECT_EQ(stage_layers(convnet_preset("resnet20")->config), 11) << "9 blocks and 2 layers";
  EXPECT_EQ(stage_layers(convnet_preset("resnet50")->config), 18) << "16 blocks and 2 layers";
}

TEST(Convnets, HaveStagesOfAboutTheSameCost) {
  const ConvnetConfig config = convnet_preset("resnet20")->config;
  const Mesh mesh{.pipeline = 4};
  std::vector<int64_t> ends;
  for (int64_t stage = 0; stage < 4; ++stage) {
    const Stage blocks = pipeline_stage(config, 4, stage);
    EXPECT_EQ(blocks, stage_chunks(config, mesh, stage).front());
    EXPECT_EQ(blocks.begin, stage == 0 ? 0 : ends.back());
    ends.push_back(blocks.end);
  }
  EXPECT_EQ(ends.back(), block_count(config));
  EXPECT_EQ(edge_values(config, 1, ends[0]), 16 * 32 * 32);
  const Mesh given{.pipeline = 2, .part_layers = {4, 7}};
  EXPECT_EQ(part_problem(config, given), "");
  EXPECT_EQ(stage_chunks(config, given, 0), (std::vector<Stage>{{0, 7}}));
  EXPECT_EQ(stage_chunks(config, given, 1), (std::vector<Stage>{{7, block_count(config)}}));
}

TEST(Convnets, ShareBatchesOnlyIfTheirNormsAreSynchronized) {
  ConvnetConfig config = convnet_preset("resnet20")->config;
  EXPECT_TRUE(shares_batches(config));
  config.batch_norm = BatchNormScope::kLocal;
  EXPECT_FALSE(shares_batches(config));
  EXPECT_FALSE(shares_batches(MlpConfig{.inputs = 1, .outputs = 2}));
}

TEST(Convnets, OfSizesThatCannotBeBuiltAreRefusedByPath) {
  ConvnetConfig config = convnet_preset("lenet5")->config;
  config.height = 11;
  config.channels = 0;
  config.classes = 1;
  EXPECT_EQ(convnet_problems(config, "model"),
            (std::vector<std::string>{"model.imageHeight: 11 is not between 12 and 4096",
                                      "model.imageChannels: 0 is not between 1 and 1024",
                                      "model.outputs: 1 is not between 2 and 262144"}));
  EXPECT_EQ(validate(ModelDesign(convnet_preset("vgg11")->config), 2, "m").error().message,
            "m.family: a convnet is not split over 2 tensor-parallel ranks, expected 1");
}

}  // namespace
}  // namespace lockstep
