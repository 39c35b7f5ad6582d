#include "tests/support/emulated_cuda/sanitizer_notes.h"

namespace lockstep::emulated_cuda {

void leaving_for(StackRange, void**) {}
StackRange entered(void*) {
  return {};
}
void abandoned(StackRange) {}
void forbid(const void*, size_t) {}
void allow(const void*, size_t) {}

}  // namespace lockstep::emulated_cuda
