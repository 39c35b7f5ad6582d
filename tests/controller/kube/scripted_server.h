#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::kube {

// An HTTP server on a free loopback port that replies byte for byte what a test wants. Passes each
// request and its socket to the handler, on one thread per connection.
class ScriptedServer {
 public:
  struct Request {
    std::string head;  // request line and header fields
    std::string body;
    bool contains(const std::string& text) const { return head.find(text) != std::string::npos; }
  };
  class Peer {
   public:
    explicit Peer(int fd) : fd_(fd) {}
    // Writes the bytes. Returns false once the client is gone.
    bool write(const std::string& bytes) const;
    // Writes a whole reply with a Content-Length.
    bool reply(int status, const std::string& body, const std::string& fields = "") const;
    bool begin_chunks() const;
    bool chunk(const std::string& bytes) const;
    bool end_chunks() const { return write("0\r\n\r\n"); }
    // Ends the connection.
    void close() const;
    // Blocks until the client has closed the connection.
    void wait_for_close() const;
    // Returns whether the socket becomes writable within the time.
    bool is_writable(int timeout_ms) const;

   private:
    int fd_;
  };
  using Handler = std::function<void(const Request&, const Peer&)>;

  explicit ScriptedServer(Handler handler);
  ~ScriptedServer();

  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int requests() const { return requests_; }
  // Returns the number of connections that have ended.
  int ended() const { return ended_; }

 private:
  void accept_all();
  void serve(int fd);

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> requests_{0}, ended_{0};
  std::mutex mutex_;
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace lockstep::kube
