#include <cstdint>

#include "tests/support/emulated_cuda/context.h"

// void lockstep_exchange_stacks(void** kept, void* next): pushes the callee-saved registers (System
// V ABI, x86-64, section 3.2.1), then switches stacks.
asm(R"(
.text
.globl lockstep_exchange_stacks
.type lockstep_exchange_stacks, @function
lockstep_exchange_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size lockstep_exchange_stacks, .-lockstep_exchange_stacks
)");
extern "C" void lockstep_exchange_stacks(void** kept, void* next);

namespace lockstep::emulated_cuda {

Context::~Context() = default;

// Pushes six registers and the address for `ret`. A null return address above them aligns the stack
// as after a call.
void Context::prepare(void* stack, size_t bytes, void (*entry)()) {
  constexpr int kRegisters = 6;
  auto* top = reinterpret_cast<uintptr_t*>(static_cast<char*>(stack) + bytes);
  top[-1] = 0;
  top[-2] = reinterpret_cast<uintptr_t>(entry);
  for (int i = 0; i < kRegisters; ++i) top[-3 - i] = 0;
  state_ = top - 2 - kRegisters;
}

void Context::exchange(Context& from, Context& to) {
  lockstep_exchange_stacks(&from.state_, to.state_);
}

}  // namespace lockstep::emulated_cuda
