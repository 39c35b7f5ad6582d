#include "tests/support/emulated_cuda/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include "common/base/check.h"

namespace lockstep::emulated_cuda {

namespace {

thread_local Fiber* entering = nullptr;

size_t guard_bytes() {
  return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

Fiber::Fiber() {
  mapping_ = mmap(nullptr, guard_bytes() + kStackBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(mapping_ != MAP_FAILED);
  CHECK(mprotect(mapping_, guard_bytes(), PROT_NONE) == 0);
  stack_ = {static_cast<char*>(mapping_) + guard_bytes(), kStackBytes};
}

Fiber::~Fiber() {
  abandoned(stack_);
  munmap(mapping_, guard_bytes() + kStackBytes);
}

void Fiber::start(void (*body)(void*), void* argument) {
  abandoned(stack_);
  body_ = body;
  argument_ = argument;
  kept_ = nullptr;
  here_.prepare(const_cast<void*>(stack_.begin), stack_.bytes, entry);
}

void Fiber::enter() {
  entering = this;
  void* kept = nullptr;
  leaving_for(stack_, &kept);
  Context::exchange(outside_, here_);
  entered(kept);
}

void Fiber::leave() {
  leaving_for(outside_stack_, &kept_);
  Context::exchange(here_, outside_);
  outside_stack_ = entered(kept_);
}

void Fiber::entry() {
  Fiber* self = entering;
  self->outside_stack_ = entered(nullptr);
  self->body_(self->argument_);
  self->leave();
}

}  // namespace lockstep::emulated_cuda
