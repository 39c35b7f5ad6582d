#include "agent/train/weights/hugging_face.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/agent/train/small_weights.h"

namespace lockstep::train {
namespace {

TEST(HuggingFace, HasTheNamesAndShapesOfItsGpt2) {
  // From `GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=8, n_positions=4, vocab_size=11))`.
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
  const std::vector<WeightTensor> shapes = shapes_of(kSmall);
  ASSERT_EQ(shapes.size(), 2u + 2 * 12 + 2);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(shapes[i].name, expected[i].first);
    EXPECT_EQ(shapes[i].shape, expected[i].second) << shapes[i].name;
  }
  EXPECT_EQ(shapes[shapes.size() - 2].name, "transformer.ln_f.weight");
  EXPECT_EQ(shapes.back().name, "transformer.ln_f.bias");
}

TEST(HuggingFace, HasTheNamesAndShapesOfItsBert) {
  // From `BertForMaskedLM(BertConfig(num_hidden_layers=2, hidden_size=8, intermediate_size=6,
  // max_position_embeddings=4, vocab_size=11))`, in our order.
  const std::vector<std::pair<std::string, std::vector<int64_t>>> expected = {
      {"bert.embeddings.word_embeddings.weight", {11, 8}},
      {"bert.embeddings.position_embeddings.weight", {4, 8}},
      {"bert.embeddings.token_type_embeddings.weight", {2, 8}},
      {"bert.embeddings.LayerNorm.weight", {8}},
      {"bert.embeddings.LayerNorm.bias", {8}},
      {"bert.encoder.layer.0.attention.self.query.weight", {8, 8}},
      {"bert.encoder.layer.0.attention.self.key.weight", {8, 8}},
      {"bert.encoder.layer.0.attention.self.value.weight", {8, 8}},
      {"bert.encoder.layer.0.attention.self.query.bias", {8}},
      {"bert.encoder.layer.0.attention.self.key.bias", {8}},
      {"bert.encoder.layer.0.attention.self.value.bias", {8}},
      {"bert.encoder.layer.0.attention.output.dense.weight", {8, 8}},
      {"bert.encoder.layer.0.attention.output.dense.bias", {8}},
      {"bert.encoder.layer.0.attention.output.LayerNorm.weight", {8}},
      {"bert.encoder.layer.0.attention.output.LayerNorm.bias", {8}},
      {"bert.encoder.layer.0.intermediate.dense.weight", {6, 8}},
      {"bert.encoder.layer.0.intermediate.dense.bias", {6}},
      {"bert.encoder.layer.0.output.dense.weight", {8, 6}},
      {"bert.encoder.layer.0.output.dense.bias", {8}},
      {"bert.encoder.layer.0.output.LayerNorm.weight", {8}},
      {"bert.encoder.layer.0.output.LayerNorm.bias", {8}}};
  const std::vector<std::pair<std::string, std::vector<int64_t>>> head = {
      {"bert.encoder.layer.1.output.LayerNorm.weight", {8}},
      {"bert.encoder.layer.1.output.LayerNorm.bias", {8}},
      {"cls.predictions.transform.dense.weight", {8, 8}},
      {"cls.predictions.transform.dense.bias", {8}},
      {"cls.predictions.transform.LayerNorm.weight", {8}},
      {"cls.predictions.transform.LayerNorm.bias", {8}},
      {"cls.predictions.bias", {11}}};
  const std::vector<WeightTensor> shapes = shapes_of(kSmallBert);
  ASSERT_EQ(shapes.size(), 5u + 2 * 16 + 5);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(shapes[i].name, expected[i].first);
    EXPECT_EQ(shapes[i].shape, expected[i].second) << shapes[i].name;
  }
  for (size_t i = 0; i < head.size(); ++i) {
    const WeightTensor& found = shapes[shapes.size() - head.size() + i];
    EXPECT_EQ(found.name, head[i].first);
    EXPECT_EQ(found.shape, head[i].second) << found.name;
  }
  EXPECT_EQ(shapes_of(untied(kSmallBert)).size(), shapes.size() + 1);
}

