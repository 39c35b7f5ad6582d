#include "common/layout/parameters.h"

#include <algorithm>

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
  void vector(std::string name, int64_t size, int shard_axis = -1, Init init = Init::kZero) {
    add({.name = std::move(name),
         .dims = {size, 1},
         .rank = 1,
         .shard_axis = shard_axis,
         .init = init});
  }
  void norm(const std::string& name, int64_t size) {
    vector(name + ".weight", size, -1, Init::kOne);
    vector(name + ".bias", size);
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

void add_layer(TableBuilder& builder, const ModelConfig& config, int64_t layer) {
  const int64_t c = config.width;
  const std::string prefix = "transformer.h." + std::to_string(layer) + ".";
  builder.set_block(layer + 1);
  builder.norm(prefix + "ln_1", c);
  builder.matrix(prefix + "attn.c_attn.weight", 3 * c, c, 0);
  builder.last().shard_parts = 3;
  builder.vector(prefix + "attn.c_attn.bias", 3 * c, 0);
  builder.last().shard_parts = 3;
  builder.matrix(prefix + "attn.c_proj.weight", c, c, 1, Init::kResidualNormal);
  builder.vector(prefix + "attn.c_proj.bias", c);
  builder.norm(prefix + "ln_2", c);
  builder.matrix(prefix + "mlp.c_fc.weight", 4 * c, c, 0);
  builder.vector(prefix + "mlp.c_fc.bias", 4 * c, 0);
  builder.matrix(prefix + "mlp.c_proj.weight", c, 4 * c, 1, Init::kResidualNormal);
  builder.vector(prefix + "mlp.c_proj.bias", c);
}

bool stage_reads(const Parameter& parameter, const ModelConfig& config, const Stage& stage) {
  const bool lives_here = parameter.block >= stage.begin && parameter.block < stage.end;
  return lives_here || (parameter.id == kTokenEmbedding && has_head(stage, config));
}

ArenaEntry local_part(const Parameter& parameter, const ModelConfig& config,
                      const TensorShard& shard) {
  ArenaEntry entry{.id = parameter.id, .dims = parameter.dims};
  if (parameter.id == kTokenEmbedding) entry.dims[0] = padded_vocabulary(config, shard.size);
  if (parameter.shard_axis >= 0) {
    const auto axis = static_cast<size_t>(parameter.shard_axis);
    CHECK(entry.dims[axis] % (shard.size * parameter.shard_parts) == 0);
    entry.begin[axis] = entry.dims[axis] / parameter.shard_parts / shard.size * shard.index;
    entry.dims[axis] /= shard.size;
  }
  entry.count = entry.dims[0] * entry.dims[1];
  return entry;
}

}  // namespace

std::vector<Parameter> parameter_table(const ModelConfig& config) {
  TableBuilder builder(0);
  builder.matrix("transformer.wte.weight", config.vocabulary, config.width, 0);
  builder.last().contributions = 2;
  builder.matrix("transformer.wpe.weight", config.context, config.width, -1);
  for (int64_t layer = 0; layer < config.layers; ++layer) add_layer(builder, config, layer);
  builder.set_block(head_block(config));
  builder.norm("transformer.ln_f", config.width);
  return builder.take();
}

std::vector<int64_t> block_parameters(const ModelConfig& config, int64_t block) {
  std::vector<int64_t> ids;
  for (const Parameter& parameter : parameter_table(config)) {
    if (stage_reads(parameter, config, {.begin = block, .end = block + 1}))
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

ParameterArena parameter_arena(const ModelConfig& config, const Stage& stage,
                               const TensorShard& shard) {
  ParameterArena arena;
  for (const Parameter& parameter : parameter_table(config)) {
    if (!stage_reads(parameter, config, stage)) continue;
    ArenaEntry entry = local_part(parameter, config, shard);
    entry.offset = arena.count;
    entry.counted = parameter.block >= stage.begin && parameter.block < stage.end;
    arena.count = aligned(entry.offset + entry.count);
    arena.entries.push_back(entry);
  }
  return arena;
}

std::vector<ShardRun> shard_runs(const Parameter& parameter, const ArenaEntry& entry,
                                 const TensorShard& shard) {
  std::vector<ShardRun> runs;
  const auto [rows, columns] = entry.dims;
  if (parameter.shard_axis == 1) {
    for (int64_t row = 0; row < rows; ++row) {
      runs.push_back({.local = row * columns,
                      .global = row * parameter.dims[1] + entry.begin[1],
                      .count = columns});
    }
    return runs;
  }
  const int64_t part_rows = rows / parameter.shard_parts;
  for (int64_t part = 0; part < parameter.shard_parts; ++part) {
    const int64_t first = entry.begin[0] + part * part_rows * shard.size;
    const int64_t here = std::clamp<int64_t>(parameter.dims[0] - first, 0, part_rows);
    if (here == 0) continue;
    runs.push_back(
        {.local = part * part_rows * columns, .global = first * columns, .count = here * columns});
  }
  return runs;
}

}  // namespace lockstep
