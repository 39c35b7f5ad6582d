// Small models and their weights, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/weights/export_weights.h"
#include "agent/train/weights/hugging_face.h"
#include "agent/train/weights/import_weights.h"
#include "agent/train/weights/weight_file_writer.h"
#include "common/base/random.h"
#include "tests/agent/train/temporary_folder.h"
#include "tests/agent/train/whole_state.h"

namespace lockstep::train {

inline const ModelConfig kSmall{
    .layers = 2, .width = 8, .heads = 2, .context = 4, .vocabulary = 11};
inline const ModelConfig kSmallLlama{.layers = 2,
                                     .width = 8,
                                     .heads = 2,
                                     .context = 4,
                                     .vocabulary = 11,
                                     .family = Family::kLlama,
                                     .hidden = 6,
                                     .tied = false,
                                     .kv_heads = 1};

inline const ModelConfig kSmallBert{.layers = 2,
                                    .width = 8,
                                    .heads = 2,
                                    .context = 4,
                                    .vocabulary = 11,
                                    .family = Family::kBert,
                                    .hidden = 6,
                                    .norm_epsilon = 1e-12};

inline ModelConfig untied(ModelConfig config) {
  config.tied = false;
  return config;
}

// Returns the tensors in Hugging Face's file of the model, all as F32.
inline std::vector<WeightTensor> shapes_of(const ModelConfig& config) {
  std::vector<WeightTensor> shapes;
  for (const Parameter& parameter : parameter_table(config)) {
    for (const StoredTensorInfo& stored : hugging_face_tensors(parameter)) {
      shapes.push_back({stored.name, stored.shape});
    }
  }
  return shapes;
}

// Returns a header whose tensors are stored without gaps.
inline SafetensorsHeader header_of(const std::vector<WeightTensor>& shapes) {
  SafetensorsHeader header;
  uint64_t at = 0;
  for (const auto& [name, dims] : shapes) {
    const uint64_t end = at + 4 * static_cast<uint64_t>(element_count(dims).value());
    header.tensors.push_back({name, "F32", dims, at, end});
    at = end;
  }
  return header;
}

inline TensorInfo& tensor_of(SafetensorsHeader& header, const std::string& name) {
  for (TensorInfo& tensor : header.tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << name;
  return header.tensors.front();
}

class WeightsTest : public testing::Test {
 protected:
  // Saves normally distributed values as the checkpoint of one step.
  std::string save_checkpoint(const ModelConfig& config, int64_t step = 7) {
    const ParameterArena arena = parameter_arena(config, whole_model(config));
    parameters_.assign(static_cast<size_t>(arena.count), 0.0f);
    Random random(static_cast<uint64_t>(step));
    const std::vector<Parameter> table = parameter_table(config);
    for (const ArenaEntry& entry : arena.entries) {
      const int64_t count = table[static_cast<size_t>(entry.id)].count();
      for (int64_t i = 0; i < count; ++i) {
        parameters_[static_cast<size_t>(entry.offset + i)] = random.normal();
      }
    }
    std::vector<float> moments(parameters_.size());
    WholeState state(config, {parameters_.data(), moments.data(), moments.data()}, host_);
    EXPECT_TRUE(
        state.save(folder_.file("checkpoints"), {.position = {.step = step}, .files = {}}).ok());
    return folder_.file("checkpoints") + "/step-0000000" + std::to_string(step);
  }

  // Imports a file into an arena filled with NaN, so that every parameter must be overwritten.
  Result<std::vector<float>> imported(const std::string& file, const ModelConfig& config) {
    const ParameterArena arena = parameter_arena(config, whole_model(config));
    std::vector<float> parameters(static_cast<size_t>(arena.count));
    for (const Parameter& parameter : parameter_table(config)) {
      std::fill_n(parameters.data() + arena.find(parameter.id)->offset, parameter.count(), NAN);
    }
    TRY(WholeState(config, {parameters.data()}, host_).import(file));
    return parameters;
  }

  void expect_error(const Status& status, Code code, const std::string& words) {
    ASSERT_FALSE(status.ok()) << words;
    EXPECT_EQ(status.error().code, code) << status.error().message;
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
  }
  Status import_status(const std::string& file) {
    const Result<std::vector<float>> result = imported(file, kSmall);
    return result.ok() ? Status() : Status(result.error());
  }
  Status export_status(const std::string& from, const std::string& to) {
    const Result<ExportedWeights> result = export_weights(from, to);
    return result.ok() ? Status() : Status(result.error());
  }

  parallel::HostTransfer host_;
  TemporaryFolder folder_;
  std::vector<float> parameters_;
};

}  // namespace lockstep::train
