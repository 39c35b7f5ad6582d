#pragma once

#include <compare>
#include <cstdint>

#include "kernels/device/dtype.h"
#include "kernels/ops/matmul.h"

namespace lockstep::kernels::blas {

// Applied to the sum before it is stored. `aux` has D's shape and dtype.
enum class Epilogue : uint8_t {
  kNone,
  kBias,         // + bias
  kGelu,         // gelu(sum)
  kGeluBias,     // gelu(sum + bias)
  kGeluAux,      // as the two above; also writes GELU's input to aux
  kGeluAuxBias,  //
  kDGelu,        // sum * gelu'(aux)
};

const char* name_of(Epilogue epilogue);
constexpr bool has_bias(Epilogue epilogue) {
  return epilogue == Epilogue::kBias || epilogue == Epilogue::kGeluBias ||
         epilogue == Epilogue::kGeluAuxBias;
}
constexpr bool has_gelu(Epilogue epilogue) {
  return epilogue != Epilogue::kNone && epilogue != Epilogue::kBias;
}
constexpr bool has_aux(Epilogue epilogue) {
  return epilogue == Epilogue::kGeluAux || epilogue == Epilogue::kGeluAuxBias ||
         epilogue == Epilogue::kDGelu;
}

// Alignment of addresses: 128 if it divides the address (and for null), else 16, else the largest
// power of two that divides it. There are no steps between 16 and 128, so that a product uses the
// same algorithm in all layers wherever their weights are: no kernel needs more than 16 bytes, and
// 128 is a cache line.
struct Alignments {
  uint16_t a = 128;
  uint16_t b = 128;
  uint16_t d = 128;
  uint16_t bias = 128;
  uint16_t aux = 128;

  auto operator<=>(const Alignments&) const = default;
};

// D[rows,columns] = epilogue(op(A) op(B)), or D += op(A) op(B), in column-major order as in BLAS.
// All matrices are dense (the leading dimension is the number of stored rows); the sum is fp32. A
// is stored [rows,depth], or [depth,rows] if transposed; B [depth,columns], or [columns,depth] if
// transposed. bias has D's rows and dtype. Contains everything the choice of an algorithm depends
// on: it is the cache key.
struct Product {
  DType factors = DType::kF32;  // of A and B
  DType result = DType::kF32;   // of D; kF32 if accumulate
  Epilogue epilogue = Epilogue::kNone;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  Alignments alignments;

  auto operator<=>(const Product&) const = default;
};

struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  void* aux = nullptr;  // read by kDGelu
};

struct Call {
  Product product;
  Operands operands;
};

// Return the products of an op's arguments. Our row-major tensors are transposed when read
// column-major. A bias of another dtype than y's must be converted before; x may have any
// alignment.
Call forward_call(const MatmulForward& args);   // y^T = W x^T
Call dx_call(const MatmulBackward& args);       // dx^T = W^T dy^T
Call dweight_call(const MatmulBackward& args);  // dW^T += x^T dy

// Returns the same product without GELU or its derivative, for libraries without that epilogue.
// GELU's input goes to aux if there is one, else to D; the gradient before the derivative goes to
// D.
Call without_gelu(const Call& call);
// The same, and without a bias.
Call without_epilogue(const Call& call);

// Returns false for products that cuBLASLt documents as unsupported: aux's leading dimension (D's
// rows) must be divisible by 8. Also requires aux to be aligned to 16 bytes. Source: cublasLt.h of
// CUDA 13.0, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD.
bool is_allowed(const Product& product);

}  // namespace lockstep::kernels::blas
