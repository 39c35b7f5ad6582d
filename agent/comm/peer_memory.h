#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/result.h"

namespace lockstep {

// The memory of another process of this machine, or of this one, as far as the kernel lets this
// process read it: process_vm_readv(2), which asks for what ptrace(2) does. Nothing is done to be
// let further.
class PeerMemory {
 public:
  // What no other process has at that address: a number, by chance. It is read with whatever else
  // is, so that a process is not taken for another one that has its number: later, or in another
  // PID namespace, or since it executed another program.
  struct Mark {
    uint64_t address = 0;
    uint64_t value = 0;
  };
  // `pid` as this process sees it. kUnavailable, in words, where it can't be read or has not got
  // the mark.
  static Result<PeerMemory> find(pid_t pid, Mark mark);

  // Reads from that address of the process; says how many bytes could be read, 0 where the kernel
  // does not let this process, there is nothing to be read, or the process has ended. kUnavailable:
  // another process is in its place.
  Result<size_t> read(uint64_t address, std::span<std::byte> into) const;

 private:
  PeerMemory(pid_t pid, Mark mark) : pid_(pid), mark_(mark) {}

  pid_t pid_;
  Mark mark_;
};

}  // namespace lockstep
