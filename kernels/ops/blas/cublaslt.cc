#include "kernels/ops/blas/cublaslt.h"

#include "kernels/device/device_words.h"

// TRY_BLAS(call): returns the error of a call of the library from the enclosing member function.
#define TRY_BLAS(name, expression)                                                     \
  do {                                                                                 \
    if (const cublasStatus_t status_ = (expression); status_ != CUBLAS_STATUS_SUCCESS) \
      return call_error({name, __FILE__, __LINE__, {DeviceType::kCuda, index_}},       \
                        library_.status_string(status_));                              \
  } while (false)

namespace lockstep::blas {

namespace {

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

// A matrix as it is stored.
struct Stored {
  uint64_t rows = 0;
  uint64_t columns = 0;
};

Stored stored(int64_t rows, int64_t columns, bool transposed) {
  const auto r = static_cast<uint64_t>(rows), c = static_cast<uint64_t>(columns);
  return transposed ? Stored{c, r} : Stored{r, c};
}

}  // namespace

Result<std::unique_ptr<CublasLt>> CublasLt::create(const CublasLtLibrary& library, int index) {
  std::unique_ptr<CublasLt> context(new CublasLt(library, index));
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

// Scale and sum in fp32, factors as they are stored (fp32 is not cut down to TF32). Types of bias
// and aux are D's, the library's default.
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

Result<std::optional<Plan>> CublasLt::make_plan(const Call& call, size_t workspace_bytes) {
  if (!is_allowed(call.product)) return std::optional<Plan>();
  TRY_ASSIGN(Plan plan, describe(call));
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

  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status =
      library_.heuristic(handle_, plan.desc.get(), plan.a.get(), plan.b.get(), plan.d.get(),
                         plan.d.get(), preference.get(), 1, &found, &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::optional<Plan>();
  TRY_BLAS("cublasLtMatmulAlgoGetHeuristic", status);
  if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS) return std::optional<Plan>();
  plan.algorithm = found.algo;
  return std::optional<Plan>(std::move(plan));
}

Status CublasLt::issue(void* stream, const Plan& plan, const Call& call,
                       const Workspace& workspace) {
  TRY(set_operands(plan, call));
  const Operands& operands = call.operands;
  const float* beta = call.product.accumulate ? &kOne : &kZero;
  TRY_BLAS("cublasLtMatmul",
           library_.matmul(handle_, plan.desc.get(), &kOne, operands.a, plan.a.get(), operands.b,
                           plan.b.get(), beta, operands.d, plan.d.get(), operands.d, plan.d.get(),
                           &plan.algorithm, workspace.data, workspace.bytes,
                           static_cast<cudaStream_t>(stream)));
  return {};
}

Result<bool> CublasLt::multiply(void* stream, const Call& call, const Workspace& workspace) {
  TRY(library_.use_device(index_));
  const Key key{call.product, workspace.bytes};
  const std::lock_guard lock(mutex_);
  auto at = plans_.find(key);
  if (at == plans_.end()) {
    TRY_ASSIGN(std::optional<Plan> plan, make_plan(call, workspace.bytes));
    at = plans_.emplace(key, std::move(plan)).first;
  }
  if (!at->second) return false;
  TRY(issue(stream, *at->second, call, workspace));
  return true;
}

namespace {

// Each device's context, made when it is first used.
Result<CublasLt*> context_of(int index) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<CublasLt>> contexts;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CublasLt>& context = contexts[index];
  if (context == nullptr) {
    TRY_ASSIGN(const CublasLtLibrary* library, load_cublaslt());
    TRY_ASSIGN(context, CublasLt::create(*library, index));
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

}  // namespace lockstep::blas
