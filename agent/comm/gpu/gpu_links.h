#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Which way bytes go from one GPU of a machine to another.
enum class GpuLink : uint8_t { kNvlink, kPcie, kHost };
// "NVLink", "PCIe", "host memory"
const char* name_of(GpuLink link);

struct GpuPair {
  bool can_access = false;      // the driver lets one read and write the other's memory
  bool native_atomics = false;  // over the link, as NVLink has them and PCIe has not
};
// `nvlinks`: of the one that has fewer; -1: not known. Pure.
GpuLink link_of(const GpuPair& pair, int nvlinks);

// The GPUs of a machine as this process sees them.
struct GpusSeen {
  std::vector<std::string> names;           // by index
  std::vector<std::string> buses;           // "0000:41:00.0"
  std::vector<std::vector<GpuLink>> links;  // from, to; the diagonal is meaningless
  std::vector<int> nvlinks;                 // up, a GPU; -1: not known
};

// As CUDA and, for the number of NVLinks, NVML say it; none where there is neither.
GpusSeen look_at_gpus();

// Which way NCCL has from one GPU to another, by their buses, as far as this process sees it:
// "NVLink (NCCL)", "PCIe (NCCL)", "host memory (NCCL)", "network (NCCL)". What it takes in the end
// it says itself (NCCL_DEBUG=INFO). Pure.
struct GpuRoute {
  std::string from;
  std::string to;
  bool is_one_host = true;
};
std::string nccl_path(const GpusSeen& gpus, const GpuRoute& route);

// For people, in a line: "none", "2 x NVIDIA H200, NVLink between all (18 links each)",
// "4 x NVIDIA A40, PCIe between all but NVLink 0-1, 2-3". Pure.
std::string gpus_text(const GpusSeen& gpus);

}  // namespace lockstep
