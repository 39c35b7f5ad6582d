#pragma once

#include <string>

namespace lockstep::test {

struct HttpReply {
  int status = 0;  // 0: no reply
  std::string head;
  std::string body;
};

struct HttpCall {
  std::string method = "GET";
  std::string target = "/";
  std::string token;  // empty: not sent
  std::string body;
};

// A connection that sends exactly the test's bytes.
class RawConnection {
 public:
  explicit RawConnection(int port);
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;
  ~RawConnection();

  // Returns false once the server has closed the connection.
  bool send(const std::string& bytes);
  // Reads one complete response; status 0 if the server closes the connection first.
  HttpReply read_reply();
  // Discards data up to and including `wanted`. Returns false if the server closes first.
  bool read_until(const std::string& wanted);
  // Returns everything until the server closes the connection.
  std::string read_all();
  // Sends the end of the TCP stream, but goes on reading.
  void end_writing();
  // Waits until the server closes the connection; discards data before that.
  void wait_for_close();
  HttpReply call(const HttpCall& call);

 private:
  bool read_some();

  int fd_ = -1;
  std::string buffer_;
};

// Makes one call on a new connection to 127.0.0.1.
HttpReply http_call(int port, const HttpCall& call);

}  // namespace lockstep::test
