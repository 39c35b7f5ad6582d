#include "agent/parallel/staging_memory.h"

#include <algorithm>
#include <set>
#include <vector>

#include "agent/comm/gpu/staging_plan.h"
#include "agent/parallel/buckets.h"
#include "agent/parallel/shard/block_places.h"
#include "agent/parallel/shard/shard_memory.h"
#include "kernels/ops/squared_norm.h"

namespace lockstep::parallel {
namespace {

using Blocks = std::vector<uint64_t>;  // bytes of the blocks that an operation takes
using Series = std::vector<Blocks>;    // operations of which one is under way at a time
using Moment = std::vector<Series>;    // series that are under way together
using Pool = std::vector<Moment>;      // moments that do not overlap

struct Operation {
  comm::Collective kind = comm::Collective::kAllReduce;
  int64_t count = 0;  // as comm::CommBuffer::count
  comm::DataType type = comm::DataType::kF32;
  int ranks = 1;
};

Blocks blocks_of(const Operation& operation) {
  comm::DeviceCall call;
  call.call.kind = operation.kind;
  call.call.buffer.count = operation.count;
  call.call.buffer.type = operation.type;
  const size_t one = static_cast<size_t>(operation.count) * comm::data_type_bytes(operation.type);
  const size_t all = one * static_cast<size_t>(operation.ranks);
  call.memory.input_bytes = operation.kind == comm::Collective::kReduceScatter ? all : one;
  call.memory.output_bytes = operation.kind == comm::Collective::kAllGather ? all : one;
  const std::vector<comm::StagingChunk> chunks = comm::plan_staging(call, operation.ranks);
  Blocks blocks;
  for (size_t slot = 0; slot < std::min(chunks.size(), comm::kStagingSlots); ++slot) {
    blocks.push_back(comm::staging_block_bytes(chunks.front().input_bytes));
    blocks.push_back(comm::staging_block_bytes(chunks.front().output_bytes));
  }
  return blocks;
}

int64_t blocks_up_to(const Moment& moment, uint64_t bytes) {
  int64_t sum = 0;
  for (const Series& series : moment) {
    int64_t most = 0;
    for (const Blocks& blocks : series) {
      most = std::max(
          most, std::ranges::count_if(blocks, [bytes](uint64_t each) { return each <= bytes; }));
    }
    sum += most;
  }
  return sum;
}

uint64_t bytes_max(const Pool& pool) {
  std::set<uint64_t> sizes;
  for (const Moment& moment : pool) {
    for (const Series& series : moment) {
      for (const Blocks& blocks : series) sizes.insert(blocks.begin(), blocks.end());
    }
  }
  uint64_t sum = 0;
  for (const uint64_t size : sizes) {
    int64_t most = 0;
    for (const Moment& moment : pool) most = std::max(most, blocks_up_to(moment, size));
    sum += static_cast<uint64_t>(most) * size;
  }
  return sum;
}

Moment alone(const Operation& operation) {
  return {{blocks_of(operation)}};
}

Moment squares() {
  return alone({.count = kernels::kSquareWords, .type = comm::DataType::kI64});
}

comm::DataType gradient_type(const ComposeOptions& options) {
  return options.sharding.reduces_bf16 ? comm::DataType::kBf16 : comm::DataType::kF32;
}

Pool pool_without_sharding(const ComposeOptions& options) {
  const ParameterArena arena = arena_of(options);
  Moment buckets;
  for (const Bucket& bucket : make_buckets(arena, options.bucket_bytes)) {
    buckets.push_back({blocks_of({.count = bucket.count, .type = gradient_type(options)})});
  }
  return {alone({.count = arena.count}), buckets, squares()};
}

// Operations on the pieces of units whose gradients are under way together.
Moment reductions(const ComposeOptions& options, const ShardLayout& layout, comm::Collective kind) {
  Moment moment;
  const auto add = [&](size_t place, const ShardUnit& unit) {
    if (moment.size() <= place) moment.resize(place + 1);
    moment[place].push_back(blocks_of({.kind = kind,
                                       .count = unit.piece,
                                       .type = gradient_type(options),
                                       .ranks = static_cast<int>(layout.ranks())}));
  };
  const bool has_places = options.sharding.sharding >= Sharding::kGradients;
  const GradientPlaces places = gradient_places(options.design, layout);
  for (size_t i = 0; i < layout.units().size(); ++i) {
    add(has_places ? places.places[i] : i, layout.units()[i]);
  }
  return moment;
}

Blocks gather_of(const ComposeOptions& options, const ShardLayout& layout, size_t unit) {
  return blocks_of(
      {.kind = comm::Collective::kAllGather,
       .count = layout.units()[unit].piece,
       .type = options.sharding.gathers_bf16 ? comm::DataType::kBf16 : comm::DataType::kF32,
       .ranks = static_cast<int>(layout.ranks())});
}

Moment gathers(const ComposeOptions& options, const ShardLayout& layout) {
  Moment moment;
  if (options.sharding.sharding != Sharding::kParameters) {
    for (size_t i = 0; i < layout.units().size(); ++i) {
      moment.push_back({gather_of(options, layout, i)});
    }
    return moment;
  }
  Series& series = moment.emplace_back();
  const BlockPlaces places = parameter_places(options.design, blocks_of(chunks_of(options)), layout,
                                              options.sharding.reshard_after_forward);
  for (const std::vector<size_t>& block : places.of_block) {
    Blocks& blocks = series.emplace_back();
    for (const size_t place : block) {
      const Blocks more = gather_of(options, layout, places.places[place].unit);
      blocks.insert(blocks.end(), more.begin(), more.end());
    }
  }
  return moment;
}

comm::DataType wire_type(kernels::DType dtype) {
  return dtype == kernels::DType::kBf16 ? comm::DataType::kBf16 : comm::DataType::kF32;
}

comm::DataType activation_type(const ComposeOptions& options) {
  return wire_type(model::activation_dtype(options.device.type, options.precision));
}

uint64_t data_bytes_max(const ComposeOptions& options) {
  if (options.mesh.data == 1) return 0;
  if (options.sharding.sharding == Sharding::kNone) {
    return bytes_max(pool_without_sharding(options));
  }
  const ShardLayout layout = shard_layout(options);
  uint64_t bytes = 0;
  if (layout.ranks() > 1) {
    bytes += bytes_max({reductions(options, layout, comm::Collective::kReduceScatter), squares()});
    bytes += bytes_max({gathers(options, layout)});
  }
  if (options.mesh.data > layout.ranks()) {
    bytes += bytes_max({reductions(options, layout, comm::Collective::kAllReduce),
                        alone({.count = layout.shard_count()})});
  }
  return bytes;
}

// Returns the most values of a parameter that several ranks of the tensor group have.
int64_t shared_count_max(const ComposeOptions& options) {
  const std::vector<Parameter> table = parameter_table(options.design);
  int64_t count = 0;
  for (const ArenaEntry& entry : arena_of(options).entries) {
    const Parameter& parameter = table[static_cast<size_t>(entry.id)];
    count = std::max(count, shared_run(parameter, entry, shard_of(options)).count);
  }
  return count;
}

// Returns the most values of a parameter whose gradient the ranks of the tensor group add up
// because each works on its own rows.
int64_t row_sums_max(const ComposeOptions& options) {
  int64_t count = 1;
  if (!options.sequence_parallel) return count;
  const std::vector<Parameter> table = parameter_table(options.design);
  for (const ArenaEntry& entry : arena_of(options).entries) {
    if (table[static_cast<size_t>(entry.id)].works_on_rows) count = std::max(count, entry.count);
  }
  return count;
}

// Everything else that the ranks of a tensor group exchange is smaller. Those that have the same
// heads are a group of their own.
uint64_t tensor_bytes_max(const ComposeOptions& options) {
  const ModelConfig* config = transformer_of(options.design);
  if (options.mesh.tensor == 1 || config == nullptr) return 0;
  const int64_t rows = options.micro_batch * options.sequence;
  const int64_t shared = shared_count_max(options);
  const uint64_t heads = shared == 0 ? 0 : bytes_max({alone({.count = shared})});
  return heads +
         bytes_max(
             {alone({.count = rows * config->width, .type = activation_type(options)}),
              alone({.count = rows}), squares(), alone({.count = row_sums_max(options)}),
              alone({.kind = comm::Collective::kAllGather,
                     .count = padded_vocabulary(*config, options.mesh.tensor) / options.mesh.tensor,
                     .type = activation_type(options),
                     .ranks = static_cast<int>(options.mesh.tensor)})});
}

// kChannelSlots messages of each channel are under way, and at other times a sum of squares, or
// one of a tied embedding's gradients.
uint64_t pipeline_bytes_max(const ComposeOptions& options) {
  if (options.mesh.pipeline == 1) return 0;
  const Blocks message = blocks_of({.kind = comm::Collective::kSend,
                                    .count = largest_edge(options),
                                    .type = wire_type(transfer_dtype(options))});
  uint64_t bytes =
      channel_count(options) * bytes_max({{static_cast<size_t>(kChannelSlots), {message}}});
  bytes += bytes_max({squares()});
  const ParameterArena arena = arena_of(options);
  const ArenaEntry* const tokens = arena.find(kTokenEmbedding);
  const bool is_tied_here = is_tied(options.design) && tokens != nullptr;
  return bytes + (is_tied_here ? bytes_max({alone({.count = tokens->count})}) : 0);
}

}  // namespace

uint64_t staging_bytes_max(const ComposeOptions& options) {
  return data_bytes_max(options) + tensor_bytes_max(options) + pipeline_bytes_max(options);
}

}  // namespace lockstep::parallel
