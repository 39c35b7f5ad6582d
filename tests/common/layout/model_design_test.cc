#include "common/layout/model_design.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const ModelDesign kGpt = ModelConfig{
    .layers = 2, .width = 16, .heads = 2, .context = 8, .vocabulary = 17, .family = Family::kLlama};
const MlpConfig kMlp{.inputs = 4, .hidden = {16, 8}, .outputs = 3};

TEST(ModelDesign, OfATransformerIsItsConfigs) {
  const auto& config = std::get<ModelConfig>(kGpt);
  EXPECT_EQ(family_name(kGpt), "llama");
  EXPECT_EQ(transformer_of(kGpt), &config);
  EXPECT_EQ(block_count(kGpt), 4);
  EXPECT_EQ(parameter_count(kGpt), parameter_count(config));
  EXPECT_EQ(block_parameters(kGpt, 3), block_parameters(config, 3));
  EXPECT_EQ(tokens_per_sample(kGpt), 8);
  EXPECT_EQ(residual_layers(kGpt), 2);
  EXPECT_TRUE(is_tied(kGpt));
  EXPECT_FALSE(is_tied(ModelConfig{.tied = false}));
  EXPECT_EQ(flops_per_sample(kGpt, 5, FlopsFormula::kPalm),
            5 * flops_per_token(config, 5, FlopsFormula::kPalm));
}

TEST(ModelDesign, OfAnMlpHasItsLayersAsBlocks) {
  const ModelDesign design = kMlp;
  EXPECT_EQ(family_name(design), "mlp");
  EXPECT_EQ(transformer_of(design), nullptr);
  EXPECT_FALSE(is_tied(design));
  EXPECT_EQ(whole_model(design), (Stage{0, 3}));
  EXPECT_EQ(parameter_count(design), 4 * 16 + 16 + 16 * 8 + 8 + 8 * 3 + 3);
  EXPECT_EQ(tokens_per_sample(design), 0);
  EXPECT_EQ(flops_per_sample(design, 1, FlopsFormula::kCausal), 6 * (4 * 16 + 16 * 8 + 8 * 3));
  for (int64_t block = 0; block < 3; ++block) {
    std::vector<int64_t> ids;
    for (const Parameter& parameter : parameter_table(design)) {
      if (parameter.block == block) ids.push_back(parameter.id);
    }
    EXPECT_EQ(block_parameters(design, block), ids);
  }
  const ParameterArena arena = parameter_arena(design, {1, 3});
  ASSERT_EQ(arena.entries.size(), 4u);
  EXPECT_EQ(arena.find(1), nullptr);
  EXPECT_EQ(arena.find(3)->offset, 128);
  EXPECT_EQ(arena.find(3)->count, 8);
  EXPECT_EQ(arena.count % 16, 0);
}

TEST(StageChunks, AreThePartsOfAStageInTheirOrder) {
  ModelConfig config = std::get<ModelConfig>(kGpt);
  config.layers = 9;
  const ModelDesign design = config;
  const Mesh mesh{.pipeline = 2, .virtual_stages = 3};
  // Six parts, of which the first three have two layers.
  EXPECT_EQ(stage_chunks(design, mesh, 0), (std::vector<Stage>{{0, 3}, {5, 7}, {8, 9}}));
  EXPECT_EQ(stage_chunks(design, mesh, 1), (std::vector<Stage>{{3, 5}, {7, 8}, {9, 11}}));
  EXPECT_EQ(blocks_of(stage_chunks(design, mesh, 1)), (std::vector<int64_t>{3, 4, 7, 9, 10}));
  EXPECT_EQ(stage_chunks(design, {}, 0), (std::vector<Stage>{whole_model(design)}));
}

