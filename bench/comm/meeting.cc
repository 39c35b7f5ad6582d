#include "bench/comm/meeting.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/check.h"

namespace lockstep::bench {

std::vector<comm::CommOptions> meet(Backend backend, int ranks) {
  std::vector<comm::CommOptions> all(static_cast<size_t>(ranks));
  std::vector<comm::PeerAddress> peers;
  const bool is_tcp = backend == Backend::kTcp || backend == Backend::kEncryptedTcp;
  const int hosts = is_tcp ? ranks : backend == Backend::kMixed ? std::min(2, ranks) : 1;
  const int per_host = (ranks + hosts - 1) / hosts;
  std::vector<int> memory;
  for (int host = 0; host < hosts; ++host) memory.push_back(::memfd_create("bench", MFD_CLOEXEC));
  for (comm::CommOptions& options : all) {
    const auto fd = comm::listen_on("127.0.0.1", 0);
    CHECK(fd.ok());
    const auto port = comm::port_of(*fd);
    CHECK(port.ok());
    options.rank = static_cast<int>(peers.size());
    const int host = options.rank / per_host;
    options.listen_fd = *fd;
    options.shm_fd = is_tcp ? -1 : memory[static_cast<size_t>(host)];
    options.key = "bench";
    options.encrypt = backend == Backend::kEncryptedTcp;
    peers.push_back({.host = "127.0.0.1", .port = *port, .node = host});
  }
  for (comm::CommOptions& options : all) options.peers = peers;
  return all;
}

void pin_to_core(int rank) {
  cpu_set_t usable;
  CHECK(::sched_getaffinity(0, sizeof usable, &usable) == 0);
  int left = rank % CPU_COUNT(&usable);
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &usable) || left-- > 0) continue;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(core, &own);
    CHECK(::sched_setaffinity(0, sizeof own, &own) == 0);
    return;
  }
}

}  // namespace lockstep::bench
