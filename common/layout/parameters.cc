#include "common/layout/parameters.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

constexpr int64_t kAlignment = 16;  // floats

int64_t aligned(int64_t count) {
  return (count + kAlignment - 1) / kAlignment * kAlignment;
}

class TableBuilder {
 public:
  explicit TableBuilder(int64_t block) : block_(block) {}

  void set_block(int64_t block) { block_ = block; }

  void matrix(std::string name, int64_t out, int64_t in, int shard_axis,
              Init init = Init::kNormal) {
    add({.name = std::move(name),
         .dims = {out, in},
         .rank = 2,
         .shard_axis = shard_axis,
         .weight_decay = true,
         .init = init});
  }
  // Adds the matrix of a layer between the embeddings and the outputs.
  void hidden(std::string name, int64_t out, int64_t in, int shard_axis,
              Init init = Init::kNormal) {
    matrix(std::move(name), out, in, shard_axis, init);
    last().is_hidden_matrix = true;
  }
  void vector(std::string name, int64_t size, int shard_axis = -1, Init init = Init::kZero) {
    add({.name = std::move(name),
         .dims = {size, 1},
         .rank = 1,
         .shard_axis = shard_axis,
         .init = init});
  }
  void norm(const std::string& name, const ModelConfig& config) {
    vector(name + ".weight", config.width, -1, Init::kOne);
    last().works_on_rows = true;
    if (config.design().norm != NormKind::kLayer) return;
    vector(name + ".bias", config.width);
    last().works_on_rows = true;
  }
  // A matrix with one row per token.
  void table(std::string name, const ModelConfig& config) {
    matrix(std::move(name), config.vocabulary, config.width, 0);
    last().of_vocabulary = true;
  }
  Parameter& last() { return table_.back(); }
  std::vector<Parameter> take() { return std::move(table_); }

 private:
  void add(Parameter parameter) {
    parameter.id = static_cast<int64_t>(table_.size());
    parameter.block = block_;
    table_.push_back(std::move(parameter));
  }

  int64_t block_;
  std::vector<Parameter> table_;
};

void add_gpt2_layer(TableBuilder& builder, const ModelConfig& config, int64_t layer) {
  const std::string prefix = "transformer.h." + std::to_string(layer) + ".";
  const int64_t c = config.width, hidden = config.hidden_width();
  builder.norm(prefix + "ln_1", config);
  builder.hidden(prefix + "attn.c_attn.weight", 3 * c, c, 0);
  builder.last().parts = {{c}, {c}, {c}};
  builder.vector(prefix + "attn.c_attn.bias", 3 * c, 0);
  builder.last().parts = {{c}, {c}, {c}};
  builder.hidden(prefix + "attn.c_proj.weight", c, c, 1, Init::kResidualNormal);
  builder.vector(prefix + "attn.c_proj.bias", c);
  builder.norm(prefix + "ln_2", config);
  builder.hidden(prefix + "mlp.c_fc.weight", hidden, c, 0);
  builder.vector(prefix + "mlp.c_fc.bias", hidden, 0);
  builder.hidden(prefix + "mlp.c_proj.weight", c, hidden, 1, Init::kResidualNormal);
  builder.vector(prefix + "mlp.c_proj.bias", c);
}

void add_llama_layer(TableBuilder& builder, const ModelConfig& config, int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const int64_t c = config.width, d = config.kv_width(), hidden = config.hidden_width();
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  builder.norm(prefix + "input_layernorm", config);
  builder.hidden(attention + "qkv_proj.weight", c + 2 * d, c, 0);
  builder.last().parts = {{c, attention + "q_proj.weight"},
                          {d, attention + "k_proj.weight", config.kv_head_count()},
                          {d, attention + "v_proj.weight", config.kv_head_count()}};
  builder.hidden(attention + "o_proj.weight", c, c, 1, Init::kResidualNormal);
  builder.norm(prefix + "post_attention_layernorm", config);
  builder.hidden(mlp + "gate_up_proj.weight", 2 * hidden, c, 0);
  builder.last().parts = {{hidden, mlp + "gate_proj.weight"}, {hidden, mlp + "up_proj.weight"}};
  builder.hidden(mlp + "down_proj.weight", c, hidden, 1, Init::kResidualNormal);
}

