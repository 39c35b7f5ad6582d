#include <omp.h>

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "bench/kernels/peer.h"

namespace lockstep::bench {

namespace {

using Memory = dnnl::memory;
using Tag = Memory::format_tag;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

Peer sgemm_peer(const kernels::MatmulShape& s) {
  struct Data {
    std::vector<float> x, weight, y;
  };
  const auto size = [](int64_t count) { return static_cast<size_t>(count); };
  auto data = std::make_shared<Data>(Data{std::vector<float>(size(s.m * s.k), 0.5f),
                                          std::vector<float>(size(s.n * s.k), 0.25f),
                                          std::vector<float>(size(s.m * s.n))});
  return {"sgemm", [data, s] {
            dnnl_sgemm('N', 'T', s.m, s.n, s.k, 1.0f, data->x.data(), s.k, data->weight.data(), s.k,
                       0.0f, data->y.data(), s.n);
          }};
}

// The weights as they are ([N,K] row-major), or in the layout that oneDNN likes best.
Peer primitive_peer(const kernels::MatmulShape& s, Memory::data_type type, bool own_layout) {
  const Memory::desc x({s.m, s.k}, type, Tag::ab);
  const Memory::desc weight({s.k, s.n}, type, own_layout ? Tag::any : Tag::ba);
  const Memory::desc y({s.m, s.n}, Memory::data_type::f32, Tag::ab);
  const dnnl::matmul::primitive_desc description({x, weight, y}, engine());
  const dnnl::matmul primitive(description);
  const std::unordered_map<int, Memory> args = {
      {DNNL_ARG_SRC, Memory(description.src_desc(), engine())},
      {DNNL_ARG_WEIGHTS, Memory(description.weights_desc(), engine())},
      {DNNL_ARG_DST, Memory(description.dst_desc(), engine())}};
  // 0x3F3F3F3F is a number near 0.75 both as fp32 and as two bf16.
  for (const int role : {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS}) {
    const Memory& memory = args.at(role);
    std::fill_n(static_cast<uint32_t*>(memory.get_data_handle()), memory.get_desc().get_size() / 4,
                0x3F3F3F3Fu);
  }
  return {own_layout ? "primitive, own layout" : "primitive",
          [primitive, args, stream = dnnl::stream(engine())] { primitive.execute(stream, args); }};
}

std::vector<Peer> peers_or_throw(const kernels::MatmulShape& shape, kernels::Precision precision) {
  std::vector<Peer> peers;
  const bool bf16 = precision == kernels::Precision::kBf16;
  if (!bf16) peers.push_back(sgemm_peer(shape));
  const Memory::data_type type = bf16 ? Memory::data_type::bf16 : Memory::data_type::f32;
  for (const bool own_layout : {false, true}) {
    peers.push_back(primitive_peer(shape, type, own_layout));
  }
  return peers;
}

}  // namespace

Result<std::vector<Peer>> matmul_peers(const kernels::MatmulShape& shape,
                                       kernels::Precision precision, int threads) {
  kernels::cpu_matmul_support();  // applies cpu_level_cap() to oneDNN before its first use
  omp_set_num_threads(threads);
  try {
    return peers_or_throw(shape, precision);
  } catch (const dnnl::error& error) {
    return unavailable("[oneDNN] a product in " +
                       std::string(precision == kernels::Precision::kBf16 ? "bf16" : "fp32") +
                       " expected: " + error.what());
  }
}

}  // namespace lockstep::bench
