#include "common/layout/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string>

#include "common/layout/model_design.h"

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

ModelConfig tiny_bert(bool tied) {
  return {.layers = 2,
          .width = 16,
          .heads = 4,
          .context = 8,
          .vocabulary = 17,
          .family = Family::kBert,
          .hidden = 24,
          .tied = tied,
          .norm_epsilon = 1e-12};
}

// A block begins with the norm of the layer before it, and the head's with the last layer's.
TEST(ParameterTable, OfABertHasANormAtTheBeginningOfEachBlock) {
  const std::vector<Parameter> table = parameter_table(tiny_bert(true));
  const std::map<std::string, int64_t> blocks = {
      {"bert.embeddings.word_embeddings.weight", 0},
      {"bert.embeddings.token_type_embeddings.weight", 0},
      {"bert.embeddings.LayerNorm.weight", 1},
      {"bert.encoder.layer.0.attention.self.qkv.weight", 1},
      {"bert.encoder.layer.0.attention.output.LayerNorm.bias", 1},
      {"bert.encoder.layer.0.output.dense.bias", 1},
      {"bert.encoder.layer.0.output.LayerNorm.weight", 2},
      {"bert.encoder.layer.1.output.LayerNorm.weight", 3},
      {"cls.predictions.transform.dense.weight", 3},
      {"cls.predictions.bias", 3}};
  for (const auto& [name, block] : blocks) EXPECT_EQ(find(table, name).block, block) << name;
  EXPECT_EQ(table.back().name, "cls.predictions.bias");
  EXPECT_TRUE(table.back().of_vocabulary);
  EXPECT_FALSE(table.back().weight_decay);
  EXPECT_TRUE(find(table, "cls.predictions.transform.dense.weight").works_on_rows);
  EXPECT_EQ(find(table, "bert.embeddings.token_type_embeddings.weight").id, kTypeEmbedding);
}

std::vector<std::string> hidden_matrices(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameter_table(config)) {
    if (parameter.is_hidden_matrix && parameter.block != 2) names.push_back(parameter.name);
  }
  return names;
}

TEST(Parameters, AreHiddenMatricesIfTheyAreNeitherEmbeddingsNorTheHead) {
  EXPECT_EQ(hidden_matrices(kTiny),
            (std::vector<std::string>{
                "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_proj.weight",
                "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_proj.weight"}));
  EXPECT_EQ(
      hidden_matrices(tiny_llama(false)),
      (std::vector<std::string>{
          "model.layers.0.self_attn.qkv_proj.weight", "model.layers.0.self_attn.o_proj.weight",
          "model.layers.0.mlp.gate_up_proj.weight", "model.layers.0.mlp.down_proj.weight"}));
  EXPECT_EQ(hidden_matrices(tiny_bert(false)),
            (std::vector<std::string>{"bert.encoder.layer.0.attention.self.qkv.weight",
                                      "bert.encoder.layer.0.attention.output.dense.weight",
                                      "bert.encoder.layer.0.intermediate.dense.weight",
                                      "bert.encoder.layer.0.output.dense.weight",
                                      "cls.predictions.transform.dense.weight"}));
}

const ModelConfig kModels[] = {kTiny, tiny_llama(true), tiny_llama(false), tiny_bert(true),
                               tiny_bert(false)};

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

