#include "kernels/ops/blas/cublaslt.h"

#include <algorithm>
#include <limits>
#include <string>

#include "common/base/log.h"
#include "kernels/device/device_errors.h"

// TRY_BLAS(name, call): if a call of the library fails, returns the error from the enclosing member
// function.
#define TRY_BLAS(name, expression)                                                     \
  do {                                                                                 \
    if (const cublasStatus_t status_ = (expression); status_ != CUBLAS_STATUS_SUCCESS) \
      return call_error({name, __FILE__, __LINE__, {DeviceType::kCuda, index_}},       \
                        library_.status_string(status_));                              \
  } while (false)

namespace lockstep::kernels::blas {

namespace {

constexpr int kAlgorithmsMax = 8;
constexpr float kOne = 1.0f;
constexpr float kZero = 0.0f;

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
}

cublasLtEpilogue_t library_epilogue(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kGelu:
      return CUBLASLT_EPILOGUE_GELU;
    case Epilogue::kGeluBias:
      return CUBLASLT_EPILOGUE_GELU_BIAS;
    case Epilogue::kGeluAux:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kGeluAuxBias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kDGelu:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// A matrix in its stored form.
struct Stored {
  uint64_t rows = 0;
  uint64_t columns = 0;
};

Stored stored(int64_t rows, int64_t columns, bool transposed) {
  const auto r = static_cast<uint64_t>(rows), c = static_cast<uint64_t>(columns);
  return transposed ? Stored{c, r} : Stored{r, c};
}

// Returns an address, never read, with the lowest alignment of any call that shares this plan: the
// library's heuristic checks the addresses of bias and aux.
template <class T>
T* least_aligned(T* data, uintptr_t alignment) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return reinterpret_cast<T*>(address % (2 * alignment) == 0 ? address + alignment : address);
}

// Returns whether the status means "no algorithm". cublasLt.h documents NOT_SUPPORTED for that. A
// version that lacks a combination of types and epilogue may also return INVALID_VALUE, although
// the product alone is valid.
bool is_refusal(cublasStatus_t status, const Product& product) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ||
         (status == CUBLAS_STATUS_INVALID_VALUE && product.epilogue != Epilogue::kNone);
}

}  // namespace

Result<double> seconds_on_device(Device device, void* stream,
                                 const std::function<Status()>& issue) {
  TRY_ASSIGN(Event before, Event::create_timed(device));
  TRY_ASSIGN(Event after, Event::create_timed(device));
  TRY(before.record(stream));
  TRY(issue());
  TRY(after.record(stream));
  TRY(after.synchronize());
  return before.seconds_until(after);
}

Result<std::unique_ptr<CublasLt>> CublasLt::create(const CublasLtLibrary& library, int index,
                                                   CublasLtSettings settings) {
  std::unique_ptr<CublasLt> context(new CublasLt(library, index, std::move(settings)));
  TRY(library.use_device(index));
  if (const cublasStatus_t status = library.create(&context->handle_);
      status != CUBLAS_STATUS_SUCCESS) {
    return call_error({"cublasLtCreate", __FILE__, __LINE__, {DeviceType::kCuda, index}},
                      library.status_string(status));
  }
  return context;
}

Status CublasLt::set(const Plan& plan, cublasLtMatmulDescAttributes_t attribute, const void* value,
                     size_t bytes) {
  TRY_BLAS("cublasLtMatmulDescSetAttribute",
           library_.desc_set(plan.desc.get(), attribute, value, bytes));
  return {};
}

Status CublasLt::set_operands(const Plan& plan, const Call& call) {
  if (has_bias(call.product.epilogue)) {
    TRY(set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.operands.bias, sizeof(void*)));
  }
  if (has_aux(call.product.epilogue)) {
    TRY(set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &call.operands.aux, sizeof(void*)));
  }
  return {};
}

