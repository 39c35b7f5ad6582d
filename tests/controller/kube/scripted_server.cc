#include "tests/controller/kube/scripted_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/check.h"

namespace lockstep::kube {
namespace {

// Returns the number after `Content-Length:`, 0 if there is none.
size_t content_length(const std::string& head) {
  const size_t at = head.find("Content-Length:");
  return at == std::string::npos ? 0 : std::stoul(head.substr(at + 15));
}

bool read_request(int fd, std::string& buffer, ScriptedServer::Request& request) {
  char bytes[65536];
  while (true) {
    const size_t end = buffer.find("\r\n\r\n");
    if (end != std::string::npos) {
      request.head = buffer.substr(0, end + 2);
      const size_t size = content_length(request.head);
      if (buffer.size() >= end + 4 + size) {
        request.body = buffer.substr(end + 4, size);
        buffer.erase(0, end + 4 + size);
        return true;
      }
    }
    const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    buffer.append(bytes, static_cast<size_t>(got));
  }
}

}  // namespace

bool ScriptedServer::Peer::write(const std::string& bytes) const {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

bool ScriptedServer::Peer::reply(int status, const std::string& body,
                                 const std::string& fields) const {
  return write("HTTP/1.1 " + std::to_string(status) +
               " Said\r\nContent-Type: application/json\r\n" + fields +
               "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
}

bool ScriptedServer::Peer::begin_chunks() const {
  return write(
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
}

bool ScriptedServer::Peer::chunk(const std::string& bytes) const {
  char size[32];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return write(size + bytes + "\r\n");
}

void ScriptedServer::Peer::close() const {
  ::shutdown(fd_, SHUT_RDWR);
}

void ScriptedServer::Peer::wait_for_close() const {
  char bytes[1024];
  while (::recv(fd_, bytes, sizeof bytes, 0) > 0) {
  }
}

bool ScriptedServer::Peer::is_writable(int timeout_ms) const {
  pollfd poll_fd{.fd = fd_, .events = POLLOUT, .revents = 0};
  return ::poll(&poll_fd, 1, timeout_ms) == 1;
}

ScriptedServer::ScriptedServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
  CHECK(::listen(listener_, 64) == 0);
  CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

ScriptedServer::~ScriptedServer() {
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
  ::close(listener_);
}

void ScriptedServer::accept_all() {
  while (true) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const std::lock_guard lock(mutex_);
    open_.push_back(fd);
    threads_.emplace_back([this, fd] { serve(fd); });
  }
}

void ScriptedServer::serve(int fd) {
  std::string buffer;
  Request request;
  while (read_request(fd, buffer, request)) {
    ++requests_;
    handler_(request, Peer(fd));
  }
  ++ended_;
  const std::lock_guard lock(mutex_);
  open_.erase(std::find(open_.begin(), open_.end(), fd));
  ::close(fd);
}

}  // namespace lockstep::kube
