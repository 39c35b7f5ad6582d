#pragma once

#include "common/base/result.h"
#include "tests/kernels/op_cases.h"

// Checks that run for each op case on a device. Errors are kInternal and name the element and
// tensor.
namespace lockstep::kernels::op_cases {

// Runs forward, and backward if the case has one, on fresh memory, and copies all tensors back to
// the host. Returns the stream's error if an operation failed.
Result<Tensors> run_case(const OpCase& op_case, const OpTable& ops, RunOn on = {});

// Compares a run's outputs with the double-precision reference.
Status check_forward(const OpCase& op_case, const Tensors& tensors);

// Compares a run's gradients with finite differences of the reference, for some elements of each
// tensor. No gradient may be NaN or infinite.
Status check_gradients(const OpCase& op_case, const Tensors& tensors);

// Checks that two runs gave the same bits.
Status check_same_bits(const OpCase& op_case, const Tensors& a, const Tensors& b);

// Checks that two runs agree within the gradients' tolerance.
Status check_close(const OpCase& op_case, const Tensors& a, const Tensors& b);

}  // namespace lockstep::kernels::op_cases
