#include "tests/support/emulated_cuda/fake_cublaslt.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <set>
#include <utility>

#include "tests/support/emulated_cuda/devices.h"
#include "tests/support/emulated_cuda/one_at_a_time.h"

namespace lockstep::test {

namespace {

// The three kinds of objects behind the library's opaque pointers.
struct Description {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  int32_t transpose_a = CUBLAS_OP_N;
  int32_t transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_ld = 0;
};
struct Layout {
  cudaDataType_t type = CUDA_R_32F;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t ld = 0;

  bool operator==(const Layout&) const = default;
};
struct Preference {
  uint64_t workspace_bytes = 0;
  uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::map<int, uint32_t> alignments;
};

// Limits of the library and of this fake.
constexpr int64_t kAuxDivisor = 8;
constexpr size_t kWorkspaceAlignment = 256;
constexpr int64_t kDeep = 64;  // products of this depth want a workspace, like split-K
constexpr size_t kDeepWorkspace = size_t{1} << 16;
constexpr uintptr_t kAlignmentDefault = 256;
constexpr double kMultiplicationsMax = 1e9;

template <class T, class Opaque>
T& real(Opaque opaque) {
  return *reinterpret_cast<T*>(opaque);
}

template <class T, class Opaque>
cublasStatus_t destroy(Opaque opaque) {
  delete &real<T>(opaque);
  --fake_cublaslt().alive;
  return CUBLAS_STATUS_SUCCESS;
}

template <class T, class Opaque>
void give(Opaque* out, const T& value) {
  *out = reinterpret_cast<Opaque>(new T(value));
  ++fake_cublaslt().alive;
}

template <class T>
cublasStatus_t take(T& to, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_description(cublasLtMatmulDesc_t opaque, cublasLtMatmulDescAttributes_t what,
                               const void* value, size_t bytes) {
  auto& desc = real<Description>(opaque);
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(desc.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(desc.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(desc.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(desc.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(desc.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(desc.aux_ld, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;  // not supported by this fake
  }
}

cublasStatus_t set_preference(cublasLtMatmulPreference_t opaque,
                              cublasLtMatmulPreferenceAttributes_t what, const void* value,
                              size_t bytes) {
  auto& preference = real<Preference>(opaque);
  switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(preference.workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(preference.reduction_schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(preference.alignments[what], value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

bool uses_bias(uint32_t epilogue) {
  return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}
bool uses_aux(uint32_t epilogue) {
  return (epilogue & 128) != 0;
}
bool is_gelu_gradient(uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_DGELU;
}
bool is_gelu(uint32_t epilogue) {
  return (epilogue & CUBLASLT_EPILOGUE_GELU) != 0;
}

const std::set<uint32_t>& known_epilogues() {
  static const std::set<uint32_t> known = {
      CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_BIAS,     CUBLASLT_EPILOGUE_GELU,
      CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
      CUBLASLT_EPILOGUE_DGELU};
  return known;
}

// Returns the layout of op(matrix).
Layout turned(const Layout& layout, int32_t transpose) {
  Layout result = layout;
  if (transpose == CUBLAS_OP_T) std::swap(result.rows, result.columns);
  return result;
}

struct Problem {
  Description desc;
  Layout a, b, c, d;
};

cublasStatus_t check_shapes(const Problem& p) {
  const Layout a = turned(p.a, p.desc.transpose_a), b = turned(p.b, p.desc.transpose_b);
  if (a.columns != b.rows || a.rows != p.d.rows || b.columns != p.d.columns) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (p.c.type != p.d.type || p.c.rows != p.d.rows || p.c.columns != p.d.columns) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const Layout& layout : {p.a, p.b, p.c, p.d}) {
    if (layout.rows <= 0 || layout.columns <= 0 || layout.ld < layout.rows) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

// Accepts the rows of the documentation's table with real types in fp32 or bf16.
cublasStatus_t check_types(const Problem& p) {
  if (p.desc.compute != CUBLAS_COMPUTE_32F || p.desc.scale != CUDA_R_32F) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (p.a.type != p.b.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool f32 = p.a.type == CUDA_R_32F && p.d.type == CUDA_R_32F;
  const bool bf16 = p.a.type == CUDA_R_16BF && (p.d.type == CUDA_R_16BF || p.d.type == CUDA_R_32F);
  return f32 || bf16 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t check_epilogue(const Problem& p) {
  const Description& desc = p.desc;
  if (!known_epilogues().contains(desc.epilogue)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (uses_bias(desc.epilogue) && desc.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (!uses_aux(desc.epilogue)) return CUBLAS_STATUS_SUCCESS;
  const bool fits = desc.aux != nullptr && desc.aux_ld >= p.d.rows;
  return fits && desc.aux_ld % kAuxDivisor == 0 ? CUBLAS_STATUS_SUCCESS
                                                : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t check(const Problem& problem) {
  for (const auto& part : {check_shapes, check_types, check_epilogue}) {
    if (const cublasStatus_t status = part(problem); status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

bool is_refused(const Problem& p) {
  const FakeCublasLt& fake = fake_cublaslt();
  const bool gelu = is_gelu(p.desc.epilogue) || is_gelu_gradient(p.desc.epilogue);
  bool odd = false;
  for (const Layout& layout : {p.a, p.b, p.d}) {
    odd = odd || (layout.type == CUDA_R_16BF && layout.ld % 8 != 0);
  }
  const bool epilogue = p.desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  return fake.refuse_all || (fake.refuse_epilogues && epilogue) || (fake.refuse_gelu && gelu) ||
         (fake.refuse_odd_bf16 && odd);
}

uintptr_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | kAlignmentDefault;
  return uintptr_t{1} << std::countr_zero(address);
}

// The calls an algorithm is valid for; stored in the 64 bytes of cublasLtMatmulAlgo_t.
struct Algorithm {
  uint64_t problem;  // a hash of everything but addresses
  uint64_t workspace_bytes;
  uint16_t a, b, c, d, bias, aux;  // alignments in bytes
  uint16_t number;                 // index among the product's algorithms
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

uint64_t hash_of(const Problem& p) {
  uint64_t hash = 14695981039346656037u;
  const auto mix = [&](auto number) {
    hash = (hash ^ static_cast<uint64_t>(number)) * 1099511628211u;
  };
  for (const Layout& layout : {p.a, p.b, p.c, p.d}) {
    mix(layout.type), mix(layout.rows), mix(layout.columns), mix(layout.ld);
  }
  mix(p.desc.transpose_a), mix(p.desc.transpose_b), mix(p.desc.epilogue), mix(p.desc.aux_ld);
  return hash;
}

Problem problem_of(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  return {real<Description>(desc), real<Layout>(a), real<Layout>(b), real<Layout>(c),
          real<Layout>(d)};
}

cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                         cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                         cublasLtMatmulPreference_t preference, int wanted,
                         cublasLtMatmulHeuristicResult_t results[], int* count) {
  FakeCublasLt& fake = fake_cublaslt();
  ++fake.heuristics;
  *count = 0;
  if (handle == nullptr || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const Problem problem = problem_of(desc, a, b, c, d);
  if (const cublasStatus_t status = check(problem); status != CUBLAS_STATUS_SUCCESS) return status;
  if (is_refused(problem)) return fake.refusal;
  const auto& asked = real<Preference>(preference);
  fake.last_reduction_schemes = asked.reduction_schemes;
  const auto alignment = [&](cublasLtMatmulPreferenceAttributes_t what) {
    const auto at = asked.alignments.find(what);
    return static_cast<uint16_t>(at == asked.alignments.end() ? kAlignmentDefault : at->second);
  };
  const Layout left = turned(problem.a, problem.desc.transpose_a);
  const bool deep = left.columns >= kDeep && asked.workspace_bytes >= kDeepWorkspace &&
                    (asked.reduction_schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
  Algorithm algorithm{.problem = hash_of(problem),
                      .workspace_bytes = deep ? kDeepWorkspace : 0,
                      .a = alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES),
                      .b = alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES),
                      .c = alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES),
                      .d = alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES),
                      .bias = static_cast<uint16_t>(alignment_of(problem.desc.bias)),
                      .aux = static_cast<uint16_t>(alignment_of(problem.desc.aux)),
                      .number = 0};
  *count = std::min(wanted, static_cast<int>(fake.seconds_of.size()));
  for (int i = 0; i < *count; ++i, ++algorithm.number) {
    results[i] = {};
    std::memcpy(&results[i].algo, &algorithm, sizeof algorithm);
    results[i].workspaceSize = algorithm.workspace_bytes;
    results[i].state = i < fake.unusable ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

double element(const void* data, cudaDataType_t type, int64_t at) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[at];
  return std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(data)[at]} << 16);
}

// Rounds to nearest, ties to even.
void put(void* data, cudaDataType_t type, int64_t at, double value) {
  const auto single = static_cast<float>(value);
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[at] = single;
    return;
  }
  const auto bits = std::bit_cast<uint32_t>(single);
  const uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  static_cast<uint16_t*>(data)[at] =
      static_cast<uint16_t>(std::isnan(single) ? 0x7FC0 : rounded >> 16);
}

double gelu(double x) {
  return 0.5 * x *
         (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double gelu_gradient(double x) {
  const double factor = std::sqrt(2.0 / std::numbers::pi);
  const double t = std::tanh(factor * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * factor * (1.0 + 3.0 * 0.044715 * x * x);
}

// Adds the bias, then stores the sum in aux, then applies the activation.
double after_epilogue(const Problem& p, int64_t row, int64_t column, double sum) {
  const uint32_t epilogue = p.desc.epilogue;
  const int64_t aux_at = row + column * p.desc.aux_ld;
  if (uses_bias(epilogue)) sum += element(p.desc.bias, p.d.type, row);
  if (is_gelu_gradient(epilogue)) {
    return sum * gelu_gradient(element(p.desc.aux, p.d.type, aux_at));
  }
  if (uses_aux(epilogue)) put(p.desc.aux, p.d.type, aux_at, sum);
  return is_gelu(epilogue) ? gelu(sum) : sum;
}

struct Pointers {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
};

void compute(const Problem& p, const Pointers& at, double alpha, double beta) {
  const bool ta = p.desc.transpose_a == CUBLAS_OP_T, tb = p.desc.transpose_b == CUBLAS_OP_T;
  const int64_t depth = turned(p.a, p.desc.transpose_a).columns;
  for (int64_t column = 0; column < p.d.columns; ++column) {
    for (int64_t row = 0; row < p.d.rows; ++row) {
      double sum = 0.0;
      for (int64_t l = 0; l < depth; ++l) {
        sum += element(at.a, p.a.type, ta ? l + row * p.a.ld : row + l * p.a.ld) *
               element(at.b, p.b.type, tb ? column + l * p.b.ld : l + column * p.b.ld);
      }
      sum *= alpha;
      if (beta != 0.0) sum += beta * element(at.c, p.c.type, row + column * p.c.ld);
      put(at.d, p.d.type, row + column * p.d.ld, after_epilogue(p, row, column, sum));
    }
  }
}

bool is_aligned(const Algorithm& algorithm, const Problem& p, const Pointers& at) {
  return alignment_of(at.a) >= algorithm.a && alignment_of(at.b) >= algorithm.b &&
         alignment_of(at.c) >= algorithm.c && alignment_of(at.d) >= algorithm.d &&
         alignment_of(p.desc.bias) >= algorithm.bias && alignment_of(p.desc.aux) >= algorithm.aux;
}

cublasStatus_t matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                      const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                      cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                      cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                      const cublasLtMatmulAlgo_t* opaque_algorithm, void* workspace,
                      size_t workspace_bytes, cudaStream_t stream) {
  FakeCublasLt& fake = fake_cublaslt();
  if (fake.next_failure != CUBLAS_STATUS_SUCCESS) {
    return std::exchange(fake.next_failure, CUBLAS_STATUS_SUCCESS);
  }
  const Problem problem = problem_of(desc, a_layout, b_layout, c_layout, d_layout);
  if (const cublasStatus_t status = check(problem); status != CUBLAS_STATUS_SUCCESS) return status;
  const Pointers at{a, b, c, d};
  Algorithm algorithm;
  std::memcpy(&algorithm, opaque_algorithm, sizeof algorithm);
  const bool fits = reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment == 0 &&
                    workspace_bytes >= algorithm.workspace_bytes;
  const bool in_place = c == d && problem.c == problem.d;
  if (handle == nullptr || algorithm.problem != hash_of(problem) || !fits || !in_place ||
      !is_aligned(algorithm, problem, at)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const double multiplications =
      static_cast<double>(turned(problem.a, problem.desc.transpose_a).columns) *
      static_cast<double>(problem.d.rows) * static_cast<double>(problem.d.columns);
  if (multiplications > kMultiplicationsMax) return CUBLAS_STATUS_EXECUTION_FAILED;
  const double seconds = fake.seconds_of.at(algorithm.number);
  if (seconds < 0.0 || algorithm.number < fake.unusable) return CUBLAS_STATUS_NOT_SUPPORTED;
  fake.seconds += seconds;
  ++fake.products;
  fake.last_epilogue = problem.desc.epilogue;
  fake.last_workspace_bytes = workspace_bytes;
  const auto product = [=, alpha = *static_cast<const float*>(alpha),
                        beta = *static_cast<const float*>(beta)](uint64_t) {
    if (algorithm.workspace_bytes > 0) std::memset(workspace, 0xFF, algorithm.workspace_bytes);
    compute(problem, at, alpha, beta);
    return Status();
  };
  const Status done = stream == nullptr ? product(0) : emulated_cuda::issue(stream, product);
  return done.ok() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t create(cublasLtHandle_t* handle) {
  static int context = 0;
  *handle = reinterpret_cast<cublasLtHandle_t>(&context);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t create_description(cublasLtMatmulDesc_t* out, cublasComputeType_t compute,
                                  cudaDataType_t scale) {
  give(out, Description{.compute = compute, .scale = scale});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t create_layout(cublasLtMatrixLayout_t* out, cudaDataType_t type, uint64_t rows,
                             uint64_t columns, int64_t ld) {
  give(out, Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t create_preference(cublasLtMatmulPreference_t* out) {
  give(out, Preference());
  return CUBLAS_STATUS_SUCCESS;
}

const char* words(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an invalid value";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "not supported";
    default:
      return "a failure";
  }
}

}  // namespace

void FakeCublasLt::reset() {
  const int64_t kept = alive;
  *this = {};
  alive = kept;
}

FakeCublasLt& fake_cublaslt() {
  static FakeCublasLt fake;
  return fake;
}

const kernels::blas::CublasLtLibrary& fake_cublaslt_library() {
  static const kernels::blas::CublasLtLibrary library{
      .use_device = [](int) { return Status(); },
      .create = one_at_a_time<create>,
      .status_string = words,
      .desc_create = one_at_a_time<create_description>,
      .desc_destroy = one_at_a_time<destroy<Description, cublasLtMatmulDesc_t>>,
      .desc_set = one_at_a_time<set_description>,
      .layout_create = one_at_a_time<create_layout>,
      .layout_destroy = one_at_a_time<destroy<Layout, cublasLtMatrixLayout_t>>,
      .preference_create = one_at_a_time<create_preference>,
      .preference_destroy = one_at_a_time<destroy<Preference, cublasLtMatmulPreference_t>>,
      .preference_set = one_at_a_time<set_preference>,
      .heuristic = one_at_a_time<heuristic>,
      .matmul = one_at_a_time<matmul>};
  return library;
}

}  // namespace lockstep::test

namespace lockstep::kernels::blas {

Result<const CublasLtLibrary*> load_cublaslt() {
  return &test::fake_cublaslt_library();
}

}  // namespace lockstep::kernels::blas
