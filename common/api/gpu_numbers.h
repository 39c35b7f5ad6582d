#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace lockstep {

// How often a GPU has reported an Xid, NVIDIA's number for a kind of error in its driver's log.
struct XidCount {
  uint32_t number = 0;
  uint32_t count = 0;
};

// What the GPU of one worker says of itself: plain values for its progress page, written once a
// second. NaN: the GPU can't say.
struct GpuNumbers {
  uint64_t samples = 0;   // taken so far; 0: nothing below is known
  double busy_ratio = 0;  // of the last sample's time in which a kernel ran
  double memory_used_bytes = 0;
  double memory_size_bytes = 0;
  double power_watts = 0;
  std::array<char, 64> name{};     // "NVIDIA H200"; ended by a 0, as is
  std::array<char, 24> bus{};      // "0000:41:00.0"
  std::array<uint8_t, 16> uuid{};  // of the GPU, or of the part of it that is given as one
  // Since the worker began, by their first time; unused ones have count 0, and what does not fit
  // any more counts as number 0.
  std::array<XidCount, 8> xids{};
};

void count_xid(GpuNumbers& gpu, uint64_t number);

// "GPU-01234567-89ab-cdef-0123-456789abcdef", as nvidia-smi -L has it.
std::string uuid_text(const std::array<uint8_t, 16>& uuid);

// What is known of an Xid, in words: "the GPU has fallen off the bus"; "an error that NVIDIA's list
// of Xids explains" for others. Source: NVIDIA, "Xid Errors", GPU deployment and management
// documentation.
const char* xid_words(uint64_t number);

// Of the Xids that a worker's GPU reported, for people: "GPU 0000:41:00.0 (NVIDIA H200) reported
// Xid 79 (the GPU has fallen off the bus), Xid 31 twice (...)"; empty where there was none.
std::string xids_text(const GpuNumbers& gpu);

}  // namespace lockstep
