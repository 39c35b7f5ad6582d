#pragma once

#include "common/api/step_number_table.h"

namespace lockstep {

// Returns a step of which every number is known: 1001, 1002 and so on, in the order of the table.
inline StepNumbers every_number() {
  StepNumbers numbers;
  int next = 1001;
  for (const StepNumber& number : step_number_table()) {
    std::visit([&](auto member) { numbers.*member = next++; }, number.member);
  }
  return numbers;
}

}  // namespace lockstep
