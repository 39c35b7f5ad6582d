#pragma once

#include <cstddef>

// What the address sanitizer has to know of stacks that are exchanged, and of memory that others
// gave. Twins: sanitizer_notes_asan.cc, and sanitizer_notes_none.cc for builds without it.
namespace lockstep::emulated_cuda {

struct StackRange {
  const void* begin = nullptr;
  size_t bytes = 0;
};

// Before another stack is entered. `kept` belongs to the one that is left.
void leaving_for(StackRange next, void** kept);
// On the stack that was entered, with what it kept when it was left (null the first time). The
// range of the stack that was left.
StackRange entered(void* kept);
// What was on this stack is gone without having returned.
void abandoned(StackRange stack);

// Nobody may touch these bytes, up to the byte, and then everybody again.
void forbid(const void* data, size_t bytes);
void allow(const void* data, size_t bytes);

}  // namespace lockstep::emulated_cuda