TEST(ParameterArena, OfChunksCountsEveryParameterOnce) {
  ModelConfig config = kTiny;
  config.layers = 6;
  const Mesh mesh{.pipeline = 2, .virtual_stages = 3};
  std::map<int64_t, int> held;
  std::map<int64_t, int> counted;
  for (int64_t stage = 0; stage < mesh.pipeline; ++stage) {
    const ParameterArena arena = parameter_arena(config, stage_chunks(config, mesh, stage));
    EXPECT_TRUE(std::ranges::is_sorted(arena.entries, {}, &ArenaEntry::id));
    for (const ArenaEntry& entry : arena.entries) {
      ++held[entry.id];
      counted[entry.id] += entry.counts_in_norm ? 1 : 0;
    }
  }
  for (const Parameter& parameter : parameter_table(config)) {
    EXPECT_EQ(held[parameter.id], users_of(parameter, config)) << parameter.name;
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

// A Llama that `shards` ranks with `kv_heads` heads of keys and values can split.
ModelConfig grouped(int64_t kv_heads, int64_t shards) {
  const int64_t heads = std::lcm(kv_heads, shards);
  return {.layers = 1,
          .width = 2 * heads,
          .heads = heads,
          .context = 8,
          .vocabulary = 17,
          .family = Family::kLlama,
          .hidden = shards,
          .kv_heads = kv_heads};
}

// Calls it with each number of heads and shards up to 8, one of which divides the other.
void for_each_grouping(const std::function<void(const ModelConfig&, int64_t shards)>& check) {
  for (int64_t kv_heads = 1; kv_heads <= 8; ++kv_heads) {
    for (int64_t shards = 1; shards <= 8; ++shards) {
      if (kv_heads % shards != 0 && shards % kv_heads != 0) continue;
      SCOPED_TRACE(std::to_string(kv_heads) + " heads, " + std::to_string(shards) + " shards");
      const ModelConfig config = grouped(kv_heads, shards);
      ASSERT_TRUE(model_problems(config, shards).empty());
      check(config, shards);
    }
  }
}

TEST(ShardRuns, GiveEveryShardTheKeysAndValuesOfItsQueries) {
  for_each_grouping([](const ModelConfig& config, int64_t shards) {
    const Parameter qkv = find(parameter_table(config), "model.layers.0.self_attn.qkv_proj.weight");
    const auto at = holders(config, qkv, shards);
    const auto shards_of = [&](int64_t row) { return at[static_cast<size_t>(row * config.width)]; };
    for (int64_t key = 0; key < config.kv_head_count(); ++key) {
      std::vector<int64_t> expected;
      for (int64_t head = 0; head < config.heads; ++head) {
        if (head * config.kv_head_count() / config.heads != key) continue;
        const int64_t shard = shards_of(head * config.head_dim()).at(0);
        if (expected.empty() || expected.back() != shard) expected.push_back(shard);
      }
      const int64_t row = config.width + key * config.head_dim();
      for (int64_t i = 0; i < config.head_dim(); ++i) {
        EXPECT_EQ(shards_of(row + i), expected) << "keys of head " << key;
        EXPECT_EQ(shards_of(row + config.kv_width() + i), expected) << "values of head " << key;
      }
    }
  });
}

TEST(OwnedRuns, GiveEveryElementToItsFirstHolder) {
  for_each_grouping([](const ModelConfig& config, int64_t shards) {
    for (const Parameter& parameter : parameter_table(config)) {
      std::vector<std::vector<int64_t>> owners(static_cast<size_t>(parameter.count()));
      for (int64_t index = 0; index < shards; ++index) {
        const TensorShard shard{index, shards};
        const ParameterArena arena = parameter_arena(config, whole_model(config), shard);
        for (const ShardRun& run : owned_runs(parameter, *arena.find(parameter.id), shard)) {
          for (int64_t i = 0; i < run.count; ++i) {
            owners[static_cast<size_t>(run.global + i)].push_back(index);
          }
        }
      }
      const auto all = holders(config, parameter, shards);
      for (size_t element = 0; element < owners.size(); ++element) {
        ASSERT_EQ(owners[element], std::vector<int64_t>{all[element].front()}) << parameter.name;
      }
    }
  });
}

// Only elements that a shard uses in its own way add up: not those of a norm, which all use alike.
TEST(SharedRun, HasTheSplitElementsThatOtherShardsAlsoHave) {
  for_each_grouping([](const ModelConfig& config, int64_t shards) {
    for (const Parameter& parameter : parameter_table(config)) {
      const auto all = holders(config, parameter, shards);
      for (int64_t index = 0; index < shards; ++index) {
        const TensorShard shard{index, shards};
        const ParameterArena arena = parameter_arena(config, whole_model(config), shard);
        const ArenaEntry& entry = *arena.find(parameter.id);
        const SharedRun shared = shared_run(parameter, entry, shard);
        std::vector<int64_t> group;
        for (int64_t i = 0; i < shared.shards; ++i) {
          group.push_back(index / shared.shards * shared.shards + i);
        }
        for (const ShardRun& run : shard_runs(parameter, entry, shard)) {
          const bool is_in = run.local >= shared.local && run.local < shared.local + shared.count;
          const std::vector<int64_t> expected = is_in ? group : std::vector<int64_t>{index};
          if (parameter.shard_axis < 0) {
            EXPECT_FALSE(is_in);
            continue;
          }
          for (int64_t i = 0; i < run.count; ++i) {
            ASSERT_EQ(all[static_cast<size_t>(run.global + i)], expected) << parameter.name;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
