#pragma once

namespace lockstep {

// Prints `CHECK failed: EXPR at FILE:LINE` and aborts. Used through CHECK alone.
[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace lockstep

// Always on. For our own bugs only: nothing that comes from outside the process (a file, a
// message, a user's YAML) may trip it; that is what Result is for.
#define CHECK(expression)                                        \
  do {                                                           \
    if (!(expression)) [[unlikely]]                              \
      ::lockstep::check_failed(#expression, __FILE__, __LINE__); \
  } while (false)
