#pragma once

#include <cstddef>

namespace lockstep::emulated_cuda {

// Where a computation stands: its stack and the registers that a call keeps. Twins:
// context_x86_64.cc, and context_portable.cc (ucontext), which is some twenty times slower.
class Context {
 public:
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  // The first exchange() to it calls `entry` on that stack; entry never returns.
  void prepare(void* stack, size_t bytes, void (*entry)());
  // Keeps where the caller stands in `from` and goes on where `to` stands.
  static void exchange(Context& from, Context& to);

 private:
  void* state_ = nullptr;  // the stack's pointer, or a ucontext_t
};

}  // namespace lockstep::emulated_cuda
