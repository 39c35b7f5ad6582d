#include "bench/rpc/bounds.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "agent/comm/make_communicator.h"
#include "common/base/check.h"

namespace lockstep::bench {
namespace {

// Bytes per system call, as large as our frames.
constexpr size_t kPiece = size_t{1} << 20;

// A request to the other process: bytes to read (positive) or to write (negative).
using Wanted = int64_t;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), std::min(bytes.size(), kPiece), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

bool read_all(int fd, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t n = ::recv(fd, into.data(), std::min(into.size(), kPiece), 0);
    if (n <= 0) return false;
    into = into.subspan(static_cast<size_t>(n));
  }
  return true;
}

template <class T>
std::span<std::byte> writable(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

[[noreturn]] void run_other_side(int fd, size_t bytes_max) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<std::byte> memory(bytes_max, std::byte{1});
  Wanted wanted = 0;
  while (read_all(fd, writable(wanted))) {
    const std::span<std::byte> part =
        std::span(memory).first(static_cast<size_t>(wanted < 0 ? -wanted : wanted));
    if (wanted < 0) {
      if (!write_all(fd, part)) break;
      continue;
    }
    if (!read_all(fd, part) || !write_all(fd, part.first(1))) break;
  }
  ::_exit(0);
}

void make_blocking(int fd) {
  comm::tune_stream(fd);
  comm::tune_local_stream(fd);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

}  // namespace

PlainSocket::PlainSocket(size_t bytes_max) {
  const auto listener = comm::listen_on("127.0.0.1", 0);
  CHECK(listener.ok());
  const comm::UniqueFd listens(*listener);
  const auto port = comm::port_of(*listener);
  CHECK(port.ok());
  auto connected = comm::begin_connect({.host = "127.0.0.1", .port = *port});
  CHECK(connected.ok());
  fd_ = *std::move(connected);
  make_blocking(fd_.get());
  make_blocking(*listener);
  auto accepted = comm::accept_one(*listener);
  CHECK(accepted.ok() && accepted->fd);
  make_blocking(accepted->fd.get());
  pid_ = ::fork();
  CHECK(pid_ >= 0);
  if (pid_ > 0) return;
  fd_.reset();
  run_other_side(accepted->fd.get(), bytes_max);
}

PlainSocket::~PlainSocket() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

double PlainSocket::push(std::span<const std::byte> bytes) {
  const auto begin = std::chrono::steady_clock::now();
  Wanted wanted = static_cast<Wanted>(bytes.size());
  std::byte done{};
  CHECK(write_all(fd_.get(), writable(wanted)) && write_all(fd_.get(), bytes) &&
        read_all(fd_.get(), writable(done)));
  return seconds_since(begin);
}

double PlainSocket::pull(std::span<std::byte> into) {
  const auto begin = std::chrono::steady_clock::now();
  Wanted wanted = -static_cast<Wanted>(into.size());
  CHECK(write_all(fd_.get(), writable(wanted)) && read_all(fd_.get(), into));
  return seconds_since(begin);
}

double copy_once(std::span<std::byte> into, std::span<const std::byte> from) {
  const auto begin = std::chrono::steady_clock::now();
  std::memcpy(into.data(), from.data(), from.size());
  asm volatile("" : : "r"(into.data()) : "memory");
  return seconds_since(begin);
}

}  // namespace lockstep::bench