std::string bert_norm_before(int64_t layer) {
  if (layer == 0) return "bert.embeddings.LayerNorm";
  return "bert.encoder.layer." + std::to_string(layer - 1) + ".output.LayerNorm";
}

void add_bert_layer(TableBuilder& builder, const ModelConfig& config, int64_t layer) {
  const int64_t c = config.width, hidden = config.hidden_width();
  const std::string prefix = "bert.encoder.layer." + std::to_string(layer) + ".";
  const std::string self = prefix + "attention.self.", output = prefix + "attention.output.";
  builder.norm(bert_norm_before(layer), config);
  builder.hidden(self + "qkv.weight", 3 * c, c, 0);
  builder.last().parts = {
      {c, self + "query.weight"}, {c, self + "key.weight"}, {c, self + "value.weight"}};
  builder.vector(self + "qkv.bias", 3 * c, 0);
  builder.last().parts = {
      {c, self + "query.bias"}, {c, self + "key.bias"}, {c, self + "value.bias"}};
  builder.hidden(output + "dense.weight", c, c, 1);
  builder.vector(output + "dense.bias", c);
  builder.norm(output + "LayerNorm", config);
  builder.hidden(prefix + "intermediate.dense.weight", hidden, c, 0);
  builder.vector(prefix + "intermediate.dense.bias", hidden, 0);
  builder.hidden(prefix + "output.dense.weight", c, hidden, 1);
  builder.vector(prefix + "output.dense.bias", c);
}

// The head's transform, and its weight and bias.
void add_bert_head(TableBuilder& builder, const ModelConfig& config) {
  const std::string head = "cls.predictions.";
  builder.hidden(head + "transform.dense.weight", config.width, config.width, -1);
  builder.last().works_on_rows = true;
  builder.vector(head + "transform.dense.bias", config.width);
  builder.last().works_on_rows = true;
  builder.norm(head + "transform.LayerNorm", config);
  if (!config.tied) builder.table(head + "decoder.weight", config);
  builder.vector(head + "bias", config.vocabulary, 0);
  builder.last().of_vocabulary = true;
}

// The names of a family's parameters.
struct FamilyTable {
  const char* tokens;
  const char* positions;                    // null without learned positions
  const char* types;                        // null without token types
  std::string (*norm)(const ModelConfig&);  // before the head
  void (*add_layer)(TableBuilder&, const ModelConfig&, int64_t layer);
  void (*add_head)(TableBuilder&, const ModelConfig&);
};

void add_plain_head(TableBuilder& builder, const ModelConfig& config) {
  if (!config.tied) builder.table("lm_head.weight", config);
}

const FamilyTable& table_of(Family family) {
  // By Family.
  static constexpr std::array<FamilyTable, 3> kTables{
      FamilyTable{"transformer.wte.weight", "transformer.wpe.weight", nullptr,
                  [](const ModelConfig&) -> std::string { return "transformer.ln_f"; },
                  add_gpt2_layer, add_plain_head},
      FamilyTable{"model.embed_tokens.weight", nullptr, nullptr,
                  [](const ModelConfig&) -> std::string { return "model.norm"; }, add_llama_layer,
                  add_plain_head},
      FamilyTable{"bert.embeddings.word_embeddings.weight",
                  "bert.embeddings.position_embeddings.weight",
                  "bert.embeddings.token_type_embeddings.weight",
                  [](const ModelConfig& config) { return bert_norm_before(config.layers); },
                  add_bert_layer, add_bert_head}};
  return kTables[static_cast<size_t>(family)];
}

