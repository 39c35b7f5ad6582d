#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "agent/model/init.h"
#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/model_state.h"
#include "agent/train/weights/export_weights.h"
#include "agent/train/weights/float_decode.h"
#include "agent/train/weights/hugging_face.h"
#include "agent/train/weights/import_weights.h"
#include "agent/train/weights/transpose.h"
#include "common/base/json.h"
#include "common/base/random.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep {
namespace {

const ModelConfig kSmall{.layers = 2, .width = 8, .heads = 2, .context = 4, .vocabulary = 11};
const ModelConfig kSmallLlama{.layers = 2,
                              .width = 8,
                              .heads = 2,
                              .context = 4,
                              .vocabulary = 11,
                              .family = Family::kLlama,
                              .hidden = 6,
                              .tied = false,
                              .kv_heads = 1};

// The elements of one value of a 16-bit type.
float decoded(const char* dtype, int bits) {
  const auto word = static_cast<uint16_t>(bits);
  char bytes[2];
  std::memcpy(bytes, &word, sizeof(word));
  float value = 0;
  decode_floats(dtype, bytes, 1, &value);
  return value;
}

TEST(FloatDecode, WidensEveryF16Exactly) {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    double expected =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) expected = std::numeric_limits<double>::infinity();
    if (bits >= 1 << 15) expected = -expected;
    const float value = decoded("F16", bits);
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value), expected) << bits;
    }
    ASSERT_EQ(std::signbit(value), bits >= 1 << 15) << bits;
  }
}

TEST(FloatDecode, WidensBf16AsTheUpperHalfAndKeepsF32) {
  EXPECT_EQ(decoded("BF16", 0x3fc0), 1.5f);
  EXPECT_EQ(decoded("BF16", 0xc2f7), -123.5f);
  EXPECT_EQ(std::bit_cast<uint32_t>(decoded("BF16", 0x7fc1)), 0x7fc10000u);
  const float values[] = {1.25f, -0.0f, std::numeric_limits<float>::denorm_min()};
  char bytes[sizeof(values)];
  std::memcpy(bytes, values, sizeof(values));
  float back[3];
  decode_floats("F32", bytes, 3, back);
  EXPECT_EQ(std::memcmp(back, values, sizeof(values)), 0);
  for (const char* dtype : {"F64", "I16", "U8", "F8_E4M3", ""}) EXPECT_FALSE(is_float_dtype(dtype));
}

TEST(Transpose, PutsEveryElementInItsPlace) {
  for (const MatrixSize size :
       {MatrixSize{1, 1}, {1, 70}, {70, 1}, {32, 32}, {33, 31}, {64, 96}, {100, 37}}) {
    std::vector<float> from(static_cast<size_t>(size.rows * size.columns));
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
    std::vector<float> to(from.size(), -1);
    transpose(from.data(), size, to.data());
    for (int64_t r = 0; r < size.rows; ++r) {
      for (int64_t c = 0; c < size.columns; ++c) {
        ASSERT_EQ(to[static_cast<size_t>(c * size.rows + r)],
                  from[static_cast<size_t>(r * size.columns + c)])
            << size.rows << " x " << size.columns;
      }
    }
  }
}

// What Hugging Face's file of the model has, all in F32.
std::vector<TensorFileWriter::Shape> shapes_of(const ModelConfig& config) {
  std::vector<TensorFileWriter::Shape> shapes;
  for (const Parameter& parameter : parameter_table(config)) {
    for (const StoredTensorInfo& stored : hugging_face_tensors(parameter)) {
      shapes.push_back({stored.name, stored.shape});
    }
  }
  return shapes;
}

// A header that lies without gaps.
SafetensorsHeader header_of(const std::vector<TensorFileWriter::Shape>& shapes) {
  SafetensorsHeader header;
  uint64_t at = 0;
  for (const auto& [name, dims] : shapes) {
    const uint64_t end = at + 4 * static_cast<uint64_t>(element_count(dims).value());
    header.tensors.push_back({name, "F32", dims, at, end});
    at = end;
  }
  return header;
}

