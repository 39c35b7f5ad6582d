#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "common/http/request_reader.h"
#include "common/http/server.h"
#include "common/http/transport.h"

namespace lockstep::http {

// Passes calls from any thread to the server's thread. After close() they are dropped.
class CallQueue {
 public:
  explicit CallQueue(boost::asio::io_context* io) : io_(io) {}
  void post(std::function<void()> call);
  void close();

 private:
  std::mutex mutex_;
  boost::asio::io_context* io_;
};

// One connection. Reads a request's head, asks the handler, reads the body, waits for the response,
// writes it, and starts over. A streamed response is the connection's last. Runs on the server's
// thread only. The server owns it until on_closed, pending operations until they complete.
//
// One operation is pending at a time, and each names the step that follows it:
//
//   handshake -> wait_for_request -> read_head -> [continue] -> read_body -> handler -> answer
//                     ^                                                                   |
//                     +-------------------------------------------------------------------+
//   answer -> next_chunk -> write -> next_chunk ... -> finish -> linger -> close
class Session : public std::enable_shared_from_this<Session> {
 public:
  struct Shared {  // what a session needs from the server
    Handler& handler;
    ServerOptions options;
    std::shared_ptr<CallQueue> calls;
    std::function<void(const std::shared_ptr<Session>&)> on_closed;
  };

  Session(const boost::asio::any_io_executor& executor, std::unique_ptr<Transport> transport,
          const Shared& server);

  void start();
  // Ends the connection immediately.
  void close();
  // Closes after the pending response, or immediately if there is none or if it is a stream.
  void close_when_idle();
  // Asks a stream that waits for its next chunk, soon.
  void wake();

  bool authenticated() const { return authenticated_; }
  bool busy() const { return busy_; }
  // When an unauthenticated connection was accepted, or when an authenticated one sent its last
  // request.
  TimePoint since() const { return since_; }

 private:
  using Error = Transport::Error;
  using Step = void (Session::*)(Error, size_t);
  using Progress = RequestReader::Progress;

  Transport::Done then(Step step);
  void read(Step step);
  void write(std::string bytes, Step step);
  void set_alarm(TimePoint at);
  void set_limit(Duration limit);
  void on_alarm();
  template <class Call>
  bool survives(const Call& call);
  void release_output();

  void on_handshake(Error error, size_t bytes);
  void wait_for_request();
  void on_first_bytes(Error error, size_t bytes);
  void read_head();
  void on_head_bytes(Error error, size_t bytes);
  void on_head();
  Admission admit();
  void on_continue_written(Error error, size_t bytes);
  void read_body();
  void on_body_bytes(Error error, size_t bytes);
  void on_request();
  void refuse();
  void answer(Response response);
  void on_answer_written(Error error, size_t bytes);

  void begin_stream(const Response& response);
  void on_stream_input(Error error, size_t bytes);
  void on_chunk_written(Error error, size_t bytes);
  void next_chunk();

  void finish();
  void on_goodbye(Error error, size_t bytes);
  void linger();
  void on_lingered(Error error, size_t bytes);

  const Shared& server_;
  std::unique_ptr<Transport> transport_;
  RequestReader reader_;
  const std::unique_ptr<Guard> guard_;  // null: none
  boost::asio::steady_timer alarm_;
  TimePoint request_end_;  // when the request must be complete
  Head head_;
  std::string output_;              // what is being written
  std::shared_ptr<Stream> stream_;  // the body, while it is streamed
  bool stream_has_ended_ = false;   // its last chunk is being written
  bool stream_is_waiting_ = false;  // it had no chunk
  std::string discarded_;
  size_t discarded_bytes_ = 0;
  TimePoint since_;
  bool authenticated_ = false;
  bool busy_ = false;      // a request has begun and has not been answered yet
  bool draining_ = false;  // everything was written, and the client may still read it
  bool last_ = false;      // close after this response
  bool closed_ = false;
};

}  // namespace lockstep::http
