#include "agent/comm/peer_memory.h"

#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <string>

namespace lockstep::comm {

Result<PeerMemory> PeerMemory::find(pid_t pid, Mark mark) {
  const PeerMemory memory(pid, mark);
  uint64_t found = 0;
  errno = 0;
  TRY_ASSIGN(const size_t got,
             memory.read(mark.address, std::as_writable_bytes(std::span(&found, 1))));
  if (got < sizeof found) return errno_error("reading process " + std::to_string(pid), errno);
  return memory;
}

Result<size_t> PeerMemory::read(uint64_t address, std::span<std::byte> into) const {
  uint64_t mark = 0;
  const auto at = [](uint64_t place) { return reinterpret_cast<void*>(place); };
  const std::array<iovec, 2> here{{{.iov_base = &mark, .iov_len = sizeof mark},
                                   {.iov_base = into.data(), .iov_len = into.size()}}};
  const std::array<iovec, 2> there{{{.iov_base = at(mark_.address), .iov_len = sizeof mark},
                                    {.iov_base = at(address), .iov_len = into.size()}}};
  ssize_t got = -1;
  do {
    got = ::process_vm_readv(pid_, here.data(), here.size(), there.data(), there.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got < static_cast<ssize_t>(sizeof mark)) return size_t{0};
  if (mark != mark_.value) return unavailable("its process id now belongs to another process");
  return static_cast<size_t>(got) - sizeof mark;
}

}  // namespace lockstep::comm