TensorInfo& tensor_of(SafetensorsHeader& header, const std::string& name) {
  for (TensorInfo& tensor : header.tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << name;
  return header.tensors.front();
}

TEST(HuggingFace, HasTheNamesAndShapesOfItsGpt2) {
  // Of `GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=8, n_positions=4, vocab_size=11))`.
  const std::vector<std::pair<std::string, std::vector<int64_t>>> expected = {
      {"transformer.wte.weight", {11, 8}},
      {"transformer.wpe.weight", {4, 8}},
      {"transformer.h.0.ln_1.weight", {8}},
      {"transformer.h.0.ln_1.bias", {8}},
      {"transformer.h.0.attn.c_attn.weight", {8, 24}},
      {"transformer.h.0.attn.c_attn.bias", {24}},
      {"transformer.h.0.attn.c_proj.weight", {8, 8}},
      {"transformer.h.0.attn.c_proj.bias", {8}},
      {"transformer.h.0.ln_2.weight", {8}},
      {"transformer.h.0.ln_2.bias", {8}},
      {"transformer.h.0.mlp.c_fc.weight", {8, 32}},
      {"transformer.h.0.mlp.c_fc.bias", {32}},
      {"transformer.h.0.mlp.c_proj.weight", {32, 8}},
      {"transformer.h.0.mlp.c_proj.bias", {8}}};
  const std::vector<TensorFileWriter::Shape> shapes = shapes_of(kSmall);
  ASSERT_EQ(shapes.size(), 2u + 2 * 12 + 2);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(shapes[i].name, expected[i].first);
    EXPECT_EQ(shapes[i].dims, expected[i].second) << shapes[i].name;
  }
  EXPECT_EQ(shapes[shapes.size() - 2].name, "transformer.ln_f.weight");
  EXPECT_EQ(shapes.back().name, "transformer.ln_f.bias");
}

TEST(HuggingFace, FindsEveryTensorWithAndWithoutThePrefix) {
  for (const bool prefixed : {true, false}) {
    std::vector<TensorFileWriter::Shape> shapes = shapes_of(kSmall);
    if (!prefixed) {
      for (auto& shape : shapes) shape.name = shape.name.substr(std::strlen("transformer."));
    }
    shapes.insert(shapes.begin(), {"lm_head.weight", {11, 8}});
    const std::string prefix = prefixed ? "transformer." : "";
    shapes.push_back({prefix + "h.0.attn.bias", {1, 1, 4, 4}});
    shapes.push_back({prefix + "h.1.attn.masked_bias", {}});
    SafetensorsHeader header = header_of(shapes);
    tensor_of(header, prefix + "wte.weight").dtype = "F16";
    tensor_of(header, prefix + "wpe.weight").dtype = "BF16";
    const Result<HuggingFaceWeights> found = match_hugging_face(header, kSmall);
    ASSERT_TRUE(found.ok()) << found.error().message;
    const std::vector<Parameter> table = parameter_table(kSmall);
    ASSERT_EQ(found->parameters.size(), table.size());
    for (size_t i = 0; i < table.size(); ++i) {
      ASSERT_EQ(found->parameters[i].size(), 1u);
      EXPECT_TRUE(table[i].name.ends_with(found->parameters[i][0]->name));
    }
    ASSERT_NE(found->head, nullptr);
    EXPECT_EQ(found->head->name, "lm_head.weight");
  }
}

