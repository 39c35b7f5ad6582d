#include "kernels/ops/blas/product.h"

#include <atomic>
#include <bit>

#include "kernels/ops/blas/blas.h"

namespace lockstep::kernels::blas {

namespace {

constexpr uintptr_t kAlignmentMax = 128;
constexpr uintptr_t kPack = 16;
constexpr int64_t kAuxRows = 8;
constexpr uint16_t kAuxAlignment = 16;

uint16_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (address % kAlignmentMax == 0) return kAlignmentMax;
  return static_cast<uint16_t>(uintptr_t{1} << std::countr_zero(address | kPack));
}

std::atomic<AlgorithmChoice> choice_of_process = AlgorithmChoice::kFirst;

Call with_alignments(const Product& product, const Operands& operands) {
  Call call{product, operands};
  call.product.alignments = {.a = alignment_of(operands.a),
                             .b = alignment_of(operands.b),
                             .d = alignment_of(operands.d),
                             .bias = alignment_of(operands.bias),
                             .aux = alignment_of(operands.aux)};
  return call;
}

Epilogue forward_epilogue(const MatmulForward& args) {
  const bool bias = static_cast<bool>(args.bias);
  if (args.activation == Activation::kNone) return bias ? Epilogue::kBias : Epilogue::kNone;
  if (args.pre_activation) return bias ? Epilogue::kGeluAuxBias : Epilogue::kGeluAux;
  return bias ? Epilogue::kGeluBias : Epilogue::kGelu;
}

Epilogue epilogue_without_gelu(Epilogue epilogue) {
  return has_bias(epilogue) ? Epilogue::kBias : Epilogue::kNone;
}

}  // namespace

void set_algorithm_choice(AlgorithmChoice choice) {
  choice_of_process = choice;
}

AlgorithmChoice algorithm_choice() {
  return choice_of_process;
}

const char* name_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return "none";
    case Epilogue::kBias:
      return "bias";
    case Epilogue::kGelu:
      return "gelu";
    case Epilogue::kGeluBias:
      return "bias, gelu";
    case Epilogue::kGeluAux:
      return "gelu, kept";
    case Epilogue::kGeluAuxBias:
      return "bias, gelu, kept";
    case Epilogue::kDGelu:
      return "gelu's derivative";
  }
  return "";
}

Call forward_call(const MatmulForward& args) {
  CHECK(args.x.dtype == args.weight.dtype && args.x.dtype == args.y.dtype);
  CHECK(!args.bias || args.bias.dtype == args.y.dtype);
  CHECK(!args.pre_activation || args.pre_activation.dtype == args.y.dtype);
  return with_alignments({.factors = args.x.dtype,
                          .result = args.y.dtype,
                          .epilogue = forward_epilogue(args),
                          .transpose_a = true,
                          .rows = args.n,
                          .columns = args.m,
                          .depth = args.k},
                         {.a = args.weight.data,
                          .b = args.x.data,
                          .d = args.y.data,
                          .bias = args.bias.data,
                          .aux = args.pre_activation.data});
}

Call dx_call(const MatmulBackward& args) {
  CHECK(args.dy.dtype == args.weight.dtype && args.dy.dtype == args.dx.dtype);
  CHECK(!args.x_pre_activation || args.x_pre_activation.dtype == args.dx.dtype);
  return with_alignments({.factors = args.dy.dtype,
                          .result = args.dx.dtype,
                          .epilogue = args.x_pre_activation ? Epilogue::kDGelu : Epilogue::kNone,
                          .rows = args.k,
                          .columns = args.m,
                          .depth = args.n},
                         {.a = args.weight.data,
                          .b = args.dy.data,
                          .d = args.dx.data,
                          .aux = const_cast<void*>(args.x_pre_activation.data)});
}

Call dweight_call(const MatmulBackward& args) {
  CHECK(args.dy.dtype == args.x.dtype);
  return with_alignments({.factors = args.dy.dtype,
                          .result = DType::kF32,
                          .transpose_b = true,
                          .accumulate = true,
                          .rows = args.k,
                          .columns = args.n,
                          .depth = args.m},
                         {.a = args.x.data, .b = args.dy.data, .d = args.dweight.f32()});
}

Call without_gelu(const Call& call) {
  Product product = call.product;
  Operands operands = call.operands;
  const bool forward = product.epilogue != Epilogue::kDGelu;
  product.epilogue = epilogue_without_gelu(product.epilogue);
  if (forward && operands.aux != nullptr) operands.d = operands.aux;
  operands.aux = nullptr;
  return with_alignments(product, operands);
}

Call without_epilogue(const Call& call) {
  Call linear = without_gelu(call);
  linear.product.epilogue = Epilogue::kNone;
  linear.operands.bias = nullptr;
  return with_alignments(linear.product, linear.operands);
}

bool is_allowed(const Product& product) {
  if (!has_aux(product.epilogue)) return true;
  return product.rows % kAuxRows == 0 && product.alignments.aux >= kAuxAlignment;
}

}  // namespace lockstep::kernels::blas
