#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/layout/parameters.h"

namespace lockstep::train {

// The optimizer's states by their names. State n is kind n + 1 of a model's state; kind 0 is the
// parameters.
using StateNames = std::vector<std::string>;

// The tensors of a model's state: its whole table, and the optimizer's states.
struct StateTable {
  std::vector<Parameter> parameters;
  StateNames states;
};

// The name of a tensor in a checkpoint: the parameter's own, or `<name>.exp_avg` for AdamW's first
// state, as PyTorch names it.
inline std::string state_tensor_name(const Parameter& parameter, const StateNames& states,
                                     size_t kind) {
  return kind == 0 ? parameter.name : parameter.name + "." + states[kind - 1];
}

}  // namespace lockstep::train
