#pragma once

#include <string>

namespace lockstep::test {

// Debian's PyTorch (python3-torch) needs Debian's Python, whichever is first in PATH.
inline constexpr char kPython[] = "/usr/bin/python3";
// Returns whether that Python has PyTorch with gloo.
bool has_torch();

// Returns a port on which nothing listens on this machine. Enough ports above it are free for the
// rounds of a small command.
int free_port();

}  // namespace lockstep::test
