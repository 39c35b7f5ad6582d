#pragma once

#include "common/base/result.h"
#include "tests/kernels/op_cases.h"

// What is asked of the operations of a device, case by case. Errors are kInternal and say which
// element of which tensor was what.
namespace lockstep::op_cases {

// Forward, and backward where there is one, on fresh memory; what is there afterwards is on the
// host too. The error of the stream, if something failed on it.
Result<Tensors> run_case(const OpCase& op_case, const OpTable& ops, RunOn on = {});

// The outputs of a run against the reference in double precision.
Status check_forward(const OpCase& op_case, const Tensors& tensors);

// The gradients of a run against finite differences of the reference, some of each tensor; none is
// NaN or infinite.
Status check_gradients(const OpCase& op_case, const Tensors& tensors);

// Whether two runs left the same bits.
Status check_same_bits(const OpCase& op_case, const Tensors& a, const Tensors& b);

// Whether they left the same within the gradients' tolerance.
Status check_close(const OpCase& op_case, const Tensors& a, const Tensors& b);

}  // namespace lockstep::op_cases
