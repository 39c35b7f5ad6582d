#pragma once

#include <compare>
#include <cstdint>

#include "kernels/device/dtype.h"
#include "kernels/ops/matmul.h"

namespace lockstep::blas {

// What is done with the sum before it is stored, in this order. `aux` is of D's shape and dtype.
enum class Epilogue : uint8_t {
  kNone,
  kBias,         // + bias
  kGelu,         // gelu(sum)
  kGeluBias,     // gelu(sum + bias)
  kGeluAux,      // the same two, and aux becomes what GELU was applied to
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

// Of addresses: 128 where that divides them (and for null), else 16, else the largest power of two
// that does. Not finer, so that a product has one algorithm for all layers, wherever their weights
// lie: no kernel asks for more than 16 bytes at a time, and 128 are a line of the cache.
struct Alignments {
  uint16_t a = 128;
  uint16_t b = 128;
  uint16_t d = 128;
  uint16_t bias = 128;
  uint16_t aux = 128;

  auto operator<=>(const Alignments&) const = default;
};

// D[rows,columns] = epilogue(op(A) op(B)), or D += op(A) op(B), counted as BLAS does: by columns,
// all matrices dense (the leading dimension is the number of rows as stored), the sum in fp32. A is
// stored [rows,depth], or [depth,rows] transposed; B [depth,columns], or [columns,depth]
// transposed. bias has D's rows and its dtype. All that the choice of an algorithm depends on: the
// key of its cache.
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

// The products of an op's arguments: our tensors are stored by rows, which is the transpose by
// columns. A bias of another dtype than y's must have been converted; x may be of any address.
Call forward_call(const MatmulForward& args);   // y^T = W x^T
Call dx_call(const MatmulBackward& args);       // dx^T = W^T dy^T
Call dweight_call(const MatmulBackward& args);  // dW^T += x^T dy

// The same without GELU or its derivative, for where a library has no such epilogue: what GELU is
// to be applied to, in aux if there is one, else in D; the gradient before the derivative in D.
Call without_gelu(const Call& call);
// The same without a bias too.
Call without_epilogue(const Call& call);

// What cuBLASLt documents that it refuses, so that it need not be asked: aux's leading dimension
// (D's rows) must be divisible by 8. Aux is also taken at multiples of 16 bytes alone. Source:
// cublasLt.h of CUDA 13.0, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD.
bool is_allowed(const Product& product);

}  // namespace lockstep::blas
