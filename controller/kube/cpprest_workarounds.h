#pragma once

#include <cpprest/astreambuf.h>
#include <cpprest/http_client.h>
#include <pplx/pplxtasks.h>

#include <boost/asio/ip/tcp.hpp>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "controller/kube/http.h"

// Everything that Lockstep does only because cpprestsdk, which is no longer maintained, behaves in
// a way that its users would not expect. http.cc is written as if it did not. Seen with
// version 2.10.18.
//
// | cpprestsdk                                        | here                                  |
// |---------------------------------------------------|---------------------------------------|
// | has no back-pressure but a stream buffer's task   | BodyBuffer                            |
// | requires 20 virtual functions of a stream buffer, |                                       |
// | of which a write-only one uses two                | BodyBuffer                            |
// | ends the process if a stream buffer throws        | BodyBuffer turns it into a failed task|
// | passes a chunk size of "-2" on as 2^64 - 2        | BodyBuffer limits the size            |
// | keeps one value for each name of a header         | add_fields()                          |
// | opens a socket only after its options were asked  | open_and_tune()                       |
// | has a timeout for idleness alone; 0 expires       | kNoIdleTimeout; Exchange has deadlines|
// | immediately                                       |                                       |
// | calls back at any later time, from threads that   | Exchange outlives what it refers to;  |
// | end with the process                              | exit_with_http_threads() (http.h)     |
// | starts 40 threads                                 | start_http_threads() (http.h)         |
// | reads the system's certificates again for every   | SSL_CTX_set_default_verify_paths()    |
// | connection                                        | replaces OpenSSL's                    |
namespace lockstep::kube {

inline constexpr std::chrono::hours kNoIdleTimeout{1};

// Adds the fields to a request's headers. A field that occurs again is written into the value of
// the first one, after a line break, since cpprestsdk keeps one value per name.
void add_fields(web::http::http_headers& headers, const std::vector<HttpField>& fields);

// Called before each request with the socket of its connection. cpprestsdk opens the socket of a
// new connection only later. If the address is known, as in a pod, opens it here; else the options
// are set from the second request on.
void open_and_tune(boost::asio::ip::tcp::socket& socket,
                   const std::optional<boost::asio::ip::address>& address);

// A write-only cpprestsdk stream buffer that hands each piece to a function. cpprestsdk reads on
// from the network once the task that the function returned is done; there is no other
// back-pressure. An exception in that task ends the transfer. An exception that escaped _putn()
// would end the process, so the function's exceptions become the task's. So does a size that no
// network can have delivered: cpprestsdk passes a chunk size of "-2" on as 2^64 - 2.
class BodyBuffer final : public Concurrency::streams::details::streambuf_state_manager<uint8_t> {
 public:
  using Consume = std::function<pplx::task<void>(std::string_view piece)>;

  // `on_too_large` is called for a piece that is larger than any reply may be, which ends the
  // transfer.
  BodyBuffer(Consume consume, std::function<void()> on_too_large)
      : streambuf_state_manager(std::ios_base::out),
        consume_(std::move(consume)),
        on_too_large_(std::move(on_too_large)) {}

  bool can_seek() const override { return false; }
  bool has_size() const override { return false; }
  size_t buffer_size(std::ios_base::openmode) const override { return 0; }
  void set_buffer_size(size_t, std::ios_base::openmode) override {}
  size_t in_avail() const override { return 0; }
  pos_type getpos(std::ios_base::openmode) const override { return traits::eof(); }
  pos_type seekpos(pos_type, std::ios_base::openmode) override { return traits::eof(); }
  pos_type seekoff(off_type, std::ios_base::seekdir, std::ios_base::openmode) override {
    return traits::eof();
  }
  bool acquire(uint8_t*& pointer, size_t& count) override {
    pointer = nullptr;
    count = 0;
    return false;
  }
  void release(uint8_t*, size_t) override {}

 protected:
  pplx::task<int_type> _putc(uint8_t byte) override {
    const char text = static_cast<char>(byte);
    return pass(&text, 1).then([byte] { return static_cast<int_type>(byte); });
  }
  pplx::task<size_t> _putn(const uint8_t* data, size_t count) override {
    return pass(reinterpret_cast<const char*>(data), count).then([count] { return count; });
  }
  pplx::task<int_type> _bumpc() override { return nothing(); }
  int_type _sbumpc() override { return traits::eof(); }
  pplx::task<int_type> _getc() override { return nothing(); }
  int_type _sgetc() override { return traits::eof(); }
  pplx::task<int_type> _nextc() override { return nothing(); }
  pplx::task<int_type> _ungetc() override { return nothing(); }
  pplx::task<size_t> _getn(uint8_t*, size_t) override { return pplx::task_from_result<size_t>(0); }
  size_t _scopy(uint8_t*, size_t) override { return 0; }
  pplx::task<bool> _sync() override { return pplx::task_from_result(true); }
  uint8_t* _alloc(size_t) override { return nullptr; }
  void _commit(size_t) override {}

 private:
  static constexpr size_t kPieceBytesMax = 64u << 20;

  pplx::task<void> pass(const char* data, size_t count) {
    try {
      if (count > kPieceBytesMax) {
        on_too_large_();
        throw std::runtime_error("invalid chunk size");
      }
      return consume_({data, count});
    } catch (...) {
      return pplx::task_from_exception<void>(std::current_exception());
    }
  }

  static pplx::task<int_type> nothing() { return pplx::task_from_result<int_type>(traits::eof()); }

  Consume consume_;
  std::function<void()> on_too_large_;
};

}  // namespace lockstep::kube