TEST(HuggingFace, TakesABertsFileWithWhatOtherHeadsNeed) {
  std::vector<WeightTensor> shapes = shapes_of(kSmallBert);
  for (const auto& [name, dims] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
           {"bert.embeddings.position_ids", {1, 4}},
           {"bert.pooler.dense.weight", {8, 8}},
           {"bert.pooler.dense.bias", {8}},
           {"cls.seq_relationship.weight", {2, 8}},
           {"cls.seq_relationship.bias", {2}},
           {"cls.predictions.decoder.bias", {11}},
           {"cls.predictions.decoder.weight", {11, 8}}}) {
    shapes.push_back({name, dims});
  }
  const SafetensorsHeader header = header_of(shapes);
  const Result<HuggingFaceWeights> found = match_hugging_face(header, kSmallBert);
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_NE(found->head, nullptr);
  EXPECT_EQ(found->head->name, "cls.predictions.decoder.weight");
  EXPECT_TRUE(match_hugging_face(header_of(shapes), untied(kSmallBert)).ok());
  shapes.push_back({"classifier.weight", {2, 8}});
  const Result<HuggingFaceWeights> other = match_hugging_face(header_of(shapes), kSmallBert);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("classifier.weight"), std::string::npos);
  const Result<HuggingFaceWeights> gpt =
      match_hugging_face(header_of(shapes_of(kSmall)), kSmallBert);
  ASSERT_FALSE(gpt.ok());
  EXPECT_NE(gpt.error().message.find("not the weights of a BERT"), std::string::npos)
      << gpt.error().message;
}

TEST(HuggingFace, FindsEveryTensorWithAndWithoutThePrefix) {
  for (const bool prefixed : {true, false}) {
    std::vector<WeightTensor> shapes = shapes_of(kSmall);
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
       {"score.weight, F32 [2, 8], is not part of the model"}},
      {"the same name with and without the prefix",
       [](auto& header) {
         header.tensors.push_back({"ln_f.bias", "F32", {8}, 0, 32});
       },
       {"ln_f.bias, F32 [8], is not part of the model"}},
      {"a block beyond the last, in part",
       [](auto& header) {
         header.tensors.push_back({"transformer.h.2.ln_2.bias", "F32", {8}, 0, 32});
       },
       {"transformer.h.2.ln_2.bias, F32 [8], is not part of the model"}},
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
  // From `LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, hidden_size=8, num_attention_heads=2,
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
  const std::vector<WeightTensor> shapes = shapes_of(kSmallLlama);
  ASSERT_EQ(shapes.size(), 1u + 2 * 9 + 2);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(shapes[i].name, expected[i].first);
    EXPECT_EQ(shapes[i].shape, expected[i].second) << shapes[i].name;
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
      {kSmall, {}, "wte.weight is missing: these are not the weights of a GPT-2"},
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
       "the file has it packed, like Lockstep checkpoints"},
      {kSmallLlama, [](auto& header) { header.tensors.pop_back(); }, "lm_head.weight is missing"},
      {kSmallLlama,
       [](auto& header) {
         header.tensors.push_back({"model.layers.0.self_attn.q_proj.bias", "F32", {8}, 0, 32});
       },
       "model.layers.0.self_attn.q_proj.bias, F32 [8], is not part of the model; expected the "
       "weights of a plain Llama"},
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
            "8; spec.train.model.context: 5, the file has 4 positions, expected at most as many; "
            "spec.train.model.vocabulary: 256, the file has 11");
}

TEST(HuggingFace, AcceptsMorePositionsThanTheContext) {
  ModelConfig job = kSmall;
  job.context = 3;
  SafetensorsHeader header = header_of(shapes_of(kSmall));
  const Result<HuggingFaceWeights> found = match_hugging_face(header, job);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->parameters[kPositionEmbedding].front()->shape, (std::vector<int64_t>{4, 8}));
  tensor_of(header, "transformer.wpe.weight").shape = {4, 7};
  const Result<HuggingFaceWeights> narrow = match_hugging_face(header, job);
  ASSERT_FALSE(narrow.ok());
  EXPECT_NE(
      narrow.error().message.find("wpe.weight is F32 [4, 7], expected F32, F16 or BF16 [3, 8] "
                                  "or more rows"),
      std::string::npos)
      << narrow.error().message;
}

TEST(HuggingFace, AcceptsMoreRowsOfNoOtherTensor) {
  for (const char* name : {"transformer.wte.weight", "transformer.h.0.attn.c_attn.weight"}) {
    SafetensorsHeader header = header_of(shapes_of(kSmall));
    ++tensor_of(header, name).shape[0];
    EXPECT_FALSE(match_hugging_face(header, kSmall).ok()) << name;
  }
}

}  // namespace
}  // namespace lockstep::train
