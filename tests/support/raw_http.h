#pragma once

#include <string>

namespace lockstep::test {

struct HttpReply {
  int status = 0;  // 0: no answer
  std::string head;
  std::string body;
};

struct HttpCall {
  std::string method = "GET";
  std::string target = "/";
  std::string token;  // empty: none is sent
  std::string body;
};

// A connection of a test, byte by byte: what it sends is the test's business.
class RawConnection {
 public:
  explicit RawConnection(int port);
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;
  ~RawConnection();

  // False once the server has closed.
  bool send(const std::string& bytes);
  // One whole response, or status 0 if the server closes before.
  HttpReply read_reply();
  // Waits until the server closes; what came before it is thrown away.
  void wait_for_close();
  HttpReply call(const HttpCall& call);

 private:
  bool read_some();

  int fd_ = -1;
  std::string buffer_;
};

// One call on a connection of its own, to 127.0.0.1.
HttpReply http_call(int port, const HttpCall& call);

}  // namespace lockstep::test
