#pragma once

#include <cstddef>

namespace lockstep::emulated_cuda {

// A suspended execution: its stack and the callee-saved registers. Two implementations:
// context_x86_64.cc, and context_portable.cc (ucontext), which is about twenty times slower.
class Context {
 public:
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  // Makes the first exchange() to this context call `entry` on that stack; entry must not return.
  void prepare(void* stack, size_t bytes, void (*entry)());
  // Saves the caller's state in `from` and resumes `to`.
  static void exchange(Context& from, Context& to);

 private:
  void* state_ = nullptr;  // the stack pointer, or a ucontext_t
};

}  // namespace lockstep::emulated_cuda