bool is_read(const Parameter& parameter, const ModelConfig& config,
             const std::vector<Stage>& chunks) {
  const bool serves_the_head = config.tied && parameter.id == kTokenEmbedding;
  return has_block(chunks, parameter.block) ||
         (serves_the_head && has_block(chunks, head_block(config)));
}

// Returns which piece of a part a shard has, of how many.
TensorShard piece_of(const ParameterPart& part, const TensorShard& shard) {
  if (part.pieces_max == 0 || shard.size <= part.pieces_max) return shard;
  CHECK(shard.size % part.pieces_max == 0);
  return {.index = shard.index * part.pieces_max / shard.size, .size = part.pieces_max};
}

int64_t local_rows(const ParameterPart& part, const TensorShard& shard) {
  const int64_t pieces = piece_of(part, shard).size;
  CHECK(part.rows % pieces == 0);
  return part.rows / pieces;
}

ArenaEntry local_part(const Parameter& parameter, const ModelConfig& config,
                      const TensorShard& shard) {
  ArenaEntry entry{.id = parameter.id, .dims = parameter.dims};
  if (parameter.of_vocabulary) entry.dims[0] = padded_vocabulary(config, shard.size);
  if (parameter.shard_axis >= 0 && parameter.parts.empty()) {
    const auto axis = static_cast<size_t>(parameter.shard_axis);
    CHECK(entry.dims[axis] % shard.size == 0);
    entry.dims[axis] /= shard.size;
  }
  if (!parameter.parts.empty()) entry.dims[0] = 0;
  for (const ParameterPart& part : parameter.parts) entry.dims[0] += local_rows(part, shard);
  entry.count = entry.dims[0] * entry.dims[1];
  return entry;
}

// Indices count from the parameter's first element. A packed parameter has a block for each part.
std::vector<IndexedBlock> blocks_of(const Parameter& parameter, const ArenaEntry& entry,
                                    const TensorShard& shard) {
  const auto [rows, columns] = entry.dims;
  if (parameter.shard_axis == 1) {
    return {{.count = entry.count,
             .first = columns * shard.index,
             .columns = columns,
             .stride = parameter.dims[1]}};
  }
  if (parameter.shard_axis < 0 || parameter.parts.empty()) {
    const int64_t first_row = parameter.shard_axis < 0 ? 0 : rows * shard.index;
    return {{.count = entry.count, .first = first_row * columns}};
  }
  std::vector<IndexedBlock> blocks;
  int64_t local = 0, part_begin = 0;
  for (const ParameterPart& part : parameter.parts) {
    const int64_t part_rows = local_rows(part, shard);
    blocks.push_back({.local = local * columns,
                      .count = part_rows * columns,
                      .first = (part_begin + part_rows * piece_of(part, shard).index) * columns});
    local += part_rows;
    part_begin += part.rows;
  }
  return blocks;
}

}  // namespace

std::vector<Parameter> parameter_table(const ModelConfig& config) {
  const FamilyTable& family = table_of(config.family);
  TableBuilder builder(0);
  builder.table(family.tokens, config);
  if (family.positions != nullptr) {
    builder.matrix(family.positions, config.context, config.width, -1);
  }
  if (family.types != nullptr) {
    builder.matrix(family.types, config.design().token_types, config.width, -1);
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    builder.set_block(layer + 1);
    family.add_layer(builder, config, layer);
  }
  builder.set_block(head_block(config));
  builder.norm(family.norm(config), config);
  family.add_head(builder, config);
  return builder.take();
}

std::vector<int64_t> block_parameters(const ModelConfig& config, int64_t block) {
  std::vector<int64_t> ids;
  for (const Parameter& parameter : parameter_table(config)) {
    if (is_read(parameter, config, {{.begin = block, .end = block + 1}}))
      ids.push_back(parameter.id);
  }
  return ids;
}

int64_t parameter_count(const ModelConfig& config) {
  int64_t count = 0;
  for (const Parameter& parameter : parameter_table(config)) count += parameter.count();
  return count;
}

