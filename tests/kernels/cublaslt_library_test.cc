// Checks the attributes we set on cuBLASLt's descriptors, which are host objects: the installed
// library accepts every attribute and returns it, without a GPU. Calls that need a GPU are faked.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <tuple>

#include "kernels/device/shared_library.h"
#include "kernels/ops/blas/cublaslt.h"

namespace lockstep::kernels::blas {

namespace {

// The attributes that the library returns for the descriptors passed to the heuristic.
struct Asked {
  int32_t transpose_a = -1, transpose_b = -1;
  uint32_t epilogue = 0;
  int64_t aux_ld = -1;
  const void* bias = nullptr;
  const void* aux = nullptr;
  struct Matrix {
    uint32_t type = 0;
    uint64_t rows = 0, columns = 0;
    int64_t ld = 0;
  } a, b, d;
  uint64_t workspace_bytes = 0;
  uint32_t reduction_schemes = 0, alignment_a = 0;
  int failures = 0;
};
Asked asked;

struct Getters {
  decltype(&cublasLtMatmulDescGetAttribute) desc = nullptr;
  decltype(&cublasLtMatrixLayoutGetAttribute) layout = nullptr;
  decltype(&cublasLtMatmulPreferenceGetAttribute) preference = nullptr;
};
Getters getters;

template <class Get, class Descriptor, class Attribute, class T>
void read(Get get, Descriptor descriptor, Attribute attribute, T& value) {
  size_t written = 0;
  if (get(descriptor, attribute, &value, sizeof value, &written) != CUBLAS_STATUS_SUCCESS ||
      written != sizeof value) {
    ++asked.failures;
  }
}

void read(cublasLtMatrixLayout_t layout, Asked::Matrix& matrix) {
  read(getters.layout, layout, CUBLASLT_MATRIX_LAYOUT_TYPE, matrix.type);
  read(getters.layout, layout, CUBLASLT_MATRIX_LAYOUT_ROWS, matrix.rows);
  read(getters.layout, layout, CUBLASLT_MATRIX_LAYOUT_COLS, matrix.columns);
  read(getters.layout, layout, CUBLASLT_MATRIX_LAYOUT_LD, matrix.ld);
}

cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                         cublasLtMatmulPreference_t preference, int,
                         cublasLtMatmulHeuristicResult_t results[], int* count) {
  asked = {};
  read(getters.desc, desc, CUBLASLT_MATMUL_DESC_TRANSA, asked.transpose_a);
  read(getters.desc, desc, CUBLASLT_MATMUL_DESC_TRANSB, asked.transpose_b);
  read(getters.desc, desc, CUBLASLT_MATMUL_DESC_EPILOGUE, asked.epilogue);
  read(getters.desc, desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, asked.bias);
  read(getters.desc, desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, asked.aux);
  read(getters.desc, desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, asked.aux_ld);
  read(a, asked.a);
  read(b, asked.b);
  read(d, asked.d);
  read(getters.preference, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
       asked.workspace_bytes);
  read(getters.preference, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
       asked.reduction_schemes);
  read(getters.preference, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
       asked.alignment_a);
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t create(cublasLtHandle_t*) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t matmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                      cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t, const void*,
                      const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                      const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
  return CUBLAS_STATUS_SUCCESS;
}

Status find_getters(const CublasLtLibrary& library) {
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<void*>(library.desc_set), &info) == 0) return not_found("no file");
  const SharedLibrary shared{.handle = ::dlopen(info.dli_fname, RTLD_NOW | RTLD_LOCAL),
                             .name = "cublaslt"};
  TRY(find_function(shared, "cublasLtMatmulDescGetAttribute", getters.desc));
  TRY(find_function(shared, "cublasLtMatrixLayoutGetAttribute", getters.layout));
  return find_function(shared, "cublasLtMatmulPreferenceGetAttribute", getters.preference);
}

TEST(InstalledCublasLt, TakesAllThatIsSetOnDescriptorsLayoutsAndPreferences) {
  const Result<const CublasLtLibrary*> installed = load_cublaslt();
  if (!installed.ok()) GTEST_SKIP() << installed.error().message;
  const Status found = find_getters(**installed);
  ASSERT_TRUE(found.ok()) << found.error().message;
  CublasLtLibrary library = **installed;
  library.use_device = [](int) { return Status(); };
  library.create = create;
  library.heuristic = heuristic;
  library.matmul = matmul;
  auto made = CublasLt::create(library, 0);
  ASSERT_TRUE(made.ok());

  alignas(256) static Bf16 x[1], weight[1], bias[128], y[1], pre[128];
  const MatmulForward args{.x = x,
                           .weight = weight,
                           .bias = bias,
                           .y = y,
                           .pre_activation = pre,
                           .m = 24,
                           .n = 16,
                           .k = 40,
                           .activation = Activation::kGelu};
  const Result<bool> done = (*made)->multiply(nullptr, forward_call(args), {nullptr, 4096});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_TRUE(*done);
  EXPECT_EQ(asked.failures, 0);
  EXPECT_EQ(asked.transpose_a, int32_t{CUBLAS_OP_T});
  EXPECT_EQ(asked.transpose_b, int32_t{CUBLAS_OP_N});
  EXPECT_EQ(asked.epilogue, uint32_t{CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
  // The addresses have the minimum alignment for which the algorithm is chosen, not that of the
  // real ones.
  EXPECT_EQ(asked.bias, reinterpret_cast<const std::byte*>(bias) + 128);
  EXPECT_EQ(asked.aux, reinterpret_cast<const std::byte*>(pre) + 128);
  EXPECT_EQ(asked.aux_ld, 16);
  for (const auto& [matrix, rows, columns] :
       {std::tuple{asked.a, 40, 16}, {asked.b, 40, 24}, {asked.d, 16, 24}}) {
    EXPECT_EQ(matrix.type, uint32_t{CUDA_R_16BF});
    EXPECT_EQ(matrix.rows, static_cast<uint64_t>(rows));
    EXPECT_EQ(matrix.columns, static_cast<uint64_t>(columns));
    EXPECT_EQ(matrix.ld, rows);
  }
  EXPECT_EQ(asked.workspace_bytes, 4096u);
  EXPECT_EQ(asked.reduction_schemes, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  EXPECT_EQ(asked.alignment_a, 128u);
}

}  // namespace

}  // namespace lockstep::kernels::blas
