#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "kernels/ops/matmul.h"

namespace lockstep::bench {

// oneDNN's own ways of computing y = x * weight^T, called directly with layouts of its choice: the
// best it can do for a shape. Two implementations: peer_dnnl.cc, and peer_none.cc (an empty list).
struct Peer {
  std::string name;
  std::function<void()> run;  // owns its memory
};

// kUnavailable if oneDNN refuses a product, as it does for bf16 on a CPU that lacks it.
Result<std::vector<Peer>> matmul_peers(const kernels::MatmulShape& shape,
                                       kernels::Precision precision, int threads);

}  // namespace lockstep::bench
