#include "tests/support/emulated_cuda/sanitizer_notes.h"

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

namespace lockstep::emulated_cuda {

void leaving_for(StackRange next, void** kept) {
  __sanitizer_start_switch_fiber(kept, next.begin, next.bytes);
}

StackRange entered(void* kept) {
  StackRange left;
  __sanitizer_finish_switch_fiber(kept, &left.begin, &left.bytes);
  return left;
}

void abandoned(StackRange stack) {
  allow(stack.begin, stack.bytes);
}

void forbid(const void* data, size_t bytes) {
  ASAN_POISON_MEMORY_REGION(data, bytes);
}

void allow(const void* data, size_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(data, bytes);
}

}  // namespace lockstep::emulated_cuda
