#include "common/base/run_main.h"

#include <cstdio>
#include <exception>

namespace lockstep {

// Prints without allocating: the exception may be std::bad_alloc.
int run_main(const char* program, int (*body)(int, char**), int argc, char** argv) noexcept {
  try {
    return body(argc, argv);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "%s: ended by an exception: %s\n", program, exception.what());
  } catch (...) {
    std::fprintf(stderr, "%s: ended by an exception of unknown type\n", program);
  }
  return kExitUncaught;
}

}  // namespace lockstep
