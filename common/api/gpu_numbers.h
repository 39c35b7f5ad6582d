#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace lockstep {

// How often a GPU reported one Xid. An Xid is NVIDIA's number for a kind of error in its driver's
// log.
struct XidCount {
  uint32_t number = 0;
  uint32_t count = 0;
};

// Measurements of one worker's GPU: plain values for its progress page, written once a second. NaN:
// the GPU does not report it.
struct GpuNumbers {
  uint64_t samples = 0;   // taken so far; 0: no value below is valid
  double busy_ratio = 0;  // share of the last sample's time in which a kernel ran
  double memory_used_bytes = 0;
  double memory_size_bytes = 0;
  double power_watts = 0;
  std::array<char, 64> name{};     // "NVIDIA H200"; zero-terminated, as is `bus`
  std::array<char, 24> bus{};      // "0000:41:00.0"
  std::array<uint8_t, 16> uuid{};  // of the GPU, or of the part of it that is used as one (MIG)
  // Xids since the worker began, ordered by first occurrence; unused entries have count 0. If there
  // are more kinds than entries, the last entry counts the rest as number 0.
  std::array<XidCount, 8> xids{};
};

void count_xid(GpuNumbers& gpu, uint64_t number);

// Returns "GPU-01234567-89ab-cdef-0123-456789abcdef", as nvidia-smi -L prints it.
std::string uuid_text(const std::array<uint8_t, 16>& uuid);

// Describes an Xid in words: "the GPU has fallen off the bus"; "an error that NVIDIA's list of Xids
// explains" if unknown. Source: NVIDIA, "Xid Errors", GPU deployment and management documentation.
const char* xid_meaning(uint64_t number);

// Describes the Xids that a worker's GPU reported: "GPU 0000:41:00.0 (NVIDIA H200) reported Xid 79
// (the GPU has fallen off the bus), Xid 31 twice (...)"; empty if there were none.
std::string xids_text(const GpuNumbers& gpu);

}  // namespace lockstep
