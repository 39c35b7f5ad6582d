#include "tests/support/raw_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "common/base/check.h"

namespace lockstep::test {

RawConnection::RawConnection(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
}

RawConnection::~RawConnection() {
  close(fd_);
}

bool RawConnection::send(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t now = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now < 0) return false;
    sent += static_cast<size_t>(now);
  }
  return true;
}

bool RawConnection::read_some() {
  char chunk[16 * 1024];
  const ssize_t bytes = recv(fd_, chunk, sizeof(chunk), 0);
  if (bytes <= 0) return false;
  buffer_.append(chunk, static_cast<size_t>(bytes));
  return true;
}

bool RawConnection::read_until(const std::string& wanted) {
  size_t at;
  while ((at = buffer_.find(wanted)) == std::string::npos) {
    if (!read_some()) return false;
  }
  buffer_.erase(0, at + wanted.size());
  return true;
}

void RawConnection::end_writing() {
  shutdown(fd_, SHUT_WR);
}

HttpReply RawConnection::read_reply() {
  HttpReply reply;
  size_t end;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!read_some()) return {};
  }
  reply.head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  const size_t length_at = reply.head.find("Content-Length: ");
  const size_t length =
      length_at == std::string::npos ? 0 : std::strtoul(&reply.head[length_at + 16], nullptr, 10);
  while (buffer_.size() < length) {
    if (!read_some()) return {};
  }
  reply.body = buffer_.substr(0, length);
  buffer_.erase(0, length);
  reply.status = std::atoi(reply.head.c_str() + 9);
  return reply;
}

void RawConnection::wait_for_close() {
  while (read_some()) buffer_.clear();
}

std::string RawConnection::read_all() {
  while (read_some()) {
  }
  return std::move(buffer_);
}

HttpReply RawConnection::call(const HttpCall& call) {
  std::string request = call.method + " " + call.target + " HTTP/1.1\r\nHost: agent\r\n";
  if (!call.token.empty()) request += "Authorization: Bearer " + call.token + "\r\n";
  if (!call.body.empty() || call.method == "PUT") {
    request += "Content-Length: " + std::to_string(call.body.size()) + "\r\n";
  }
  send(request + "\r\n" + call.body);
  return read_reply();
}

HttpReply http_call(int port, const HttpCall& call) {
  return RawConnection(port).call(call);
}

}  // namespace lockstep::test