// Scale and sum are fp32; factors keep their stored precision (fp32 is not reduced to TF32). bias
// and aux have D's type, the library's default.
Result<Plan> CublasLt::describe(const Call& call) {
  const Product& product = call.product;
  cublasLtMatmulDesc_t desc = nullptr;
  TRY_BLAS("cublasLtMatmulDescCreate", library_.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Plan plan;
  plan.desc = {desc, {library_.desc_destroy}};
  const int32_t transpose_a = product.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int32_t transpose_b = product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const auto epilogue = static_cast<uint32_t>(library_epilogue(product.epilogue));
  TRY(set(plan, CUBLASLT_MATMUL_DESC_TRANSA, &transpose_a, sizeof transpose_a));
  TRY(set(plan, CUBLASLT_MATMUL_DESC_TRANSB, &transpose_b, sizeof transpose_b));
  TRY(set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
  if (has_aux(product.epilogue)) {
    TRY(set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &product.rows, sizeof product.rows));
  }
  TRY(set_operands(plan, call));

  const auto layout = [&](Descriptor<cublasLtMatrixLayout_t>& owner, DType dtype,
                          const Stored& matrix) -> Status {
    cublasLtMatrixLayout_t made = nullptr;
    TRY_BLAS("cublasLtMatrixLayoutCreate",
             library_.layout_create(&made, type_of(dtype), matrix.rows, matrix.columns,
                                    static_cast<int64_t>(matrix.rows)));
    owner = {made, {library_.layout_destroy}};
    return {};
  };
  TRY(layout(plan.a, product.factors, stored(product.rows, product.depth, product.transpose_a)));
  TRY(layout(plan.b, product.factors, stored(product.depth, product.columns, product.transpose_b)));
  TRY(layout(plan.d, product.result, stored(product.rows, product.columns, false)));
  return plan;
}

Status CublasLt::find_algorithms(const Call& call, size_t workspace_bytes, Plan& plan) {
  cublasLtMatmulPreference_t made = nullptr;
  TRY_BLAS("cublasLtMatmulPreferenceCreate", library_.preference_create(&made));
  const Descriptor<cublasLtMatmulPreference_t> preference(made, {library_.preference_destroy});
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute,
                          const auto& value) -> Status {
    TRY_BLAS("cublasLtMatmulPreferenceSetAttribute",
             library_.preference_set(preference.get(), attribute, &value, sizeof value));
    return {};
  };
  const Alignments& alignments = call.product.alignments;
  TRY(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes}));
  TRY(prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
             uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}));
  TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{alignments.a}));
  TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t{alignments.b}));
  TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t{alignments.d}));
  TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t{alignments.d}));

  cublasLtMatmulHeuristicResult_t found[kAlgorithmsMax] = {};
  int count = 0;
  const cublasStatus_t status =
      library_.heuristic(handle_, plan.desc.get(), plan.a.get(), plan.b.get(), plan.d.get(),
                         plan.d.get(), preference.get(), kAlgorithmsMax, found, &count);
  if (is_refusal(status, call.product)) return {};
  TRY_BLAS("cublasLtMatmulAlgoGetHeuristic", status);
  for (int i = 0; i < count; ++i) {
    if (found[i].state == CUBLAS_STATUS_SUCCESS) plan.algorithms.push_back(found[i].algo);
  }
  return {};
}

Result<std::optional<Plan>> CublasLt::make_plan(const Call& call, size_t workspace_bytes) {
  if (!is_allowed(call.product)) return std::optional<Plan>();
  Call least = call;
  least.operands.bias = least_aligned(call.operands.bias, call.product.alignments.bias);
  least.operands.aux = least_aligned(call.operands.aux, call.product.alignments.aux);
  TRY_ASSIGN(Plan plan, describe(least));
  TRY(find_algorithms(call, workspace_bytes, plan));
  if (!plan.algorithms.empty()) return std::optional<Plan>(std::move(plan));
  const Product& p = call.product;
  log_info("cuBLASLt has no algorithm for a matrix product", {{"rows", p.rows},
                                                              {"columns", p.columns},
                                                              {"depth", p.depth},
                                                              {"epilogue", name_of(p.epilogue)}});
  return std::optional<Plan>();
}

Status CublasLt::issue(const Issue& what, const cublasLtMatmulAlgo_t& algorithm) {
  const auto& [stream, plan, call, workspace] = what;
  TRY(set_operands(plan, call));
  const Operands& operands = call.operands;
  const float* beta = call.product.accumulate ? &kOne : &kZero;
  TRY_BLAS("cublasLtMatmul",
           library_.matmul(handle_, plan.desc.get(), &kOne, operands.a, plan.a.get(), operands.b,
                           plan.b.get(), beta, operands.d, plan.d.get(), operands.d, plan.d.get(),
                           &algorithm, workspace.data, workspace.bytes,
                           static_cast<cudaStream_t>(stream)));
  return {};
}

