#pragma once

#include <cstddef>

#include "tests/support/emulated_cuda/context.h"
#include "tests/support/emulated_cuda/sanitizer_notes.h"

namespace lockstep::emulated_cuda {

// A stack on which a function runs, and which it can leave in mid-call and be entered again. All of
// a fiber happens on one host thread. What is on the stack when a fiber is started anew, or goes,
// is dropped: nothing is destroyed.
class Fiber {
 public:
  static constexpr size_t kStackBytes = size_t{1} << 17;

  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // The next enter() calls body(argument).
  void start(void (*body)(void*), void* argument);
  // Runs until the body leaves or returns.
  void enter();
  // From within: back to who entered.
  void leave();

 private:
  static void entry();

  void* mapping_ = nullptr;  // a page that traps, then the stack
  StackRange stack_;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  Context here_;
  Context outside_;
  StackRange outside_stack_;
  void* kept_ = nullptr;
};

}  // namespace lockstep::emulated_cuda
