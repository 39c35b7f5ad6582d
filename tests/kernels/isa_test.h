#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/ops/isa_table.h"

namespace lockstep::kernels {

// The base of suites that run for each instruction set that this machine supports:
//   INSTANTIATE_TEST_SUITE_P(Isas, Suite, each_isa(), isa_name);
class IsaTest : public testing::TestWithParam<const IsaTable*> {
 protected:
  const OpTable& ops() const { return GetParam()->ops; }
  Stream stream_;
};

inline auto each_isa() {
  return testing::ValuesIn(supported_isas().begin(), supported_isas().end());
}

inline std::string isa_name(const testing::TestParamInfo<const IsaTable*>& info) {
  std::string name = info.param->name;
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace lockstep::kernels
