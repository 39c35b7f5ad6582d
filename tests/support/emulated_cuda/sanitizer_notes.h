#pragma once

#include <cstddef>

// Tells the address sanitizer about stack switches and about memory it does not know. Two
// implementations: sanitizer_notes_asan.cc, and sanitizer_notes_none.cc for builds without it.
namespace lockstep::emulated_cuda {

struct StackRange {
  const void* begin = nullptr;
  size_t bytes = 0;
};

// Call before switching to another stack. `kept` belongs to the stack that is left.
void leaving_for(StackRange next, void** kept);
// Call on the stack that was entered, with the `kept` from when it was left (null the first time).
// Returns the range of the stack that was left.
StackRange entered(void* kept);
// Tells that the frames on this stack are gone without having returned.
void abandoned(StackRange stack);

// Makes exactly these bytes inaccessible, and accessible again.
void forbid(const void* data, size_t bytes);
void allow(const void* data, size_t bytes);

}  // namespace lockstep::emulated_cuda