TEST(HuggingFace, NamesWhatIsAnotherModels) {
  const std::string c_attn = "transformer.h.1.attn.c_attn.weight";
  const struct {
    const char* what;
    std::function<void(SafetensorsHeader&)> change;
    std::vector<const char*> words;
  } cases[] = {
      {"no tensors", [](auto& header) { header.tensors.clear(); }, {"wte.weight is missing"}},
      {"no positions",
       [](auto& header) { header.tensors.erase(header.tensors.begin() + 1); },
       {"wpe.weight is missing", "GPT-2"}},
      {"an embedding that is no matrix",
       [](auto& header) { header.tensors[0].shape = {88}; },
       {"wte.weight is F32 [88], expected a matrix"}},
      {"a missing tensor",
       [](auto& header) { header.tensors.pop_back(); },
       {"ln_f.bias is missing, expected F32, F16 or BF16 [8]"}},
      {"another dtype",
       [&](auto& header) { tensor_of(header, c_attn).dtype = "F64"; },
       {"h.1.attn.c_attn.weight is F64 [8, 24], expected F32, F16 or BF16 [8, 24]"}},
      {"another shape",
       [&](auto& header) {
         tensor_of(header, c_attn).shape = {8, 16};
       },
       {"h.1.attn.c_attn.weight is F32 [8, 16], expected F32, F16 or BF16 [8, 24]"}},
      {"a checkpoint of ours",
       [&](auto& header) {
         tensor_of(header, c_attn).shape = {24, 8};
       },
       {"is F32 [24, 8], expected F32, F16 or BF16 [8, 24]", "lockstep export"}},
      {"a head of another shape",
       [](auto& header) {
         header.tensors.push_back({"lm_head.weight", "F32", {12, 8}, 0, 384});
       },
       {"lm_head.weight is F32 [12, 8], expected F32, F16 or BF16 [11, 8]"}},
      {"a part of another model",
       [](auto& header) {
         header.tensors.push_back({"score.weight", "F32", {2, 8}, 0, 64});
       },
       {"score.weight, F32 [2, 8], has no place"}},
      {"the same name with and without the prefix",
       [](auto& header) {
         header.tensors.push_back({"ln_f.bias", "F32", {8}, 0, 32});
       },
       {"ln_f.bias, F32 [8], has no place"}},
      {"a block beyond the last, in part",
       [](auto& header) {
         header.tensors.push_back({"transformer.h.2.ln_2.bias", "F32", {8}, 0, 32});
       },
       {"transformer.h.2.ln_2.bias, F32 [8], has no place"}},
  };
  for (const auto& c : cases) {
    SafetensorsHeader header = header_of(shapes_of(kSmall));
    c.change(header);
    const Result<HuggingFaceWeights> found = match_hugging_face(header, kSmall);
    ASSERT_FALSE(found.ok()) << c.what;
    EXPECT_EQ(found.error().code, Code::kInvalid) << c.what;
    for (const char* word : c.words) {
      EXPECT_NE(found.error().message.find(word), std::string::npos) << found.error().message;
    }
  }
}

TEST(HuggingFace, HasTheNamesAndShapesOfItsLlama) {
  // Of `LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, hidden_size=8, num_attention_heads=2,
  // num_key_value_heads=1, intermediate_size=6, vocab_size=11))`.
  const std::vector<std::pair<std::string, std::vector<int64_t>>> expected = {
      {"model.embed_tokens.weight", {11, 8}},
      {"model.layers.0.input_layernorm.weight", {8}},
      {"model.layers.0.self_attn.q_proj.weight", {8, 8}},
      {"model.layers.0.self_attn.k_proj.weight", {4, 8}},
      {"model.layers.0.self_attn.v_proj.weight", {4, 8}},
      {"model.layers.0.self_attn.o_proj.weight", {8, 8}},
      {"model.layers.0.post_attention_layernorm.weight", {8}},
      {"model.layers.0.mlp.gate_proj.weight", {6, 8}},
      {"model.layers.0.mlp.up_proj.weight", {6, 8}},
      {"model.layers.0.mlp.down_proj.weight", {8, 6}}};
  const std::vector<TensorFileWriter::Shape> shapes = shapes_of(kSmallLlama);
  ASSERT_EQ(shapes.size(), 1u + 2 * 9 + 2);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(shapes[i].name, expected[i].first);
    EXPECT_EQ(shapes[i].dims, expected[i].second) << shapes[i].name;
  }
  EXPECT_EQ(shapes[shapes.size() - 2].name, "model.norm.weight");
  EXPECT_EQ(shapes.back().name, "lm_head.weight");
}

