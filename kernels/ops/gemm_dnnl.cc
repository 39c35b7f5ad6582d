#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/device/parallel.h"
#include "kernels/ops/dnnl_engine.h"
#include "kernels/ops/gemm.h"
#include "kernels/ops/own_gemm.h"

namespace lockstep::kernels {

namespace {

struct Key {
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate, bias;
  DType dtype;
  int threads;  // blocking depends on it

  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t hash = 0;
    const auto mix = [&](int64_t value) {
      hash = (hash ^ static_cast<size_t>(value)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    };
    mix(key.m);
    mix(key.n);
    mix(key.k);
    mix(key.threads);
    mix(static_cast<int64_t>(key.dtype) * 16 + key.transpose_a * 8 + key.transpose_b * 4 +
        key.accumulate * 2 + key.bias);
    return hash;
  }
};

dnnl_memory_desc_t matrix(int64_t rows, int64_t columns, bool transposed, dnnl_data_type_t type) {
  const dnnl_dims_t dims = {rows, columns};
  const dnnl_dims_t strides = {transposed ? 1 : columns, transposed ? rows : 1};
  dnnl_memory_desc_t desc;
  CHECK(dnnl_memory_desc_init_by_strides(&desc, 2, dims, type, strides) == dnnl_success);
  return desc;
}

// A prepared product, and the memory objects that each call points to its arguments.
class Prepared {
 public:
  explicit Prepared(const Key& key) {
    const dnnl_data_type_t type = key.dtype == DType::kBf16 ? dnnl_bf16 : dnnl_f32;
    const dnnl_memory_desc_t a = matrix(key.m, key.k, key.transpose_a, type);
    const dnnl_memory_desc_t b = matrix(key.k, key.n, key.transpose_b, type);
    const dnnl_memory_desc_t c = matrix(key.m, key.n, false, dnnl_f32);
    const dnnl_memory_desc_t bias = matrix(1, key.n, false, dnnl_f32);
    dnnl_matmul_desc_t matmul;
    CHECK(dnnl_matmul_desc_init(&matmul, &a, &b, key.bias ? &bias : nullptr, &c) == dnnl_success);
    dnnl_primitive_attr_t attributes = nullptr;
    CHECK(dnnl_primitive_attr_create(&attributes) == dnnl_success);
    // fp32 means fp32, whatever the environment says of faster modes.
    CHECK(dnnl_primitive_attr_set_fpmath_mode(attributes, dnnl_fpmath_mode_strict) == dnnl_success);
    dnnl_post_ops_t sum = nullptr;
    if (key.accumulate) {
      CHECK(dnnl_post_ops_create(&sum) == dnnl_success);
      CHECK(dnnl_post_ops_append_sum(sum, 1.0f) == dnnl_success);
      CHECK(dnnl_primitive_attr_set_post_ops(attributes, sum) == dnnl_success);
    }
    dnnl_primitive_desc_t description = nullptr;
    CHECK(dnnl_primitive_desc_create(&description, &matmul, attributes, dnnl_cpu_engine(),
                                     nullptr) == dnnl_success);
    CHECK(dnnl_primitive_create(&primitive_, description) == dnnl_success);
    dnnl_primitive_desc_destroy(description);
    dnnl_primitive_attr_destroy(attributes);
    if (sum) dnnl_post_ops_destroy(sum);
    add(DNNL_ARG_SRC, a);
    add(DNNL_ARG_WEIGHTS, b);
    add(DNNL_ARG_DST, c);
    if (key.bias) add(DNNL_ARG_BIAS, bias);
  }
  Prepared(Prepared&& other) noexcept
      : primitive_(std::exchange(other.primitive_, nullptr)), args_(std::move(other.args_)) {}
  Prepared& operator=(Prepared&&) = delete;
  ~Prepared() {
    for (const dnnl_exec_arg_t& arg : args_) dnnl_memory_destroy(arg.memory);
    if (primitive_) dnnl_primitive_destroy(primitive_);
  }

