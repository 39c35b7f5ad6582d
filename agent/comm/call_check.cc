#include "agent/comm/call_check.h"

#include <cstdint>
#include <limits>
#include <string>

namespace lockstep::comm {
namespace {

// With this limit, n blocks of the widest type can be counted in bytes.
constexpr int64_t kCountMax = std::numeric_limits<int64_t>::max() / 8 / 65536;

Error wrong(const Call& call, const std::string& what) {
  return invalid(std::string("[comm] ") + name_of(call.kind) + ": " + what);
}

Status check_rank(const Call& call, int rank, int size) {
  const CollectiveTraits& what = traits(call.kind);
  if (!what.has_root && !what.is_message) return {};
  if (call.rank < 0 || call.rank >= size) {
    return wrong(call, std::string(what.has_root ? "root " : "rank ") + std::to_string(call.rank) +
                           " is out of range (" + std::to_string(size) + " ranks)");
  }
  if (what.is_message && call.rank == rank) {
    return wrong(call, "cannot send to or receive from itself (rank " + std::to_string(rank) + ")");
  }
  return {};
}

Result<int64_t> sum_of(const Call& call, std::span<const int64_t> counts) {
  int64_t sum = 0;
  for (const int64_t count : counts) {
    if (count < 0 || count > kCountMax - sum) {
      return wrong(call, "invalid element count " + std::to_string(count));
    }
    sum += count;
  }
  return sum;
}

// Sets the bytes that this rank takes and gives.
Status size_buffers(const Call& call, int rank, int size, CallMemory& memory) {
  const size_t element = data_type_bytes(call.buffer.type);
  const size_t block = static_cast<size_t>(call.buffer.count) * element;
  const size_t blocks = static_cast<size_t>(size) * block;
  const bool is_root = rank == call.rank;
  switch (call.kind) {
    case Collective::kForm:
    case Collective::kBarrier:
      return {};
    case Collective::kAllReduce:
      memory.input_bytes = memory.output_bytes = block;
      return {};
    case Collective::kReduce:
      memory.input_bytes = block;
      memory.output_bytes = is_root ? block : 0;
      return {};
    case Collective::kBroadcast:
      memory.input_bytes = is_root ? block : 0;
      memory.output_bytes = block;
      return {};
    case Collective::kAllGather:
      memory.input_bytes = block;
      memory.output_bytes = blocks;
      return {};
    case Collective::kGather:
      memory.input_bytes = block;
      memory.output_bytes = is_root ? blocks : 0;
      return {};
    case Collective::kReduceScatter:
      memory.input_bytes = blocks;
      memory.output_bytes = block;
      return {};
    case Collective::kScatter:
      memory.input_bytes = is_root ? blocks : 0;
      memory.output_bytes = block;
      return {};
    case Collective::kSend:
      memory.input_bytes = block;
      return {};
    case Collective::kReceive:
      memory.output_bytes = block;
      return {};
    case Collective::kAllToAll:
      break;
  }
  memory.input_bytes = memory.output_bytes = blocks;
  if (call.send_counts.empty() && call.receive_counts.empty()) return {};
  const auto ranks = static_cast<size_t>(size);
  const auto own = static_cast<size_t>(rank);
  if (call.send_counts.size() != ranks || call.receive_counts.size() != ranks ||
      call.buffer.count != 0 || call.buffer.input == nullptr ||
      call.send_counts[own] != call.receive_counts[own]) {
    return wrong(
        call,
        "counts by rank need one entry per rank in both directions, equal entries for this "
        "rank's own block, `count` 0 and a separate input");
  }
  TRY_ASSIGN(const int64_t sent, sum_of(call, call.send_counts));
  TRY_ASSIGN(const int64_t received, sum_of(call, call.receive_counts));
  memory.input_bytes = static_cast<size_t>(sent) * element;
  memory.output_bytes = static_cast<size_t>(received) * element;
  return {};
}

// Sets where they are. In-place, the smaller of the two is this rank's block of the larger.
void locate_buffers(const Call& call, int rank, CallMemory& memory) {
  auto* data = static_cast<std::byte*>(call.buffer.data);
  const auto* input = static_cast<const std::byte*>(call.buffer.input);
  const auto own = static_cast<size_t>(rank);
  memory.output = data;
  memory.input = input;
  if (input != nullptr) return;
  memory.input = data;
  if (memory.input_bytes < memory.output_bytes) {
    if (memory.input_bytes > 0) memory.input = data + own * memory.input_bytes;
  } else if (memory.output_bytes < memory.input_bytes && memory.output_bytes > 0) {
    memory.output = data + own * memory.output_bytes;
  }
}

bool overlap(const CallMemory& memory) {
  const auto input = reinterpret_cast<uintptr_t>(memory.input);
  const auto output = reinterpret_cast<uintptr_t>(memory.output);
  return memory.input_bytes > 0 && memory.output_bytes > 0 &&
         input < output + memory.output_bytes && output < input + memory.input_bytes;
}

Status check_memory(const Call& call, int rank, const CallMemory& memory) {
  const auto misaligned = [&](const std::byte* at) {
    return reinterpret_cast<uintptr_t>(at) % data_type_bytes(call.buffer.type) != 0;
  };
  if ((memory.input_bytes > 0 && memory.input == nullptr) ||
      (memory.output_bytes > 0 && memory.output == nullptr)) {
    return wrong(call, "buffer pointer is null");
  }
  if ((memory.input_bytes > 0 && misaligned(memory.input)) ||
      (memory.output_bytes > 0 && misaligned(memory.output))) {
    return wrong(call, "buffer is not aligned to its element type");
  }
  if (!overlap(memory)) return {};
  const auto own = static_cast<size_t>(rank);
  const bool as_in_place = memory.input_bytes == memory.output_bytes ? memory.input == memory.output
                           : memory.input_bytes < memory.output_bytes
                               ? memory.input == memory.output + own * memory.input_bytes
                               : memory.output == memory.input + own * memory.output_bytes;
  if (!as_in_place || !call.send_counts.empty()) {
    return wrong(call, "input and output overlap, but not as an in-place operation");
  }
  return {};
}

}  // namespace

Result<CallMemory> check_call(const Call& call, int rank, int size) {
  const CommBuffer& buffer = call.buffer;
  if (buffer.count < 0 || buffer.count > kCountMax) {
    return wrong(call, "invalid element count " + std::to_string(buffer.count));
  }
  if (call.limit < Duration::zero()) return wrong(call, "negative time limit");
  const bool has_counts = !call.send_counts.empty() || !call.receive_counts.empty();
  if (has_counts && call.kind != Collective::kAllToAll)
    return wrong(call, "does not accept counts by rank");
  TRY(check_rank(call, rank, size));
  CallMemory memory;
  TRY(size_buffers(call, rank, size, memory));
  locate_buffers(call, rank, memory);
  TRY(check_memory(call, rank, memory));
  memory.in_place = overlap(memory);
  return memory;
}

}  // namespace lockstep::comm
