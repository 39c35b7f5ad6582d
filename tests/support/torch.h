#pragma once

#include <string>

namespace lockstep::test {

// Debian's PyTorch (python3-torch) is for Debian's Python, whatever is first on the PATH.
inline constexpr char kPython[] = "/usr/bin/python3";
// Whether that has it, with gloo.
bool has_torch();

// A port that no process of this machine listens on, with as many above it as the rounds of a small
// command take.
int free_port();

}  // namespace lockstep::test