TEST(HuggingFace, NamesWhatIsAnotherThanTheJobsLlama) {
  const std::string k_proj = "model.layers.1.self_attn.k_proj.weight";
  const auto with = [](auto change) {
    ModelConfig config = kSmallLlama;
    change(config);
    return config;
  };
  const struct {
    ModelConfig job;
    std::function<void(SafetensorsHeader&)> change;
    std::string words;
  } cases[] = {
      {with([](ModelConfig& c) { c.hidden = 0; }),
       {},
       "spec.train.model.hiddenWidth: 256, the file has 6"},
      {with([](ModelConfig& c) { c.kv_heads = 2; }),
       {},
       "spec.train.model.kvHeads: 2 of 4 values make keys of 8, the file has keys of 4"},
      {with([](ModelConfig& c) { c.layers = 1; }),
       {},
       "spec.train.model.layers: 1, the file has 2"},
      {kSmall, {}, "wte.weight is missing: these are no weights of a GPT-2"},
      {kSmallLlama, [&](auto& header) { tensor_of(header, k_proj).name = "other"; },
       k_proj + " is missing, expected F32, F16 or BF16 [4, 8]"},
      {kSmallLlama,
       [&](auto& header) {
         tensor_of(header, k_proj).shape = {8, 4};
       },
       k_proj + " is F32 [8, 4], expected F32, F16 or BF16 [4, 8]"},
      {kSmallLlama,
       [&](auto& header) {
         tensor_of(header, k_proj).name = "model.layers.1.self_attn.qkv_proj.weight";
       },
       "the file has it packed, as checkpoints of Lockstep do"},
      {kSmallLlama, [](auto& header) { header.tensors.pop_back(); }, "lm_head.weight is missing"},
      {kSmallLlama,
       [](auto& header) {
         header.tensors.push_back({"model.layers.0.self_attn.q_proj.bias", "F32", {8}, 0, 32});
       },
       "model.layers.0.self_attn.q_proj.bias, F32 [8], has no place in the model, expected a "
       "Llama"},
  };
  for (const auto& c : cases) {
    SafetensorsHeader header = header_of(shapes_of(kSmallLlama));
    if (c.change) c.change(header);
    const Result<HuggingFaceWeights> found = match_hugging_face(header, c.job);
    ASSERT_FALSE(found.ok()) << c.words;
    EXPECT_EQ(found.error().code, Code::kInvalid);
    EXPECT_NE(found.error().message.find(c.words), std::string::npos) << found.error().message;
  }
  SafetensorsHeader header = header_of(shapes_of(kSmallLlama));
  header.tensors.push_back({"model.layers.1.self_attn.rotary_emb.inv_freq", "F32", {2}, 0, 8});
  EXPECT_TRUE(match_hugging_face(header, kSmallLlama).ok()) << "a buffer of older versions";
}

TEST(HuggingFace, SaysWhichDimensionsOfTheJobWouldBeRight) {
  const SafetensorsHeader header = header_of(shapes_of(kSmall));
  ModelConfig job{.layers = 3, .width = 16, .heads = 2, .context = 5, .vocabulary = 256};
  const Result<HuggingFaceWeights> found = match_hugging_face(header, job);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message,
            "spec.train.model.layers: 3, the file has 2; spec.train.model.width: 16, the file has "
            "8; spec.train.model.context: 5, the file has 4; spec.train.model.vocabulary: 256, the "
            "file has 11");
}

class WeightsTest : public testing::Test {
 protected:
  // Numbers of a normal distribution in every place, as a checkpoint of one step.
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
    const ModelState state{.config = config,
                           .shard = {},
                           .arena = &arena,
                           .parameters = parameters_.data(),
                           .first_moments = moments.data(),
                           .second_moments = moments.data()};
    CheckpointFolder folder(folder_.file("checkpoints"), 3);
    EXPECT_TRUE(folder.prepare().ok());
    const Status saved =
        folder.save({.position = {.step = step}, .files = {}}, model_state_files(state), host_);
    EXPECT_TRUE(saved.ok());
    return folder_.file("checkpoints") + "/step-0000000" + std::to_string(step);
  }

  // All of a model's arena, from a file; what the parameters were before must be gone.
  Result<std::vector<float>> imported(const std::string& file, const ModelConfig& config) {
    const ParameterArena arena = parameter_arena(config, whole_model(config));
    std::vector<float> parameters(static_cast<size_t>(arena.count));
    for (const Parameter& parameter : parameter_table(config)) {
      std::fill_n(parameters.data() + arena.find(parameter.id)->offset, parameter.count(), NAN);
    }
    TRY(import_weights(file, config, arena, parameters.data(), host_));
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

  HostTransfer host_;
  TemporaryFolder folder_;
  std::vector<float> parameters_;
};

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
  expect_error(export_status(checkpoint, there), Code::kInvalid, there + " is there already");
  EXPECT_EQ(read_file(there), "mine");
  std::filesystem::create_directory(folder_.file("empty"));
  const std::string to = folder_.file("to");
  expect_error(export_status(folder_.file("empty"), to), Code::kNotFound, "no checkpoint");
  expect_error(export_status(folder_.file("nowhere"), to), Code::kNotFound, "nowhere");
  expect_error(export_status(checkpoint, folder_.file("no/folder")), Code::kNotFound, "no/folder");
  EXPECT_FALSE(std::filesystem::exists(to));
}