TEST(ModelDesign, IsCutIntoThePartsThatAreGiven) {
  const ModelDesign design = ModelConfig{.layers = 9};
  Mesh mesh{.pipeline = 2, .virtual_stages = 2, .part_layers = {1, 5, 1, 2}};
  EXPECT_EQ(part_problem(design, mesh), "");
  EXPECT_EQ(stage_chunks(design, mesh, 0), (std::vector<Stage>{{0, 2}, {7, 8}}));
  EXPECT_EQ(stage_chunks(design, mesh, 1), (std::vector<Stage>{{2, 7}, {8, 11}}));
  const ModelDesign mlp = MlpConfig{.inputs = 4, .hidden = {8, 8}, .outputs = 2};
  const Mesh two{.pipeline = 2, .part_layers = {2, 1}};
  EXPECT_EQ(part_problem(mlp, two), "");
  EXPECT_EQ(stage_chunks(mlp, two, 0), (std::vector<Stage>{{0, 2}}));
  EXPECT_EQ(stage_chunks(mlp, two, 1), (std::vector<Stage>{{2, 3}}));
  mesh.part_layers = {9};
  EXPECT_EQ(part_problem(design, mesh),
            "found 1 numbers, expected 4, one for each of pipeline x virtualStages parts");
  for (const std::vector<int64_t>& wrong :
       {std::vector<int64_t>{3, 3, 3, 0}, {3, 3, 3, 1}, {1, 1, 1, 1}}) {
    mesh.part_layers = wrong;
    EXPECT_EQ(part_problem(design, mesh),
              "expected numbers of at least 1 whose sum is the layers, 9");
  }
}

TEST(ModelDesign, OfAnMlpIsCutByTheCostOfItsLayers) {
  const ModelDesign mlp = MlpConfig{.inputs = 100, .hidden = {100, 10, 10}, .outputs = 2};
  EXPECT_EQ(stage_layers(mlp), 4);
  EXPECT_EQ(pipeline_stage(mlp, 2, 0), (Stage{0, 1}));
  EXPECT_EQ(pipeline_stage(mlp, 2, 1), (Stage{1, 4}));
  EXPECT_EQ(edge_values(mlp, 1, 1), 100);
  EXPECT_EQ(edge_values(mlp, 1, 3), 10);
  EXPECT_EQ(edge_values(kGpt, 5, 2), 5 * 16);
}

TEST(ModelDesign, NamesTheProblemsOfAnyFamily) {
  EXPECT_TRUE(validate(kGpt).ok());
  EXPECT_TRUE(validate(ModelDesign(kMlp)).ok());
  const Status status = validate(ModelDesign(MlpConfig{.inputs = 0, .outputs = 1}), 1, "m");
  EXPECT_EQ(status.error().message,
            "m.inputs: 0 is not between 1 and 262144\nm.outputs: 1 classes, expected at least 2");
}

TEST(BatchDesign, NamesTheTensorsOfAFamilyAndWhatCounts) {
  const BatchDesign text = batch_design(kGpt, 5);
  EXPECT_EQ(text.tensors, (std::vector<BatchTensor>{{"tokens", TensorType::kI32, 5},
                                                    {"targets", TensorType::kI32, 5}}));
  EXPECT_EQ(text.counted, 5);
  EXPECT_EQ(text.bytes(3), 3 * 10 * 4);
  const BatchDesign classes = batch_design(kMlp, 1);
  EXPECT_EQ(classes.tensors, (std::vector<BatchTensor>{{"features", TensorType::kF32, 4},
                                                       {"labels", TensorType::kI32, 1}}));
  EXPECT_EQ(classes.counted, 1);
  EXPECT_TRUE(classes.has_accuracy);
  MlpConfig regression = kMlp;
  regression.task = MlpTask::kRegression;
  const BatchDesign values = batch_design(regression, 1);
  EXPECT_EQ(values.tensors[1], (BatchTensor{"values", TensorType::kF32, 3}));
  EXPECT_EQ(values.counted, 3);
  EXPECT_FALSE(values.has_accuracy);
}

}  // namespace
}  // namespace lockstep
