#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

#include "tests/support/emulated_cuda/stack_notes.h"

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
  ASAN_UNPOISON_MEMORY_REGION(stack.begin, stack.bytes);
}

}  // namespace lockstep::emulated_cuda
