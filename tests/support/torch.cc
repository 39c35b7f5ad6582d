#include "tests/support/torch.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "common/base/check.h"

namespace lockstep::test {
namespace {

constexpr int kPortsAbove = 64;

// Returns a socket bound to the port on all addresses, or -1; port 0 picks any free one.
int bind_port(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(fd >= 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(port));
  name.sin_addr.s_addr = htonl(INADDR_ANY);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0) return fd;
  ::close(fd);
  return -1;
}

int port_of(int fd) {
  sockaddr_in name{};
  socklen_t size = sizeof name;
  CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0);
  return ntohs(name.sin_port);
}

}  // namespace

bool has_torch() {
  const std::string test =
      std::string(kPython) +
      " -c 'import torch.distributed as d; assert d.is_gloo_available()' >/dev/null 2>&1";
  return std::system(test.c_str()) == 0;
}

int free_port() {
  while (true) {
    const int first = bind_port(0);
    CHECK(first >= 0);
    const int port = port_of(first);
    std::vector<int> sockets = {first};
    while (port + kPortsAbove < 65536 && sockets.back() >= 0 &&
           sockets.size() <= static_cast<size_t>(kPortsAbove)) {
      sockets.push_back(bind_port(port + static_cast<int>(sockets.size())));
    }
    const bool all_free = sockets.size() > static_cast<size_t>(kPortsAbove) && sockets.back() >= 0;
    for (const int fd : sockets) {
      if (fd >= 0) ::close(fd);
    }
    if (all_free) return port;
  }
}

}  // namespace lockstep::test
