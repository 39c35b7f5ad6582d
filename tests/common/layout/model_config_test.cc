#include "common/layout/model_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "common/layout/cost.h"
#include "common/layout/device_peak.h"
#include "common/layout/parameters.h"

namespace lockstep {
namespace {

// Tables, blocks of four matrices of C x C and two of C x 4C with their biases and norms, and the
// head's transform and bias.
int64_t bert_parameters(int64_t layers, int64_t c) {
  const int64_t vocabulary = 30522;
  return (vocabulary + 512 + 2) * c + 2 * c + layers * (12 * c * c + 13 * c) + c * c + 3 * c +
         vocabulary;
}

// Counts in the published weights: OpenAI's for GPT-2, meta-llama's repositories on Hugging Face
// for Llama. For BERT: BertForMaskedLM's of bert-base-uncased and bert-large-uncased, and by the
// same formula.
TEST(ModelPreset, HasThePublishedNumberOfParameters) {
  const std::pair<std::string, int64_t> published[] = {
      {"gpt2-124m", 124'439'808},
      {"gpt2-350m", 354'823'168},
      {"gpt2-774m", 774'030'080},
      {"gpt2-1.5b", 1'557'611'200},
      {"llama-2-7b", 6'738'415'616},
      {"llama-2-13b", 13'015'864'320},
      {"llama-2-70b", 68'976'648'192},
      {"llama-3-8b", 8'030'261'248},
      {"llama-3-70b", 70'553'706'496},
      {"llama-3.1-8b", 8'030'261'248},
      {"llama-3.1-70b", 70'553'706'496},
      {"llama-3.1-405b", 405'853'388'800},
      {"llama-3.2-1b", 1'235'814'400},
      {"llama-3.2-3b", 3'212'749'824},
      {"bert-tiny", bert_parameters(2, 128)},
      {"bert-mini", bert_parameters(4, 256)},
      {"bert-small", bert_parameters(4, 512)},
      {"bert-base", 109'514'298},
      {"bert-large", 335'174'458},
  };
  EXPECT_EQ(bert_parameters(12, 768), 109'514'298);
  const std::vector<std::string> names = model_preset_names();
  ASSERT_EQ(names.size(), std::size(published));
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(names[i], published[i].first);
    const Result<ModelConfig> config = model_preset(names[i]);
    ASSERT_TRUE(config.ok()) << names[i];
    EXPECT_EQ(parameter_count(*config), published[i].second) << names[i];
    EXPECT_TRUE(validate(*config).ok()) << names[i];
  }
}

TEST(ModelPreset, NamesTheKnownOnesWhenAskedForAnother) {
  const Result<ModelConfig> config = model_preset("gpt3");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, Code::kNotFound);
  EXPECT_NE(config.error().message.find("gpt2-124m, gpt2-350m, gpt2-774m, gpt2-1.5b"),
            std::string::npos);
}

TEST(ModelValidation, NamesTheFieldTheValueAndWhatWouldBeRight) {
  struct Case {
    ModelConfig config;
    int64_t tensor;
    std::string problem;
  };
  const ModelConfig good{4, 128, 4, 128, 256};
  const auto with = [&](auto change) {
    ModelConfig config = good;
    change(config);
    return config;
  };
  const std::vector<Case> cases{
      {with([](ModelConfig& c) { c.layers = 0; }), 1, "m.layers: 0 is not between 1 and 1024"},
      {with([](ModelConfig& c) { c.width = -8; }), 1, "m.width: -8 is not between 1 and 65536"},
      {with([](ModelConfig& c) { c.context = int64_t{1} << 40; }), 1,
       "m.context: 1099511627776 is not between 1 and 1048576"},
      {with([](ModelConfig& c) { c.vocabulary = 1; }), 1,
       "m.vocabulary: 1 is not between 2 and 16777216"},
      {with([](ModelConfig& c) { c.heads = 3; }), 1, "m.heads: 3 does not divide m.width: 128"},
      {good, 3, "m.heads: 4 is not a multiple of the tensor-parallel size 3"},
      {good, 0, "m.heads: 4 is not a multiple of the tensor-parallel size 0"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(model_problems(c.config, c.tensor, "m"), std::vector<std::string>{c.problem});
  }
  EXPECT_TRUE(model_problems(good, 4, "m").empty());
}

TEST(ModelValidation, KnowsTheRulesOfALlama) {
  const ModelConfig good{.layers = 4,
                         .width = 128,
                         .heads = 8,
                         .context = 128,
                         .vocabulary = 256,
                         .family = Family::kLlama,
                         .kv_heads = 2};
  for (const int64_t tensor : {1, 2, 4, 8}) {
    EXPECT_TRUE(model_problems(good, tensor, "m").empty());
  }
  EXPECT_EQ(good.hidden_width(), 512) << "8/3 of 128 is 341, up to a multiple of 256";
  const auto with = [&](auto change) {
    ModelConfig config = good;
    change(config);
    return config;
  };
  const std::vector<std::tuple<ModelConfig, int64_t, std::string>> cases{
      {with([](ModelConfig& c) { c.kv_heads = 3; }), 1, "m.kvHeads: 3 does not divide m.heads: 8"},
      {with([](ModelConfig& c) {
         c.width = 144;
         c.heads = 12;
         c.hidden = 24;
         c.kv_heads = 3;
       }),
       4, "m.kvHeads: 3 is not a multiple of the tensor-parallel size 4, nor divides it"},
      {with([](ModelConfig& c) { c.kv_heads = -1; }), 1, "m.kvHeads: -1 is not between 0 and 1024"},
      {with([](ModelConfig& c) { c.hidden = 301; }), 2,
       "m.hiddenWidth: 301 is not a multiple of the tensor-parallel size 2"},
      {with([](ModelConfig& c) { c.width = 24; }), 1,
       "m.heads: 8 makes heads of 3 values, expected an even number (rotary embedding rotates "
       "pairs)"},
      {with([](ModelConfig& c) { c.rotary_base = 1; }), 1,
       "m.ropeBase: expected a number above 1, at most 1e12"},
      {with([](ModelConfig& c) { c.rotary_scaling.factor = 0.5; }), 1,
       "m.ropeScaling.factor: expected a number from 1 to 1e6"},
      {with([](ModelConfig& c) { c.rotary_scaling.low_turns = 4; }), 1,
       "m.ropeScaling.highFrequencyFactor: expected a number above lowFrequencyFactor, which is "
       "above 0; at most 1e6"},
      {with([](ModelConfig& c) { c.rotary_scaling.original_context = 0; }), 1,
       "m.ropeScaling.originalContext: 0 is not between 1 and 1048576"},
      {with([](ModelConfig& c) { c.norm_epsilon = std::nan(""); }), 1,
       "m.normEpsilon: expected a number above 0, at most 1"},
      {with([](ModelConfig& c) { c.family = Family::kGpt2; }), 1,
       "m.kvHeads: only valid with family: llama"},
      {{.layers = 1, .width = 8, .heads = 2, .context = 8, .vocabulary = 9, .norm_epsilon = 1e-6},
       1,
       "m.normEpsilon: only valid with family: llama or bert"},
  };
  for (const auto& [config, tensor, problem] : cases) {
    EXPECT_EQ(model_problems(config, tensor, "m"), std::vector<std::string>{problem});
  }
}

TEST(ModelFamily, HasANameForEachAndRefusesOthers) {
  for (const Family family : {Family::kGpt2, Family::kLlama, Family::kBert}) {
    EXPECT_EQ(family_from_name(family_name(family)).value(), family);
  }
  EXPECT_EQ(family_from_name("mamba").error().message,
            "[model family] expected gpt2, llama or bert, got \"mamba\"");
}

TEST(ModelValidation, ReportsEveryProblemAtOnce) {
  const Status status =
      validate({.layers = 0, .width = 8, .heads = 0, .context = 8, .vocabulary = 8});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kInvalid);
  EXPECT_EQ(status.error().message,
            "model.layers: 0 is not between 1 and 1024\nmodel.heads: 0 is not between 1 and 1024");
}

TEST(PipelineStage, OfTheHeadHasFewerLayersIfTheHeadCostsThem) {
  const auto cut = [](const ModelConfig& config, int64_t size) {
    std::vector<int64_t> layers;
    for (int64_t index = 0; index < size; ++index) {
      layers.push_back(layer_count(pipeline_stage(config, size, index), config));
    }
    return layers;
  };
  ModelConfig gpt2 = *model_preset("gpt2-124m");  // its head costs as much as five layers
  EXPECT_EQ(cut(gpt2, 1), std::vector<int64_t>{12});
  EXPECT_EQ(cut(gpt2, 2), (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(cut(gpt2, 4), (std::vector<int64_t>{4, 4, 3, 1}));
  EXPECT_EQ(cut(gpt2, 12), std::vector<int64_t>(12, 1));
  gpt2.vocabulary = 256;
  EXPECT_EQ(cut(gpt2, 2), (std::vector<int64_t>{6, 6}));
  EXPECT_EQ(cut(gpt2, 5), (std::vector<int64_t>{3, 3, 2, 2, 2}));
}

TEST(PipelineStage, CoversEveryBlockOnceWithLayersSpreadEvenly) {
  const ModelConfig config{7, 16, 2, 8, 17};
  for (int64_t size = 1; size <= config.layers; ++size) {
    int64_t next = 0;
    for (int64_t index = 0; index < size; ++index) {
      const Stage stage = pipeline_stage(config, size, index);
      EXPECT_EQ(stage.begin, next);
      EXPECT_GE(layer_count(stage, config), config.layers / size);
      EXPECT_LE(layer_count(stage, config), config.layers / size + 1);
      EXPECT_EQ(has_head(stage, config), index == size - 1);
      next = stage.end;
    }
    EXPECT_EQ(next, block_count(config));
  }
}

TEST(PaddedVocabulary, FillsUpLargeVocabulariesToTilesAndSmallOnesToShards) {
  const ModelConfig gpt2 = *model_preset("gpt2-124m");
  EXPECT_EQ(padded_vocabulary(gpt2, 1), 50304);
  EXPECT_EQ(padded_vocabulary(gpt2, 4), 50432);
  EXPECT_EQ(padded_vocabulary({4, 128, 4, 128, 256}, 1), 256);
  EXPECT_EQ(padded_vocabulary({2, 16, 2, 8, 17}, 2), 18);
}

TEST(FlopsPerToken, AgreesWithThePublishedFormulas) {
  const ModelConfig gpt2 = *model_preset("gpt2-124m");
  EXPECT_NEAR(flops_per_token(gpt2, 1024, FlopsFormula::kPalm), 0.860e9, 0.0005e9);
  EXPECT_NEAR(flops_per_token(gpt2, 1024, FlopsFormula::kCausal), 0.803e9, 0.0005e9);
  const double blocks = 72.0 * 12 * 768 * 768;
  EXPECT_DOUBLE_EQ(flops_per_token(gpt2, 1024, FlopsFormula::kProducts),
                   blocks + 6.0 * 50304 * 768);
}

TEST(FlopsPerToken, OfALlamaCountsTheHeadButNotTheLookUp) {
  const ModelConfig llama = *model_preset("llama-3.1-8b");
  // 7.50e9 parameters without the embedding (8.03e9 - 128256 * 4096).
  const double attention = 32.0 * 4096 * 8192;
  EXPECT_NEAR(flops_per_token(llama, 8192, FlopsFormula::kPalm), 6 * 7.504924672e9 + 12 * attention,
              1e3);
  // q, k, v, out, and the three matrices of the MLP.
  const double matrices = 32.0 * 4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336);
  EXPECT_DOUBLE_EQ(flops_per_token(llama, 8192, FlopsFormula::kProducts),
                   6 * (matrices + 128256.0 * 4096));
}

TEST(DatasheetFlops, AreThoseOfTheDeviceByItsWholeName) {
  EXPECT_EQ(datasheet_flops_per_second("NVIDIA H200"), 989e12);
  EXPECT_EQ(datasheet_bytes_per_second("NVIDIA H200"), 4.8e12);
  EXPECT_EQ(datasheet_flops_per_second("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(datasheet_flops_per_second("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(datasheet_flops_per_second("NVIDIA H200 NVL"), 835.5e12);
  EXPECT_EQ(datasheet_flops_per_second("NVIDIA H100 PCIe"), 756.5e12);
  EXPECT_EQ(datasheet_flops_per_second("NVIDIA A100-SXM4-80GB MIG 3g.40gb"), 0)
      << "a part of the GPU";
  for (const char* unknown : {"", "NVIDIA", "NVIDIA H20", "NVIDIA H2000", "AMD EPYC"}) {
    EXPECT_EQ(datasheet_flops_per_second(unknown), 0) << unknown;
  }
}

}  // namespace
}  // namespace lockstep
