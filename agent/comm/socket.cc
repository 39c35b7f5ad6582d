#include "agent/comm/socket.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "agent/comm/make_communicator.h"
#include "common/base/check.h"

namespace lockstep::comm {
namespace {

struct Resolved {
  sockaddr_storage address{};
  socklen_t bytes = 0;
};

using AddressOf = int (*)(int, sockaddr*, socklen_t*);
Resolved address_at(int fd, AddressOf address_of) {
  Resolved end;
  end.bytes = sizeof end.address;
  if (address_of(fd, reinterpret_cast<sockaddr*>(&end.address), &end.bytes) != 0) end.bytes = 0;
  return end;
}

// Returns the bytes of an IP address; empty for other families.
std::string_view host_bytes(const Resolved& end) {
  if (end.bytes == 0) return {};
  if (end.address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(end.address).sin_addr;
    return {reinterpret_cast<const char*>(&v4), sizeof v4};
  }
  if (end.address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(end.address).sin6_addr;
    return {reinterpret_cast<const char*>(&v6), sizeof v6};
  }
  return {};
}

bool stays_on_machine(int fd) {
  const Resolved here = address_at(fd, ::getsockname);
  const Resolved there = address_at(fd, ::getpeername);
  const std::string_view peer = host_bytes(there);
  constexpr char kLoopbackNet = 127;
  if (peer.empty()) return false;
  return peer == host_bytes(here) ||
         (there.address.ss_family == AF_INET && peer[0] == kLoopbackNet);
}

Result<Resolved> resolve(const SocketAddress& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (address.port < 0 || address.port > 65535 ||
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found) !=
          0) {
    return invalid("[comm] expected an IP address and a port from 0 to 65535, got " +
                   to_string(address));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  Resolved resolved;
  std::memcpy(&resolved.address, found->ai_addr, found->ai_addrlen);
  resolved.bytes = found->ai_addrlen;
  return resolved;
}

// Holds a burst of connections until they are accepted; the kernel may allow fewer.
constexpr int kBacklog = 1024;

bool is_out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE;
}

Error gone(int error) {
  if (error == 0) return unavailable("its connection closed");
  return unavailable(std::string("its connection failed: ") + std::strerror(error));
}

Error descriptor_error(const std::string& what, int error) {
  rlimit limit{};
  if (!is_out_of_descriptors(error) || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return errno_error(what, error);
  }
  return errno_error(what + " (the limit is " + std::to_string(limit.rlim_cur) + " descriptors)",
                     error);
}

Result<UniqueFd> stream_socket(const Resolved& resolved) {
  UniqueFd fd(::socket(resolved.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return descriptor_error("[comm] creating a socket", errno);
  return fd;
}

// Whether the other side has received everything, or is gone.
bool has_all(int fd) {
  std::array<char, 16 << 10> unread;
  // Only a few times: the peer may send forever.
  for (int times = 0; times < 64; ++times) {
    const ssize_t got = ::recv(fd, unread.data(), unread.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) return true;
  }
  int unacknowledged = 0;
  return ::ioctl(fd, SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void UniqueFd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string to_string(const SocketAddress& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

Result<UniqueFd> listen_socket(const SocketAddress& address) {
  const Result<Resolved> own = resolve(address);
  if (!own.ok()) return own.error().blaming(Blame::kConfig);
  const Resolved& resolved = *own;
  TRY_ASSIGN(UniqueFd fd, stream_socket(resolved));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto* name = reinterpret_cast<const sockaddr*>(&resolved.address);
  if (::bind(fd.get(), name, resolved.bytes) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) {
      return conflict(
          "[comm] port " + std::to_string(address.port) + " of " + address.host + " is taken",
          Blame::kPort);
    }
    return errno_error("[comm] listening on " + to_string(address), errno, Blame::kConfig);
  }
  return fd;
}

Status adopt_listener(int fd) {
  int listens = 0;
  socklen_t bytes = sizeof listens;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || listens == 0) {
    return invalid("[comm] descriptor " + std::to_string(fd) + " is not a listening socket");
  }
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  return {};
}

Result<UniqueFd> begin_connect(const SocketAddress& address) {
  const Result<Resolved> theirs = resolve(address);
  if (!theirs.ok()) return theirs.error().blaming(Blame::kPeer);
  const Resolved& resolved = *theirs;
  TRY_ASSIGN(UniqueFd fd, stream_socket(resolved));
  const auto* name = reinterpret_cast<const sockaddr*>(&resolved.address);
  if (::connect(fd.get(), name, resolved.bytes) != 0 && errno != EINPROGRESS) {
    return errno_error("connecting to " + to_string(address), errno);
  }
  return fd;
}

Status connect_outcome(int fd) {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error != 0) return unavailable(std::strerror(error));
  return {};
}

Result<Accepted> accept_one(int listener) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  auto* name = reinterpret_cast<sockaddr*>(&address);
  UniqueFd fd(::accept4(listener, name, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) {
    if (is_out_of_descriptors(errno))
      return descriptor_error("[comm] accepting a connection", errno);
    return Accepted();
  }
  char host[NI_MAXHOST] = "unknown";
  ::getnameinfo(name, bytes, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return Accepted{.fd = std::move(fd), .from = host};
}

Result<size_t> send_some(int fd, std::initializer_list<std::span<const std::byte>> parts) {
  std::array<iovec, 4> pieces{};
  CHECK(parts.size() <= pieces.size());
  size_t count = 0;
  for (const auto part : parts) {
    if (part.empty()) continue;
    pieces[count++] = {const_cast<std::byte*>(part.data()), part.size()};
  }
  if (count == 0) return size_t{0};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  for (;;) {
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno != EINTR) return gone(errno);
  }
}

Result<size_t> receive_some(int fd, std::span<std::byte> into) {
  for (;;) {
    const ssize_t got = ::recv(fd, into.data(), into.size(), MSG_DONTWAIT);
    if (got > 0) return static_cast<size_t>(got);
    if (got == 0) return gone(0);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno != EINTR) return gone(errno);
  }
}

void set_low_water(int fd, size_t bytes, int& current) {
  constexpr size_t kLowWaterMax = size_t{128} << 10;
  const int low_water = static_cast<int>(std::clamp<size_t>(bytes, 1, kLowWaterMax));
  if (low_water == current) return;
  ::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof low_water);
  current = low_water;
}

void finish_sending(std::vector<int> fds, Duration limit) {
  for (const int fd : fds) ::shutdown(fd, SHUT_WR);
  const SystemClock clock;
  const TimePoint until = clock.now() + limit;
  std::vector<pollfd> polled;
  for (;;) {
    std::erase_if(fds, has_all);
    if (fds.empty() || clock.now() >= until) return;
    polled.clear();
    for (const int fd : fds) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    ::poll(polled.data(), polled.size(), 1);
  }
}

void tune_stream(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void tune_local_stream(int fd) {
  if (!stays_on_machine(fd)) return;
  constexpr std::string_view kReno = "reno";
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
}

Result<UniqueFd> make_event_fd() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return errno_error("[comm] creating an event descriptor", errno);
  return fd;
}

void signal_event(int fd) {
  const uint64_t one = 1;
  // Fails only if the counter is full, and then the event is pending anyway.
  [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
}

void drain_event(int fd) {
  uint64_t count = 0;
  [[maybe_unused]] const auto taken = ::read(fd, &count, sizeof count);
}

Result<int> listen_on(const std::string& host, int port) {
  TRY_ASSIGN(UniqueFd fd, listen_socket({.host = host, .port = port}));
  return fd.release();
}

Result<int> port_of(int listen_fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (::getsockname(listen_fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return errno_error("[comm] reading a socket's port", errno);
  }
  // Both kinds of address have the port at the same offset.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace lockstep::comm
