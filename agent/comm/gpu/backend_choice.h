#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "common/base/result.h"

namespace lockstep::comm {

enum class DeviceBackendKind : uint8_t { kAuto, kNccl, kHostMemory };

// A rank's report on its GPU before a backend is chosen; sent as raw bytes.
struct RankDevice {
  int32_t has_gpu = 0;
  int32_t nccl_version = 0;        // as NcclApi::version(); 0: none
  std::array<uint8_t, 16> uuid{};  // of the GPU, or of its part (MIG) that serves as one
  std::array<char, 64> name{};     // "NVIDIA H200"
  std::array<char, 16> bus{};      // "0000:41:00.0"
};

struct BackendChoice {
  DeviceBackendKind kind = DeviceBackendKind::kHostMemory;  // never kAuto
  std::string why;  // "every rank has a GPU of its own and NCCL 2.28.9"
};

// Chooses from `ranks`, by rank of the world; the result is the same on every rank. Host memory if
// NCCL cannot serve: two ranks have one GPU, or a rank has no NCCL or another version of it.
// kInvalid if a rank has no GPU; kUnavailable if NCCL is requested and cannot serve. Pure.
Result<BackendChoice> choose_backend(std::span<const RankDevice> ranks, DeviceBackendKind wanted);

}  // namespace lockstep::comm