const ArenaEntry* ParameterArena::find(int64_t id) const {
  const auto found =
      std::lower_bound(entries.begin(), entries.end(), id,
                       [](const ArenaEntry& entry, int64_t wanted) { return entry.id < wanted; });
  return found != entries.end() && found->id == id ? &*found : nullptr;
}

void ParameterArena::add(ArenaEntry entry) {
  entry.offset = count;
  count = aligned(entry.offset + entry.count);
  entries.push_back(entry);
}

ParameterArena parameter_arena(const ModelConfig& config, const std::vector<Stage>& chunks,
                               const TensorShard& shard) {
  ParameterArena arena{.shard = shard};
  for (const Parameter& parameter : parameter_table(config)) {
    if (!is_read(parameter, config, chunks)) continue;
    ArenaEntry entry = local_part(parameter, config, shard);
    entry.counts_in_norm = has_block(chunks, parameter.block);
    arena.add(entry);
  }
  return arena;
}

ParameterArena parameter_arena(const ModelConfig& config, const Stage& stage,
                               const TensorShard& shard) {
  return parameter_arena(config, std::vector<Stage>{stage}, shard);
}

std::vector<std::vector<IndexedBlock>> indexed_blocks(const std::vector<Parameter>& table,
                                                      const ParameterArena& whole,
                                                      const ParameterArena& arena) {
  std::vector<int64_t> firsts;  // by id
  int64_t next = 0;
  for (const ArenaEntry& entry : whole.entries) {
    firsts.push_back(next);
    next += entry.count;
  }
  std::vector<std::vector<IndexedBlock>> all;
  for (const ArenaEntry& entry : arena.entries) {
    const int64_t first = firsts[static_cast<size_t>(entry.id)];
    std::vector<IndexedBlock> blocks{{.count = entry.count}};
    if (arena.shard.size > 1) {
      blocks = blocks_of(table[static_cast<size_t>(entry.id)], entry, arena.shard);
    }
    for (IndexedBlock& block : blocks) block.first += first;
    all.push_back(std::move(blocks));
  }
  return all;
}

std::vector<ShardRun> shard_runs(const Parameter& parameter, const ArenaEntry& entry,
                                 const TensorShard& shard) {
  std::vector<ShardRun> runs;
  for (const IndexedBlock& block : blocks_of(parameter, entry, shard)) {
    const int64_t columns = block.columns > 0 ? block.columns : block.count;
    for (int64_t at = 0; at < block.count; at += columns) {
      const int64_t global = block.first + at / columns * block.stride;
      const int64_t here = std::clamp<int64_t>(parameter.count() - global, 0, columns);
      if (here > 0) runs.push_back({.local = block.local + at, .global = global, .count = here});
    }
  }
  return runs;
}

std::vector<ShardRun> owned_runs(const Parameter& parameter, const ArenaEntry& entry,
                                 const TensorShard& shard) {
  if (parameter.shard_axis < 0 && shard.index > 0) return {};
  std::vector<ShardRun> runs = shard_runs(parameter, entry, shard);
  const SharedRun shared = shared_run(parameter, entry, shard);
  if (shard.index % shared.shards == 0) return runs;
  std::erase_if(runs, [&](const ShardRun& run) {
    return run.local >= shared.local && run.local < shared.local + shared.count;
  });
  return runs;
}

SharedRun shared_run(const Parameter& parameter, const ArenaEntry& entry,
                     const TensorShard& shard) {
  SharedRun shared;
  int64_t end = 0;
  for (const ParameterPart& part : parameter.parts) {
    const int64_t begin = end;
    const int64_t count = local_rows(part, shard) * entry.dims[1];
    const int64_t shards = shard.size / piece_of(part, shard).size;
    end += count;
    if (shards == 1) continue;
    if (shared.count == 0) shared = {.local = begin, .count = 0, .shards = shards};
    CHECK(shared.local + shared.count == begin && shared.shards == shards);
    shared.count += count;
  }
  return shared;
}

}  // namespace lockstep
