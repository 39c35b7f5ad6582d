#include "agent/comm/gpu/staging_plan.h"

#include <algorithm>
#include <bit>

namespace lockstep::comm {
namespace {

constexpr size_t kBlockMin = 64;

// Returns the most blocks that any rank takes or gives.
int64_t blocks_max(Collective kind, int size) {
  switch (kind) {
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kReduceScatter:
    case Collective::kScatter:
    case Collective::kAllToAll:
      return size;
    default:
      return 1;
  }
}

StagingChunk whole(const CallMemory& memory) {
  StagingChunk chunk{.input_bytes = memory.input_bytes, .output_bytes = memory.output_bytes};
  if (memory.input_bytes > 0) chunk.in.push_back({.bytes = memory.input_bytes});
  if (memory.output_bytes > 0) chunk.out.push_back({.bytes = memory.output_bytes});
  return chunk;
}

struct Part {
  size_t block = 0;  // bytes of a block
  size_t begin = 0;  // of the part, within a block
  size_t bytes = 0;
};

std::vector<StagingCopy> copies(size_t all_bytes, const Part& part) {
  std::vector<StagingCopy> made;
  if (part.bytes == 0) return made;
  for (size_t i = 0; i < all_bytes / part.block; ++i) {
    made.push_back(
        {.device = i * part.block + part.begin, .host = i * part.bytes, .bytes = part.bytes});
  }
  return made;
}

}  // namespace

size_t staging_block_bytes(size_t bytes) {
  return std::bit_ceil(std::max(bytes, kBlockMin));
}

std::vector<StagingChunk> plan_staging(const DeviceCall& call, int size, size_t chunk_bytes) {
  const int64_t count = call.call.buffer.count;
  if (!call.call.send_counts.empty() || count == 0) return {whole(call.memory)};
  const size_t element = data_type_bytes(call.call.buffer.type);
  const auto row = element * static_cast<size_t>(blocks_max(call.call.kind, size));
  const auto most = static_cast<int64_t>(std::max<size_t>(1, chunk_bytes / row));
  const size_t block = static_cast<size_t>(count) * element;
  std::vector<StagingChunk> chunks;
  for (int64_t begin = 0; begin < count; begin += most) {
    const int64_t here = std::min(most, count - begin);
    const Part part{.block = block,
                    .begin = static_cast<size_t>(begin) * element,
                    .bytes = static_cast<size_t>(here) * element};
    StagingChunk chunk{.count = here,
                       .in = copies(call.memory.input_bytes, part),
                       .out = copies(call.memory.output_bytes, part)};
    chunk.input_bytes = chunk.in.size() * part.bytes;
    chunk.output_bytes = chunk.out.size() * part.bytes;
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

}  // namespace lockstep::comm
