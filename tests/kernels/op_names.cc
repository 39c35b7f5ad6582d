#include "tests/kernels/op_names.h"

#include <fstream>
#include <iterator>
#include <regex>

#include "common/base/check.h"
#include "kernels/ops/op_table.h"

namespace lockstep::kernels::op_cases {

std::vector<std::string> op_names() {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/kernels/ops/op_table.h");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::regex member(R"(void \(\*(\w+)\)\(Stream&)");
  std::vector<std::string> names;
  for (std::sregex_iterator at(text.begin(), text.end(), member), end; at != end; ++at) {
    names.push_back((*at)[1]);
  }
  CHECK(names.size() == sizeof(OpTable) / sizeof(void*));
  return names;
}

}  // namespace lockstep::kernels::op_cases
