#include <ucontext.h>

#include "common/base/check.h"
#include "tests/support/emulated_cuda/context.h"

namespace lockstep::emulated_cuda {

namespace {

ucontext_t* place(void*& state) {
  if (state == nullptr) state = new ucontext_t;
  return static_cast<ucontext_t*>(state);
}

}  // namespace

Context::~Context() {
  delete static_cast<ucontext_t*>(state_);
}

void Context::prepare(void* stack, size_t bytes, void (*entry)()) {
  ucontext_t* context = place(state_);
  CHECK(getcontext(context) == 0);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = bytes;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
}

void Context::exchange(Context& from, Context& to) {
  CHECK(swapcontext(place(from.state_), place(to.state_)) == 0);
}

}  // namespace lockstep::emulated_cuda
