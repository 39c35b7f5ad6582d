#pragma once

namespace lockstep {

// Prints `CHECK failed: EXPR at FILE:LINE` and aborts. Use only through CHECK.
[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace lockstep

// Always enabled. Use it only for bugs in our own code. Input from outside the process (a file, a
// message, a user's YAML) must never trip it: return a Result instead.
#define CHECK(expression)                                        \
  do {                                                           \
    if (!(expression)) [[unlikely]]                              \
      ::lockstep::check_failed(#expression, __FILE__, __LINE__); \
  } while (false)