// Measures the algorithms in turn, in several rounds, so that other load on the device affects all
// of them, and keeps the minimum of each. Each measurement starts with an unmeasured call, which
// loads the kernel.
std::vector<double> CublasLt::measure(const Issue& what) {
  constexpr int kRounds = 3, kCalls = 3;
  std::vector<double> seconds(what.plan.algorithms.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < seconds.size(); ++i) {
      const auto once = [&] { return issue(what, what.plan.algorithms[i]); };
      if (!once().ok()) continue;
      const Result<double> all =
          settings_.stopwatch({DeviceType::kCuda, index_}, what.stream, [&]() -> Status {
            for (int call = 0; call < kCalls; ++call) TRY(once());
            return {};
          });
      if (all.ok()) seconds[i] = std::min(seconds[i], *all / kCalls);
    }
  }
  return seconds;
}

Result<std::vector<double>> CublasLt::measure_apart(const Issue& what) {
  constexpr size_t kAlignment = 256;
  const Product& p = what.call.product;
  const Device device{DeviceType::kCuda, index_};
  const size_t bytes = static_cast<size_t>(p.rows * p.columns) * dtype_bytes(p.result);
  const size_t aligned = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const bool writes_aux = has_aux(p.epilogue) && p.epilogue != Epilogue::kDGelu;
  TRY_ASSIGN(const Buffer outputs,
             Buffer::allocate(device, writes_aux ? 2 * aligned : aligned, "measuring products"));
  Call trial = what.call;
  trial.operands.d = outputs.data();
  if (writes_aux) trial.operands.aux = static_cast<char*>(outputs.data()) + aligned;
  std::vector<double> seconds = measure({what.stream, what.plan, trial, what.workspace});
  // Waits for the kernels before the outputs are freed.
  TRY(settings_.stopwatch(device, what.stream, [] { return Status(); }));
  return seconds;
}

Status CublasLt::choose_fastest(void* stream, const Call& call, const Workspace& workspace,
                                Plan& plan) {
  constexpr double kFaster = 0.98;
  if (plan.algorithms.size() == 1) return {};
  const Product& p = call.product;
  const Result<std::vector<double>> measured = measure_apart({stream, plan, call, workspace});
  if (!measured.ok()) {
    log_warning("cannot measure the algorithms of a matrix product",
                {{"why", measured.error().message}});
    return {};
  }
  const std::vector<double>& seconds = *measured;
  size_t best = 0;
  for (size_t i = 1; i < seconds.size(); ++i) {
    if (seconds[i] < seconds[best] * kFaster) best = i;
  }
  plan.algorithms = {plan.algorithms[best]};
  log_info("chose the algorithm of a matrix product",
           {{"rows", p.rows},
            {"columns", p.columns},
            {"depth", p.depth},
            {"epilogue", name_of(p.epilogue)},
            {"candidate", best},
            {"microseconds", seconds[best] * 1e6},
            {"microseconds_of_first", seconds.front() * 1e6}});
  return {};
}

Result<bool> CublasLt::multiply(void* stream, const Call& call, const Workspace& workspace) {
  TRY(library_.use_device(index_));
  const Key key{call.product, workspace.bytes};
  const std::lock_guard lock(mutex_);
  auto at = plans_.find(key);
  if (at == plans_.end()) {
    TRY_ASSIGN(std::optional<Plan> plan, make_plan(call, workspace.bytes));
    if (plan && settings_.choice == AlgorithmChoice::kMeasured) {
      TRY(choose_fastest(stream, call, workspace, *plan));
    }
    at = plans_.emplace(key, std::move(plan)).first;
  }
  if (!at->second) return false;
  TRY(issue({stream, *at->second, call, workspace}, at->second->algorithms.front()));
  return true;
}

namespace {

// Returns the device's context, created on first use.
Result<CublasLt*> context_of(int index) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<CublasLt>> contexts;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CublasLt>& context = contexts[index];
  if (context == nullptr) {
    TRY_ASSIGN(const CublasLtLibrary* library, load_cublaslt());
    TRY_ASSIGN(context, CublasLt::create(*library, index, {.choice = algorithm_choice()}));
  }
  return context.get();
}

}  // namespace

Status available() {
  TRY(load_cublaslt());
  return {};
}

Result<bool> multiply(Stream& stream, const Call& call, const Workspace& workspace) {
  TRY_ASSIGN(CublasLt* const context, context_of(stream.device().index));
  return context->multiply(stream.handle(), call, workspace);
}

}  // namespace lockstep::kernels::blas