// Checkpoints whose tensors are none of a GPT-2 that can be built; the whole is as a manifest says.
TEST_F(WeightsTest, OfHostileCheckpointsAreRefusedAndLeaveNothing) {
  float zeros[64] = {};
  const struct {
    std::vector<StoredTensor> tensors;
    const char* words;
  } cases[] = {
      {{{"w", {2}, {{zeros, 0, 2}}}}, "wte.weight is missing"},
      {{{"wte.weight", {4, 2}, {{zeros, 0, 8}}}, {"wpe.weight", {2, 2}, {{zeros, 0, 4}}}},
       "layers: 0 is not between"},
      {{{"wte.weight", {int64_t{1} << 40, 0}, {}},
        {"wpe.weight", {1, 0}, {}},
        {"h.0.ln_1.weight", {0}, {}}},
       "vocabulary: 1099511627776 is not between"},
      {{{"transformer.wte.weight", {4, 2}, {{zeros, 0, 8}}},
        {"transformer.wpe.weight", {2, 2}, {{zeros, 0, 4}}},
        {"transformer.h.1.ln_1.weight", {2}, {{zeros, 0, 2}}}},
       "expected transformer.h.0.ln_1.weight as F32 [2], it is not there"},
  };
  for (const auto& c : cases) {
    TemporaryFolder place;
    CheckpointFolder folder(place.path(), 1);
    const StoredFile file{"model.safetensors", c.tensors};
    ASSERT_TRUE(folder.save({.position = {.step = 1}, .files = {}}, {&file, 1}, host_).ok());
    expect_error(export_status(place.path(), place.file("to")), Code::kInvalid, c.words);
    EXPECT_FALSE(std::filesystem::exists(place.file("to")));
    EXPECT_FALSE(std::filesystem::exists(place.file("to.unfinished")));
  }
}

