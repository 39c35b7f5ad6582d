#include "common/layout/device_peak.h"

namespace lockstep {
namespace {

// Keyed by the whole name: an A10G is not an A10, and a part of a GPU (MIG) has its own name.
// FLOP/s are half of the numbers with sparsity in NVIDIA's datasheets.
struct Datasheet {
  std::string_view name;
  double tera_flops_per_second = 0;
  double giga_bytes_per_second = 0;
};
constexpr Datasheet kDatasheets[] = {
    {"NVIDIA A100-SXM4-40GB", 312, 1555},
    {"NVIDIA A100-SXM4-80GB", 312, 2039},
    {"NVIDIA A100-PCIE-40GB", 312, 1555},
    {"NVIDIA A100 80GB PCIe", 312, 1935},
    {"NVIDIA H100 PCIe", 756.5, 2000},
    {"NVIDIA H100 NVL", 835.5, 3900},
    {"NVIDIA H100 80GB HBM3", 989, 3350},
    {"NVIDIA H200 NVL", 835.5, 4800},
    {"NVIDIA H200", 989, 4800},
    {"NVIDIA GH200 480GB", 989, 4000},
    {"NVIDIA GH200 96GB HBM3", 989, 4000},
    {"NVIDIA L40S", 362, 864},
};

Datasheet datasheet_of(std::string_view device_name) {
  for (const Datasheet& sheet : kDatasheets) {
    if (device_name == sheet.name) return sheet;
  }
  return {};
}

}  // namespace

double datasheet_flops_per_second(std::string_view device_name) {
  return datasheet_of(device_name).tera_flops_per_second * 1e12;
}

double datasheet_bytes_per_second(std::string_view device_name) {
  return datasheet_of(device_name).giga_bytes_per_second * 1e9;
}

std::optional<double> flops_ratio(double flops_per_second, double peak_flops_per_second) {
  if (flops_per_second > 0 && peak_flops_per_second > 0) {
    return flops_per_second / peak_flops_per_second;
  }
  return std::nullopt;
}

}  // namespace lockstep
