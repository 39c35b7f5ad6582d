#include "common/layout/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

namespace lockstep {
namespace {

const ModelConfig kTiny{2, 16, 2, 8, 17};

TEST(ParameterTable, IsAsHuggingFaceNamesIt) {
  const std::vector<Parameter> table = parameter_table(kTiny);
  ASSERT_EQ(table.size(), 2u + 2 * 12 + 2);
  std::map<std::string, const Parameter*> by_name;
  for (size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(table[i].id, static_cast<int64_t>(i));
    by_name[table[i].name] = &table[i];
  }
  const Parameter& qkv = *by_name.at("transformer.h.1.attn.c_attn.weight");
  EXPECT_EQ(qkv.dims, (std::array<int64_t, 2>{48, 16}));
  EXPECT_EQ(qkv.block, 2);
  EXPECT_EQ(qkv.shard_axis, 0);
  EXPECT_EQ(qkv.parts.size(), 3u);
  EXPECT_TRUE(qkv.weight_decay);
  const Parameter& out = *by_name.at("transformer.h.0.mlp.c_proj.weight");
  EXPECT_EQ(out.dims, (std::array<int64_t, 2>{16, 64}));
  EXPECT_EQ(out.shard_axis, 1);
  EXPECT_EQ(out.init, Init::kResidualNormal);
  const Parameter& scale = *by_name.at("transformer.ln_f.weight");
  EXPECT_EQ(scale.rank, 1);
  EXPECT_EQ(scale.init, Init::kOne);
  EXPECT_FALSE(scale.weight_decay);
}

const Parameter& find(const std::vector<Parameter>& table, const std::string& name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Parameter& parameter) {
    return parameter.name == name;
  });
  CHECK(found != table.end());
  return *found;
}

// Query width 16, key and value width 8, hidden width 24.
ModelConfig tiny_llama(bool tied) {
  return {.layers = 2,
          .width = 16,
          .heads = 4,
          .context = 8,
          .vocabulary = 17,
          .family = Family::kLlama,
          .hidden = 24,
          .tied = tied,
          .kv_heads = 2};
}

TEST(ParameterTable, OfALlamaIsAsHuggingFaceNamesItButForWhatIsPacked) {
  const std::vector<Parameter> table = parameter_table(tiny_llama(false));
  std::vector<std::string> names;
  for (const Parameter& parameter : table) {
    if (parameter.block != 1) names.push_back(parameter.name);
    EXPECT_EQ(parameter.id, &parameter - table.data());
  }
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          "model.embed_tokens.weight", "model.layers.1.input_layernorm.weight",
          "model.layers.1.self_attn.qkv_proj.weight", "model.layers.1.self_attn.o_proj.weight",
          "model.layers.1.post_attention_layernorm.weight",
          "model.layers.1.mlp.gate_up_proj.weight", "model.layers.1.mlp.down_proj.weight",
          "model.norm.weight", "lm_head.weight"}));
  const Parameter& qkv = find(table, "model.layers.1.self_attn.qkv_proj.weight");
  EXPECT_EQ(qkv.shape(), (std::vector<int64_t>{32, 16}));
  ASSERT_EQ(qkv.parts.size(), 3u);
  EXPECT_EQ(qkv.parts[0].name, "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(qkv.parts[0].rows, 16);
  EXPECT_EQ(qkv.parts[2].name, "model.layers.1.self_attn.v_proj.weight");
  EXPECT_EQ(qkv.parts[2].rows, 8);
  const Parameter& gate_up = find(table, "model.layers.0.mlp.gate_up_proj.weight");
  EXPECT_EQ(gate_up.shape(), (std::vector<int64_t>{48, 16}));
  ASSERT_EQ(gate_up.parts.size(), 2u);
  EXPECT_EQ(gate_up.parts[1].name, "model.layers.0.mlp.up_proj.weight");
  const Parameter& down = find(table, "model.layers.0.mlp.down_proj.weight");
  EXPECT_EQ(down.shape(), (std::vector<int64_t>{16, 24}));
  EXPECT_EQ(down.shard_axis, 1);
  EXPECT_EQ(find(table, "model.norm.weight").init, Init::kOne);
  EXPECT_EQ(parameter_table(tiny_llama(true)).size(), table.size() - 1);
}

const ModelConfig kModels[] = {kTiny, tiny_llama(true), tiny_llama(false)};

// Returns how many blocks, of different stages, use a parameter: a tied embedding is the head too.
int users_of(const Parameter& parameter, const ModelConfig& config) {
  return config.tied && parameter.id == kTokenEmbedding ? 2 : 1;
}

