#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/result.h"

namespace lockstep::comm {

// The memory of another process of this machine, or of this one, as far as the kernel lets this
// process read it. Uses process_vm_readv(2), which needs the same permission as ptrace(2); this
// class does nothing to widen that permission.
class PeerMemory {
 public:
  // A random number at an address of the process. Every read also reads the mark, so that a process
  // is not mistaken for another one with its number: a later one, one in another PID namespace, or
  // one that has since executed another program.
  struct Mark {
    uint64_t address = 0;
    uint64_t value = 0;
  };
  // `pid` as this process sees it. kUnavailable, with the reason, if the process cannot be read or
  // does not have the mark.
  static Result<PeerMemory> find(pid_t pid, Mark mark);

  // Reads from that address of the process; returns how many bytes could be read. Returns 0 if the
  // kernel refuses, if nothing is mapped there, or if the process has ended. kUnavailable: another
  // process is in its place.
  Result<size_t> read(uint64_t address, std::span<std::byte> into) const;

 private:
  PeerMemory(pid_t pid, Mark mark) : pid_(pid), mark_(mark) {}

  pid_t pid_;
  Mark mark_;
};

}  // namespace lockstep::comm
