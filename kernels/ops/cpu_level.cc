#include "kernels/ops/cpu_level.h"

#include <cstdlib>
#include <string>

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

}  // namespace lockstep::kernels