TEST(BlockParameters, AreReadByOneBlockEachButForTheTiedEmbedding) {
  for (const ModelConfig& config : kModels) {
    std::map<int64_t, int> readers;
    for (int64_t block = 0; block < block_count(config); ++block) {
      const std::vector<int64_t> ids = block_parameters(config, block);
      EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
      for (const int64_t id : ids) ++readers[id];
    }
    for (const Parameter& parameter : parameter_table(config)) {
      EXPECT_EQ(readers[parameter.id], users_of(parameter, config)) << parameter.name;
    }
  }
}

TEST(ParameterArena, HoldsEveryParameterAlignedAndWithoutOverlap) {
  const ParameterArena arena = parameter_arena(kTiny, whole_model(kTiny));
  int64_t end = 0;
  int64_t elements = 0;
  for (const ArenaEntry& entry : arena.entries) {
    EXPECT_EQ(entry.offset % 16, 0);
    EXPECT_GE(entry.offset, end);
    EXPECT_LT(entry.offset - end, 16);
    EXPECT_TRUE(entry.counts_in_norm);
    EXPECT_EQ(arena.find(entry.id), &entry);
    end = entry.offset + entry.count;
    elements += entry.count;
  }
  EXPECT_EQ(elements, parameter_count(kTiny));
  EXPECT_GE(arena.count, end);
  EXPECT_EQ(arena.find(1000), nullptr);
}

TEST(ParameterArena, OfTwoStagesCountsEveryParameterOnce) {
  std::map<int64_t, int> held;
  std::map<int64_t, int> counted;
  for (int64_t index = 0; index < 2; ++index) {
    for (const ArenaEntry& entry :
         parameter_arena(kTiny, pipeline_stage(kTiny, 2, index)).entries) {
      ++held[entry.id];
      counted[entry.id] += entry.counts_in_norm ? 1 : 0;
    }
  }
  for (const Parameter& parameter : parameter_table(kTiny)) {
    EXPECT_EQ(held[parameter.id], users_of(parameter, kTiny)) << parameter.name;
    EXPECT_EQ(counted[parameter.id], 1) << parameter.name;
  }
}

// Returns which ranks hold each element of the logical tensor, according to the runs of all ranks.
std::vector<std::vector<int64_t>> holders(const ModelConfig& config, const Parameter& parameter,
                                          int64_t size) {
  std::vector<std::vector<int64_t>> at(static_cast<size_t>(parameter.count()));
  for (int64_t index = 0; index < size; ++index) {
    const TensorShard shard{index, size};
    const ParameterArena arena = parameter_arena(config, whole_model(config), shard);
    const ArenaEntry& entry = *arena.find(parameter.id);
    int64_t local_end = 0;
    for (const ShardRun& run : shard_runs(parameter, entry, shard)) {
      EXPECT_GE(run.local, local_end);
      local_end = run.local + run.count;
      EXPECT_LE(local_end, entry.count);
      for (int64_t i = 0; i < run.count; ++i) {
        at[static_cast<size_t>(run.global + i)].push_back(index);
      }
    }
  }
  return at;
}

TEST(ShardRuns, GiveEveryElementToOneShardOrToAll) {
  for (const ModelConfig& config : kModels) {
    for (const int64_t size : {1, 2}) {
      for (const Parameter& parameter : parameter_table(config)) {
        const size_t copies = parameter.shard_axis < 0 ? static_cast<size_t>(size) : 1;
        for (const std::vector<int64_t>& ranks : holders(config, parameter, size)) {
          ASSERT_EQ(ranks.size(), copies) << parameter.name;
        }
      }
    }
  }
}

TEST(ShardRuns, SplitQueriesKeysAndValuesByHeads) {
  const std::vector<Parameter> table = parameter_table(kTiny);
  const auto at = holders(kTiny, find(table, "transformer.h.0.attn.c_attn.weight"), 2);
  for (int64_t row = 0; row < 48; ++row) {
    EXPECT_EQ(at[static_cast<size_t>(row * 16)].front(), row % 16 / 8) << "row " << row;
  }
}

TEST(ShardRuns, SplitQueriesByTheirHeadsAndTheFewerKeysByTheirs) {
  const ModelConfig config = tiny_llama(true);
  const std::vector<Parameter> table = parameter_table(config);
  const auto at = holders(config, find(table, "model.layers.0.self_attn.qkv_proj.weight"), 2);
  for (int64_t row = 0; row < 32; ++row) {
    const int64_t expected = row < 16 ? row / 8 : row % 8 / 4;
    EXPECT_EQ(at[static_cast<size_t>(row * 16)].front(), expected) << "row " << row;
  }
}

}  // namespace
}  // namespace lockstep
