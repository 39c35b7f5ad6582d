#include "common/layout/device_peak.h"

namespace lockstep {
namespace {

// By the whole name: an A10G is no A10, and a part of a GPU (MIG) has a name of its own. Half of
// what NVIDIA's datasheets give with sparsity.
struct Datasheet {
  std::string_view name;
  double tera_flops_per_second;
};
constexpr Datasheet kDatasheets[] = {
    {"NVIDIA A100-SXM4-40GB", 312}, {"NVIDIA A100-SXM4-80GB", 312},  {"NVIDIA A100-PCIE-40GB", 312},
    {"NVIDIA A100 80GB PCIe", 312}, {"NVIDIA H100 PCIe", 756.5},     {"NVIDIA H100 NVL", 835.5},
    {"NVIDIA H100 80GB HBM3", 989}, {"NVIDIA H200 NVL", 835.5},      {"NVIDIA H200", 989},
    {"NVIDIA GH200 480GB", 989},    {"NVIDIA GH200 96GB HBM3", 989}, {"NVIDIA L40S", 362},
};

}  // namespace

double datasheet_flops_per_second(std::string_view device_name) {
  for (const Datasheet& sheet : kDatasheets) {
    if (device_name == sheet.name) return sheet.tera_flops_per_second * 1e12;
  }
  return 0;
}

}  // namespace lockstep
