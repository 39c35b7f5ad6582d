// Exporting weights from a checkpoint and importing them into a model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/file_io.h"
#include "agent/train/weights/weight_file_writer.h"
#include "common/base/crc32c.h"
#include "tests/agent/train/small_weights.h"

namespace lockstep::train {
namespace {

TEST_F(WeightsTest, GoOutAndInAgainBitForBitAlsoWithAPaddedVocabulary) {
  ModelConfig large = kSmall;
  large.vocabulary = 5000;
  ASSERT_GT(padded_vocabulary(large, 1), large.vocabulary);
  ModelConfig large_llama = kSmallLlama;
  large_llama.vocabulary = 5000;
  ModelConfig tied_llama = kSmallLlama;
  tied_llama.tied = true;
  const struct {
    ModelConfig config;
    int64_t tensors;
  } cases[] = {{kSmall, 28}, {large, 28}, {kSmallLlama, 21}, {large_llama, 21}, {tied_llama, 20}};
  int number = 0;
  for (const auto& [config, tensors] : cases) {
    const std::string checkpoint = save_checkpoint(config);
    const std::string file = folder_.file("weights-" + std::to_string(number++));
    const Result<ExportedWeights> exported = export_weights(checkpoint, file);
    ASSERT_TRUE(exported.ok()) << exported.error().message;
    EXPECT_EQ(exported->checkpoint, checkpoint);
    EXPECT_EQ(exported->step, 7);
    EXPECT_EQ(exported->tensors, tensors);
    EXPECT_EQ(exported->parameters, parameter_count(config));
    const Result<std::vector<float>> back = imported(file, config);
    ASSERT_TRUE(back.ok()) << back.error().message;
    // Gaps and padding are zero in both.
    EXPECT_EQ(std::memcmp(back->data(), parameters_.data(), parameters_.size() * sizeof(float)), 0);
  }
}

TEST_F(WeightsTest, OfMorePositionsThanTheContextGiveItsFirstOnes) {
  const std::string file = folder_.file("weights");
  ASSERT_TRUE(export_weights(save_checkpoint(kSmall), file).ok());
  ModelConfig shorter = kSmall;
  shorter.context = 3;
  const Result<std::vector<float>> parameters = imported(file, shorter);
  ASSERT_TRUE(parameters.ok()) << parameters.error().message;
  const ParameterArena ours = parameter_arena(shorter, whole_model(shorter));
  const ParameterArena theirs = parameter_arena(kSmall, whole_model(kSmall));
  for (const Parameter& parameter : parameter_table(shorter)) {
    const float* here = parameters->data() + ours.find(parameter.id)->offset;
    const float* there = parameters_.data() + theirs.find(parameter.id)->offset;
    EXPECT_TRUE(std::equal(here, here + parameter.count(), there)) << parameter.name;
  }
}

TEST_F(WeightsTest, OfFewerPositionsThanTheContextAreRefused) {
  const std::string file = folder_.file("weights");
  ASSERT_TRUE(export_weights(save_checkpoint(kSmall), file).ok());
  ModelConfig longer = kSmall;
  longer.context = 5;
  const Result<std::vector<float>> parameters = imported(file, longer);
  ASSERT_FALSE(parameters.ok());
  const std::string words = file + ": spec.train.model.context: 5, the file has 4 positions";
  expect_error(parameters.error(), Code::kInvalid, words);
  expect_error(check_weights(file, longer), Code::kInvalid, words);
}

TEST_F(WeightsTest, AreWrittenWithTheirMatricesTransposed) {
  const std::string file = folder_.file("weights");
  ASSERT_TRUE(export_weights(save_checkpoint(kSmall), file).ok());
  const Result<TensorFile> weights = TensorFile::open(file);
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(weights->header().metadata.at("format"), "pt");
  ASSERT_EQ(weights->header().tensors.size(), shapes_of(kSmall).size());
  std::vector<float> c_attn(8 * 24);
  const TensorPiece piece{c_attn.data(), 0, 8 * 24};
  ASSERT_TRUE(weights->read("transformer.h.1.attn.c_attn.weight", {8, 24}, {&piece, 1}).ok());
  const ParameterArena arena = parameter_arena(kSmall, whole_model(kSmall));
  for (const Parameter& parameter : parameter_table(kSmall)) {
    if (parameter.name != "transformer.h.1.attn.c_attn.weight") continue;
    const float* ours = parameters_.data() + arena.find(parameter.id)->offset;
    for (size_t in = 0; in < 8; ++in) {
      for (size_t out = 0; out < 24; ++out) {
        EXPECT_EQ(c_attn[in * 24 + out], ours[out * 8 + in]) << in << " " << out;
      }
    }
  }
}

TEST_F(WeightsTest, OfTheNewestCheckpointThatVerifiesAreTaken) {
  save_checkpoint(kSmall, 5);
  const std::vector<float> fifth = parameters_;
  const std::string newer = save_checkpoint(kSmall, 9);
  std::filesystem::resize_file(newer + "/model.safetensors", 100);
  const Result<ExportedWeights> exported =
      export_weights(folder_.file("checkpoints"), folder_.file("weights"));
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  EXPECT_EQ(exported->step, 5);
  EXPECT_EQ(imported(folder_.file("weights"), kSmall).value(), fifth);
  expect_error(export_status(newer, folder_.file("other")), Code::kCorrupt, "model.safetensors");
}

TEST_F(WeightsTest, AreNotWrittenOverAFileNorOfWhatIsNoCheckpoint) {
  const std::string checkpoint = save_checkpoint(kSmall);
  const std::string there = folder_.write("there", "mine");
  expect_error(export_status(checkpoint, there), Code::kInvalid, there + " already exists");
  EXPECT_EQ(read_file(there), "mine");
  std::filesystem::create_directory(folder_.file("empty"));
  const std::string to = folder_.file("to");
  expect_error(export_status(folder_.file("empty"), to), Code::kNotFound, "no valid checkpoint");
  expect_error(export_status(folder_.file("nowhere"), to), Code::kNotFound, "nowhere");
  expect_error(export_status(checkpoint, folder_.file("no/folder")), Code::kNotFound, "no/folder");
  EXPECT_FALSE(std::filesystem::exists(to));
}

// Stores a complete checkpoint of step 1 with these tensors.
void store_zeros(const TemporaryFolder& place, const std::vector<WeightTensor>& tensors) {
  const std::string folder = place.file("step-00000001");
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/model.safetensors";
  WeightFileWriter writer = WeightFileWriter::create(path, tensors, kernels::DType::kF32).value();
  for (const WeightTensor& tensor : tensors) {
    const std::vector<float> zeros(static_cast<size_t>(element_count(tensor.shape).value()));
    ASSERT_TRUE(writer.put(zeros).ok());
  }
  ASSERT_TRUE(writer.finish().ok());
  const std::string bytes = read_file(path);
  const Manifest manifest{.position = {.step = 1},
                          .files = {{.name = "model.safetensors",
                                     .bytes = bytes.size(),
                                     .chunks = {crc32c(bytes.data(), bytes.size())}}}};
  ASSERT_TRUE(write_file_synced(folder + "/manifest.json", format_manifest(manifest)).ok());
}

// Checkpoints whose tensors are not those of a valid GPT-2, although they match their manifest.
TEST_F(WeightsTest, OfHostileCheckpointsAreRefusedAndLeaveNothing) {
  const struct {
    std::vector<WeightTensor> tensors;
    const char* words;
  } cases[] = {
      {{{"w", {2}}}, "wte.weight is missing"},
      {{{"wte.weight", {4, 2}}, {"wpe.weight", {2, 2}}}, "layers: 0 is not between"},
      {{{"transformer.wte.weight", {4, 2}},
        {"transformer.wpe.weight", {2, 2}},
        {"transformer.h.1.ln_1.weight", {2}}},
       "expected transformer.h.0.ln_1.weight as F32 [2], it is missing"},
  };
  for (const auto& c : cases) {
    TemporaryFolder place;
    store_zeros(place, c.tensors);
    expect_error(export_status(place.path(), place.file("to")), Code::kInvalid, c.words);
    EXPECT_FALSE(std::filesystem::exists(place.file("to")));
    EXPECT_FALSE(std::filesystem::exists(place.file("to.unfinished")));
  }
}

TEST_F(WeightsTest, WithAHeadOfTheirOwnAreRefusedWhereTheModelsIsTied) {
  const std::vector<WeightTensor> shapes = [] {
    std::vector<WeightTensor> with_head = shapes_of(kSmall);
    with_head.push_back({"lm_head.weight", {11, 8}});
    return with_head;
  }();
  for (const bool tied : {true, false}) {
    const std::string file = folder_.file(tied ? "tied" : "untied");
    Result<WeightFileWriter> writer = WeightFileWriter::create(file, shapes, kernels::DType::kF32);
    ASSERT_TRUE(writer.ok());
    for (const WeightTensor& shape : shapes) {
      std::vector<float> values(static_cast<size_t>(element_count(shape.shape).value()), 0.5f);
      if (!tied && shape.name == "lm_head.weight") values.back() = 0.25f;
      ASSERT_TRUE(writer->put(values).ok());
    }
    ASSERT_TRUE(writer->finish().ok());
    if (tied) {
      EXPECT_TRUE(import_status(file).ok());
      EXPECT_TRUE(check_weights(file, kSmall).ok());
    } else {
      const char* differs = "lm_head.weight differs from transformer.wte.weight";
      expect_error(import_status(file), Code::kInvalid, differs);
      expect_error(check_weights(file, kSmall), Code::kInvalid, differs);
      ModelConfig own_head = kSmall;
      own_head.tied = false;
      const Result<std::vector<float>> parameters = imported(file, own_head);
      ASSERT_TRUE(parameters.ok()) << parameters.error().message;
      const ParameterArena arena = parameter_arena(own_head, whole_model(own_head));
      const ArenaEntry& head = arena.entries.back();
      EXPECT_EQ((*parameters)[static_cast<size_t>(head.offset + head.count - 1)], 0.25f);
    }
  }
}

}  // namespace
}  // namespace lockstep::train
