#include "kernels/ops/cpu_level.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "kernels/ops/isa_table.h"
#include "kernels/ops/matmul.h"

namespace lockstep::kernels {

namespace {

struct NamedLevel {
  CpuLevel level;
  std::string_view name;
};
constexpr NamedLevel kNames[] = {{CpuLevel::kBaseline, "baseline"},
                                 {CpuLevel::kAvx2, "avx2"},
                                 {CpuLevel::kAvx512, "avx512"},
                                 {CpuLevel::kAvx512Bf16, "avx512_bf16"},
                                 {CpuLevel::kAmx, "amx"}};

Result<CpuLevel> read_cap() {
  const char* text = std::getenv(kMaxCpuIsaVariable);
  if (text == nullptr || *text == '\0') return CpuLevel::kAmx;
  return cpu_level_from_name(text);
}

}  // namespace

std::span<const CpuLevel> all_cpu_levels() {
  static constexpr auto kAll = [] {
    std::array<CpuLevel, std::size(kNames)> levels{};
    for (size_t i = 0; i < levels.size(); ++i) levels[i] = kNames[i].level;
    return levels;
  }();
  return kAll;
}

std::string_view cpu_level_name(CpuLevel level) {
  return kNames[static_cast<size_t>(level)].name;
}

Result<CpuLevel> cpu_level_from_name(std::string_view name) {
  std::string expected;
  for (const NamedLevel& one : kNames) {
    if (one.name == name) return one.level;
    expected += (expected.empty() ? "" : ", ") + std::string(one.name);
  }
  return invalid(std::string(kMaxCpuIsaVariable) + ": expected one of " + expected + "; found \"" +
                 std::string(name) + "\"");
}

const Result<CpuLevel>& cpu_level_cap() {
  static const Result<CpuLevel> cap = read_cap();
  return cap;
}

CpuLevel cpu_level() {
  const CpuLevel ops = supported_isas().front()->level;
  if (ops < CpuLevel::kAvx512) return ops;
  return std::max(ops, cpu_matmul_support().level);
}

}  // namespace lockstep::kernels
