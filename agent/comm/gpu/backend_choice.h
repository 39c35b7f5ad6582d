#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "common/base/result.h"

namespace lockstep {

enum class DeviceBackendKind : uint8_t { kAuto, kNccl, kHostMemory };

// What a rank says of its GPU before a backend is chosen; sent as it is.
struct RankDevice {
  int32_t has_gpu = 0;
  int32_t nccl_version = 0;        // as NcclApi::version(); 0: none
  std::array<uint8_t, 16> uuid{};  // of the GPU, or of the part of it that is given as one
  std::array<char, 64> name{};     // "NVIDIA H200"
  std::array<char, 16> bus{};      // "0000:41:00.0"
};

struct BackendChoice {
  DeviceBackendKind kind = DeviceBackendKind::kHostMemory;  // never kAuto
  std::string why;  // "every rank has a GPU of its own and NCCL 2.28.9"
};

// By rank of the world; the same on every rank. Host memory where NCCL can't serve: two ranks have
// one GPU, a rank has no NCCL, or another version of it. kInvalid if a rank has no GPU;
// kUnavailable if NCCL is wanted by name and can't serve. Pure.
Result<BackendChoice> choose_backend(std::span<const RankDevice> ranks, DeviceBackendKind wanted);

}  // namespace lockstep
