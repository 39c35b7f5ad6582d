#include "common/layout/mlp_config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

const MlpConfig kIris{.inputs = 4, .hidden = {16, 8}, .outputs = 3};

TEST(MlpParameters, AreNamedAsInANnSequential) {
  const std::vector<Parameter> table = parameter_table(kIris);
  std::vector<std::string> names;
  for (const Parameter& parameter : table) {
    EXPECT_EQ(parameter.id, &parameter - table.data());
    EXPECT_EQ(parameter.block, parameter.id / 2);
    EXPECT_EQ(parameter.shard_axis, -1);
    names.push_back(parameter.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias", "4.weight",
                                             "4.bias"}));
}

TEST(MlpParameters, AreMatricesOfOutputsByInputsWithBiases) {
  const std::vector<Parameter> table = parameter_table(kIris);
  EXPECT_EQ(table[0].shape(), (std::vector<int64_t>{16, 4}));
  EXPECT_EQ(table[1].shape(), (std::vector<int64_t>{16}));
  EXPECT_EQ(table[2].shape(), (std::vector<int64_t>{8, 16}));
  EXPECT_EQ(table[4].shape(), (std::vector<int64_t>{3, 8}));
  EXPECT_EQ(table[5].shape(), (std::vector<int64_t>{3}));
  for (const Parameter& parameter : table) {
    EXPECT_EQ(parameter.weight_decay, parameter.rank == 2) << parameter.name;
    EXPECT_EQ(parameter.is_hidden_matrix, parameter.name == "2.weight") << parameter.name;
  }
}

TEST(MlpParameters, BeginAsThoseOfNnLinear) {
  for (const Parameter& parameter : parameter_table(kIris)) {
    EXPECT_EQ(parameter.init, Init::kUniform) << parameter.name;
    EXPECT_EQ(parameter.fan_in, kIris.layer_inputs(parameter.block)) << parameter.name;
  }
}

TEST(MlpParameters, OfALinearModelAreOneLayer) {
  const MlpConfig linear{.inputs = 10, .outputs = 1, .task = MlpTask::kRegression};
  EXPECT_EQ(linear.layers(), 1);
  const std::vector<Parameter> table = parameter_table(linear);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].shape(), (std::vector<int64_t>{1, 10}));
  EXPECT_EQ(table[1].shape(), (std::vector<int64_t>{1}));
}

TEST(MlpProblems, NameTheFieldAndWhatIsRight) {
  struct Case {
    MlpConfig config;
    std::vector<std::string> problems;
  };
  const Case cases[] = {
      {kIris, {}},
      {{.inputs = 1, .outputs = 1, .task = MlpTask::kRegression}, {}},
      {{.inputs = kMlpWidthMax, .hidden = {kMlpWidthMax}, .outputs = kMlpWidthMax}, {}},
      {{.inputs = 0, .hidden = {8}, .outputs = 3}, {"m.inputs: 0 is not between 1 and 262144"}},
      {{.inputs = kMlpWidthMax + 1, .outputs = 3},
       {"m.inputs: 262145 is not between 1 and 262144"}},
      {{.inputs = 4, .hidden = {8, 0, 262145}, .outputs = 3},
       {"m.hidden[1]: 0 is not between 1 and 262144",
        "m.hidden[2]: 262145 is not between 1 and 262144"}},
      {{.inputs = 4, .hidden = std::vector<int64_t>(65, 2), .outputs = 3},
       {"m.hidden: 65 layers, expected at most 64"}},
      {{.inputs = 4, .outputs = 1}, {"m.outputs: 1 classes, expected at least 2"}},
      {{.inputs = 4, .outputs = 0, .task = MlpTask::kRegression},
       {"m.outputs: 0 is not between 1 and 262144"}},
      {{.inputs = -1, .outputs = kMlpWidthMax + 1},
       {"m.inputs: -1 is not between 1 and 262144",
        "m.outputs: 262145 is not between 1 and 262144"}},
  };
  for (const Case& c : cases) EXPECT_EQ(mlp_problems(c.config, "m"), c.problems);
}

TEST(MlpNames, AreReadBack) {
  for (const MlpActivation activation :
       {MlpActivation::kRelu, MlpActivation::kGelu, MlpActivation::kTanh}) {
    EXPECT_EQ(*mlp_activation_from_name(mlp_activation_name(activation)), activation);
  }
  for (const MlpTask task : {MlpTask::kClassification, MlpTask::kRegression}) {
    EXPECT_EQ(*mlp_task_from_name(mlp_task_name(task)), task);
  }
  EXPECT_EQ(mlp_activation_from_name("swish").error().message,
            "[mlp activation] expected one of relu, gelu, tanh, got \"swish\"");
  EXPECT_EQ(mlp_task_from_name("").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace lockstep
