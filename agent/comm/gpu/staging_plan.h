#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent/comm/gpu/device_backend.h"

namespace lockstep {

// Bytes from the caller's memory to that of a chunk, or back.
struct StagingCopy {
  size_t device = 0;  // offset in the call's input, or output
  size_t host = 0;    // in the chunk's
  size_t bytes = 0;
  bool operator==(const StagingCopy&) const = default;
};

// A part of an operation that goes through host memory at once: an operation of its own, of the
// same kind, on `count` elements of every block.
struct StagingChunk {
  int64_t count = 0;
  size_t input_bytes = 0;  // of host memory
  size_t output_bytes = 0;
  std::vector<StagingCopy> in;   // to the host, before
  std::vector<StagingCopy> out;  // to the device, after
};

// So much of the host's memory goes to one chunk's larger side, unless a single element of every
// block is more.
constexpr size_t kStagingBytes = size_t{4} << 20;

// The chunks of a call, at least one; their number and counts are the same on every rank.
// all_to_all by counts is one chunk, whatever its size. Pure.
std::vector<StagingChunk> plan_staging(const DeviceCall& call, int size,
                                       size_t chunk_bytes = kStagingBytes);

}  // namespace lockstep
