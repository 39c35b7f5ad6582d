#include "kernels/ops/dnn/dnn.h"

#include <algorithm>

namespace lockstep::kernels::dnn {

size_t PreparedConv2d::workspace_bytes() const {
  return std::max({forward.workspace_bytes, inputs.workspace_bytes, filters.workspace_bytes});
}

std::string PreparedConv2d::refusals() const {
  std::string all;
  for (const PreparedConv2dPass* pass : {&forward, &inputs, &filters}) {
    if (!all.empty() && !pass->refusal.empty()) all += "; ";
    all += pass->refusal;
  }
  return all;
}

}  // namespace lockstep::kernels::dnn
