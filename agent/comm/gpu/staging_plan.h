#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent/comm/gpu/device_backend.h"

namespace lockstep::comm {

// A copy from the caller's memory to a chunk's, or back.
struct StagingCopy {
  size_t device = 0;  // offset in the call's input, or output
  size_t host = 0;    // offset in the chunk's memory
  size_t bytes = 0;
  bool operator==(const StagingCopy&) const = default;
};

// A part of an operation that goes through host memory as one piece: an operation of its own, of
// the same kind, on `count` elements of every block.
struct StagingChunk {
  int64_t count = 0;
  size_t input_bytes = 0;  // of host memory
  size_t output_bytes = 0;
  std::vector<StagingCopy> in;   // to the host, before
  std::vector<StagingCopy> out;  // to the device, after
};

// Host memory for the larger side of one chunk; more only if a single element of every block needs
// more.
constexpr size_t kStagingBytes = size_t{4} << 20;
// Parts of an operation that are under way at a time.
constexpr size_t kStagingSlots = 2;
// Returns the size of the block of host memory that serves a part's input or output: a power of
// two, so that operations of any size share a few blocks. Not 0, so that there is an address.
size_t staging_block_bytes(size_t bytes);

// Splits a call into chunks, at least one. Their number and counts are the same on every rank.
// all_to_all by counts is one chunk, whatever its size. Pure.
std::vector<StagingChunk> plan_staging(const DeviceCall& call, int size,
                                       size_t chunk_bytes = kStagingBytes);

}  // namespace lockstep::comm
