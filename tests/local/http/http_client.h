#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace lockstep::test {

// A raw socket to a server on this machine. It adds no HTTP, so that tests can send anything.
class HttpClient {
 public:
  explicit HttpClient(uint16_t port, int receive_buffer = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0)
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  }
  ~HttpClient() { close(fd_); }

  bool send(const std::string& text) {
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // Reads until the text has arrived. Returns false if the connection ends first.
  bool read_until(const std::string& wanted) {
    while (received.find(wanted) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }
  // Reads until the server closes.
  std::string read_all() {
    while (read_some()) {
    }
    return received;
  }

  std::string received;

 private:
  bool read_some() {
    pollfd wait{fd_, POLLIN, 0};
    if (poll(&wait, 1, 20'000) <= 0) {
      ADD_FAILURE() << "nothing came; so far: " << received;
      return false;
    }
    char block[65536];
    ssize_t bytes = recv(fd_, block, sizeof block, 0);
    if (bytes <= 0) return false;
    received.append(block, static_cast<size_t>(bytes));
    return true;
  }

  int fd_;
};

// Returns the body of a complete chunked response.
inline std::string dechunked(const std::string& answer) {
  size_t at = answer.find("\r\n\r\n");
  if (at == std::string::npos) return "no body: " + answer;
  at += 4;
  std::string body;
  while (true) {
    const size_t end = answer.find("\r\n", at);
    if (end == std::string::npos) return body + " (cut off)";
    const size_t bytes = std::stoul(answer.substr(at, end - at), nullptr, 16);
    if (bytes == 0) return body;
    body += answer.substr(end + 2, bytes);
    at = end + 2 + bytes + 2;
  }
}

}  // namespace lockstep::test
