#include "tests/integration/relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"

namespace lockstep::integration {
namespace {

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

int new_socket() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(fd >= 0);
  return fd;
}

void carry(int from, int to) {
  char bytes[64 << 10];
  while (true) {
    const ssize_t got = ::recv(from, bytes, sizeof bytes, 0);
    if (got <= 0) break;
    ssize_t sent = 0;
    while (sent < got) {
      const ssize_t n = ::send(to, bytes + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += n;
    }
    if (sent < got) break;
  }
  ::shutdown(to, SHUT_RDWR);
  ::shutdown(from, SHUT_RDWR);
}

}  // namespace

struct Relay::Pair {
  Pair(int client_fd, int server_fd) : client(client_fd), server(server_fd) {
    up = std::thread([this] { carry(client, server); });
    down = std::thread([this] { carry(server, client); });
  }
  ~Pair() {
    ::shutdown(client, SHUT_RDWR);
    ::shutdown(server, SHUT_RDWR);
    up.join();
    down.join();
    ::close(client);
    ::close(server);
  }
  const int client;
  const int server;
  std::thread up;
  std::thread down;
};

Relay::Relay(int port) : target_port_(port) {
  listen();
}

Relay::~Relay() {
  cut();
}

void Relay::listen() {
  listener_ = new_socket();
  const int yes = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address = loopback(port_);
  socklen_t size = sizeof address;
  CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
  CHECK(::listen(listener_, 64) == 0);
  CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this, listener = listener_] {
    while (true) {
      const int client = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) return;
      const int server = new_socket();
      const sockaddr_in target = loopback(target_port_);
      if (::connect(server, reinterpret_cast<const sockaddr*>(&target), sizeof target) != 0) {
        ::close(client);
        ::close(server);
        continue;
      }
      const std::lock_guard lock(mutex_);
      pairs_.push_back(std::make_unique<Pair>(client, server));
    }
  });
}

void Relay::cut() {
  if (listener_ < 0) return;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(listener_);
  listener_ = -1;
  const std::lock_guard lock(mutex_);
  pairs_.clear();
}

void Relay::mend() {
  if (listener_ < 0) listen();
}

}  // namespace lockstep::integration