TEST_F(WeightsTest, WithAHeadOfTheirOwnAreRefusedWhereTheModelsIsTied) {
  const std::vector<TensorFileWriter::Shape> shapes = [] {
    std::vector<TensorFileWriter::Shape> with_head = shapes_of(kSmall);
    with_head.push_back({"lm_head.weight", {11, 8}});
    return with_head;
  }();
  for (const bool tied : {true, false}) {
    const std::string file = folder_.file(tied ? "tied" : "untied");
    Result<TensorFileWriter> writer = TensorFileWriter::create(file, shapes);
    ASSERT_TRUE(writer.ok());
    for (const TensorFileWriter::Shape& shape : shapes) {
      std::vector<float> values(static_cast<size_t>(element_count(shape.dims).value()), 0.5f);
      if (!tied && shape.name == "lm_head.weight") values.back() = 0.25f;
      ASSERT_TRUE(writer->put(values).ok());
    }
    ASSERT_TRUE(writer->finish().ok());
    if (tied) {
      EXPECT_TRUE(import_status(file).ok());
    } else {
      expect_error(import_status(file), Code::kInvalid,
                   "lm_head.weight differs from transformer.wte.weight");
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

// A model's tensors in files of their own, and the index of them.
class WeightFilesTest : public WeightsTest {
 protected:
  // The i-th tensor, every element i, in the file that `name_of` says.
  template <class NameOf>
  void write_files(NameOf name_of) {
    const std::vector<TensorFileWriter::Shape> shapes = shapes_of(kSmallLlama);
    std::map<std::string, std::vector<size_t>> files;
    for (size_t i = 0; i < shapes.size(); ++i) {
      files[name_of(i)].push_back(i);
      map_[shapes[i].name] = name_of(i);
    }
    for (const auto& [name, tensors] : files) {
      std::vector<TensorFileWriter::Shape> of_file;
      for (const size_t i : tensors) of_file.push_back(shapes[i]);
      Result<TensorFileWriter> writer = TensorFileWriter::create(folder_.file(name), of_file);
      ASSERT_TRUE(writer.ok());
      for (const size_t i : tensors) {
        const auto count = static_cast<size_t>(element_count(shapes[i].dims).value());
        ASSERT_TRUE(writer->put(std::vector<float>(count, static_cast<float>(i))).ok());
      }
      ASSERT_TRUE(writer->finish().ok());
    }
  }
  std::string write_index() {
    return folder_.write("w.index.json", Json{{"weight_map", map_}}.dump());
  }
  Status status_of_index() {
    const Result<std::vector<float>> result = imported(write_index(), kSmallLlama);
    return result.ok() ? Status() : Status(result.error());
  }

  Json map_ = Json::object();
};

TEST_F(WeightFilesTest, OfSeveralFilesAreReadByTheirIndex) {
  write_files([](size_t i) { return "part-" + std::to_string(i % 3); });
  const Result<std::vector<float>> parameters = imported(write_index(), kSmallLlama);
  ASSERT_TRUE(parameters.ok()) << parameters.error().message;
  const ParameterArena arena = parameter_arena(kSmallLlama, whole_model(kSmallLlama));
  size_t tensor = 0;
  for (const Parameter& parameter : parameter_table(kSmallLlama)) {
    const auto offset = static_cast<size_t>(arena.find(parameter.id)->offset);
    for (const StoredTensorInfo& stored : hugging_face_tensors(parameter)) {
      const auto columns = static_cast<size_t>(parameter.dims[1]);
      const size_t first = offset + static_cast<size_t>(stored.first_row) * columns;
      const size_t last = first + static_cast<size_t>(stored.rows) * columns - 1;
      EXPECT_EQ((*parameters)[first], static_cast<float>(tensor)) << stored.name;
      EXPECT_EQ((*parameters)[last], static_cast<float>(tensor)) << stored.name;
      ++tensor;
    }
  }
}

TEST_F(WeightFilesTest, AreRefusedWhereTheIndexSaysOtherwise) {
  write_files([](size_t i) { return i < 10 ? "one" : "two"; });
  const Json good = map_;
  map_["model.norm.weight"] = "one";
  expect_error(status_of_index(), Code::kInvalid, "model.norm.weight is not in one");
  map_ = good;
  map_["lm_head.weight"] = "three";
  expect_error(status_of_index(), Code::kNotFound, "three");
  map_["lm_head.weight"] = "../one";
  expect_error(status_of_index(), Code::kCorrupt, "expected the name of a file in the same folder");
  map_["lm_head.weight"] = 3;
  expect_error(status_of_index(), Code::kCorrupt, "lm_head.weight");
  map_ = Json::object();
  expect_error(status_of_index(), Code::kCorrupt, "weight_map");
  for (const char* text : {"", "[]", "{\"weight_map\": []}", "{\"weight_map\""}) {
    expect_error(import_status(folder_.write("none.json", text)), Code::kCorrupt, "none.json");
  }
  map_ = good;
  std::filesystem::copy_file(folder_.file("two"), folder_.file("copy"));
  map_["lm_head.weight"] = "copy";
  expect_error(status_of_index(), Code::kInvalid, "is in two files");
}

TEST_F(WeightsTest, OfFilesThatAreNoneAreRefusedWithThePath) {
  const std::string good = folder_.file("good");
  ASSERT_TRUE(export_weights(save_checkpoint(kSmall), good).ok());
  const std::string bytes = read_file(good);
  expect_error(import_status(folder_.file("nowhere")), Code::kNotFound, folder_.file("nowhere"));
  EXPECT_FALSE(import_status(folder_.path()).ok()) << "a folder";
  expect_error(import_status(folder_.write("empty", "")), Code::kCorrupt, folder_.file("empty"));
  expect_error(import_status(folder_.write("pickle", std::string(64, '\x80'))), Code::kCorrupt,
               folder_.file("pickle"));
  for (const size_t size : {size_t{7}, size_t{100}, bytes.size() - 1}) {
    expect_error(import_status(folder_.write("short", bytes.substr(0, size))), Code::kCorrupt,
                 folder_.file("short"));
  }
}

TEST_F(WeightsTest, OfMutatedFilesAreReadOrRefusedWithoutHarm) {
  const std::string file = folder_.file("weights");
  ASSERT_TRUE(export_weights(save_checkpoint(kSmall), file).ok());
  const std::string good = read_file(file);
  const size_t header = good.find("}}") + 2;
  Random random(5);
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::string bytes = good;
    for (uint64_t n = random.below(3) + 1; n-- > 0;) {
      bytes[random.below(header)] = static_cast<char>(random.below(256));
    }
    refused += import_status(folder_.write("mutated", bytes)).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 400);
}

}  // namespace
}  // namespace lockstep