  void run(const Gemm& args, dnnl_stream_t stream) {
    const void* data[] = {args.a.data, args.b.data, args.c, args.bias};
    for (size_t i = 0; i < args_.size(); ++i) {
      CHECK(dnnl_memory_set_data_handle(args_[i].memory, const_cast<void*>(data[i])) ==
            dnnl_success);
    }
    CHECK(dnnl_primitive_execute(primitive_, stream, static_cast<int>(args_.size()),
                                 args_.data()) == dnnl_success);
  }

 private:
  void add(int role, const dnnl_memory_desc_t& desc) {
    dnnl_memory_t memory = nullptr;
    CHECK(dnnl_memory_create(&memory, &desc, dnnl_cpu_engine(), DNNL_MEMORY_NONE) == dnnl_success);
    args_.push_back({role, memory});
  }

  dnnl_primitive_t primitive_ = nullptr;
  std::vector<dnnl_exec_arg_t> args_;
};

// The products that one thread has prepared so far: a handful of shapes per model.
class Cache {
 public:
  Cache() {
    CHECK(dnnl_stream_create(&stream_, dnnl_cpu_engine(), dnnl_stream_default_flags) ==
          dnnl_success);
  }
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  ~Cache() {
    prepared_.clear();
    dnnl_stream_destroy(stream_);
  }

  void run(const Key& key, const Gemm& args) {
    auto found = prepared_.find(key);
    if (found == prepared_.end()) found = prepared_.emplace(key, Prepared(key)).first;
    found->second.run(args, stream_);
  }

 private:
  dnnl_stream_t stream_ = nullptr;
  std::unordered_map<Key, Prepared, KeyHash> prepared_;
};

struct ChosenIsa {
  const char* name;
  CpuLevel level;
};

ChosenIsa chosen_isa() {
  dnnl_cpu_engine();  // the instruction set is capped with it
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_avx512_core_amx:
      return {"avx512_core_amx", CpuLevel::kAmx};
    case dnnl_cpu_isa_avx512_core_bf16:
      return {"avx512_core_bf16", CpuLevel::kAvx512Bf16};
    case dnnl_cpu_isa_avx512_core_vnni:
      return {"avx512_core_vnni", CpuLevel::kAvx512};
    case dnnl_cpu_isa_avx512_core:
      return {"avx512_core", CpuLevel::kAvx512};
    case dnnl_cpu_isa_avx2_vnni:
      return {"avx2_vnni", CpuLevel::kAvx2};
    case dnnl_cpu_isa_avx2:
      return {"avx2", CpuLevel::kAvx2};
    default:
      return {"below avx2", CpuLevel::kBaseline};
  }
}

// With AVX2, our own product is faster than oneDNN's where tiles are mostly full (bench/results,
// step_profile).
bool is_own_faster(const Gemm& args) {
  constexpr int64_t kEdgeMin = 32;
  static const bool has_avx2_only = chosen_isa().level == CpuLevel::kAvx2;
  return has_avx2_only && args.a.dtype == DType::kF32 &&
         std::min({args.m, args.n, args.k}) >= kEdgeMin;
}

}  // namespace

void gemm(const Gemm& args) {
  CHECK(args.a.dtype == args.b.dtype);
  CHECK(!(args.bias && args.accumulate));
  if (args.m == 0 || args.n == 0) return;
  CHECK(args.k > 0);
  if (is_own_faster(args)) return own_gemm(args);
  set_dnnl_threads();
  static thread_local Cache cache;
  cache.run({.m = args.m,
             .n = args.n,
             .k = args.k,
             .transpose_a = args.transpose_a,
             .transpose_b = args.transpose_b,
             .accumulate = args.accumulate,
             .bias = args.bias != nullptr,
             .dtype = args.a.dtype,
             .threads = threads()},
            args);
}

MatmulSupport cpu_matmul_support() {
  const dnnl_version_t* version = dnnl_version();
  const ChosenIsa chosen = chosen_isa();
  return {.library = (chosen.level == CpuLevel::kAvx2 ? "own, oneDNN " : "oneDNN ") +
                     std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
                     std::to_string(version->patch),
          .isa = chosen.name,
          .native_bf16 = chosen.level >= CpuLevel::kAvx512Bf16,
          .level = chosen.level};
}

}  // namespace lockstep::kernels
