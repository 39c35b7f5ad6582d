#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::comm {

// The path from one GPU of a machine to another.
enum class GpuLink : uint8_t { kNvlink, kPcie, kHost };
// "NVLink", "PCIe", "host memory"
const char* name_of(GpuLink link);

struct GpuPair {
  bool can_access = false;      // the driver lets one access the other's memory
  bool native_atomics = false;  // over the link: NVLink has them, PCIe does not
};
// `nvlinks`: the smaller number of the two GPUs; -1: unknown. Pure.
GpuLink link_of(const GpuPair& pair, int nvlinks);

// The GPUs of a machine as this process sees them.
struct GpusSeen {
  std::vector<std::string> names;           // by index
  std::vector<std::string> buses;           // "0000:41:00.0"
  std::vector<std::vector<GpuLink>> links;  // [from][to]; the diagonal is meaningless
  std::vector<int> nvlinks;                 // active links per GPU; -1: unknown
};

// Asks CUDA and, for the number of NVLinks, NVML; empty if neither is there.
GpusSeen look_at_gpus();

// Describes NCCL's path from one GPU to another, given their buses and what this process sees:
// "NVLink (NCCL)", "PCIe (NCCL)", "host memory (NCCL)", "network (NCCL)". NCCL itself logs what it
// uses in the end (NCCL_DEBUG=INFO). Pure.
struct GpuRoute {
  std::string from;
  std::string to;
  bool is_one_host = true;
};
std::string nccl_path(const GpusSeen& gpus, const GpuRoute& route);

// Describes the GPUs in a line: "none", "2 x NVIDIA H200, NVLink between all (18 NVLinks each)", "4
// x NVIDIA A40, PCIe between all but NVLink 0-1, 2-3". Pure.
std::string gpus_text(const GpusSeen& gpus);

}  // namespace lockstep::comm
