#pragma once

#include <cstddef>

#include "tests/support/emulated_cuda/context.h"
#include "tests/support/emulated_cuda/sanitizer_notes.h"

namespace lockstep::emulated_cuda {

// A stack with a function that can be suspended in mid-call and resumed. A fiber must stay on one
// host thread. Restarting or destroying a fiber drops its stack without running destructors.
class Fiber {
 public:
  static constexpr size_t kStackBytes = size_t{1} << 17;

  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Makes the next enter() call body(argument).
  void start(void (*body)(void*), void* argument);
  // Runs the body until it leaves or returns.
  void enter();
  // Returns to the caller of enter(); call it from within the body.
  void leave();

 private:
  static void entry();

  void* mapping_ = nullptr;  // a guard page, then the stack
  StackRange stack_;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  Context here_;
  Context outside_;
  StackRange outside_stack_;
  void* kept_ = nullptr;
};

}  // namespace lockstep::emulated_cuda
