#pragma once

#include <cpprest/astreambuf.h>
#include <pplx/pplxtasks.h>

#include <exception>
#include <functional>
#include <stdexcept>
#include <string_view>

namespace lockstep {

// A write-only cpprestsdk stream buffer that hands each piece to a function. cpprestsdk reads on
// from the network once the task that the function returned is done; there is no other
// back-pressure. An exception in that task ends the transfer. An exception that escaped _putn()
// would end the process, so the function's exceptions become the task's. So does a size that no
// network can have delivered: cpprestsdk passes a chunk size of "-2" on as 2^64 - 2.
class BodyBuffer final : public Concurrency::streams::details::streambuf_state_manager<uint8_t> {
 public:
  using Consume = std::function<pplx::task<void>(std::string_view piece)>;

  explicit BodyBuffer(Consume consume)
      : streambuf_state_manager(std::ios_base::out), consume_(std::move(consume)) {}

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
      if (count > kPieceBytesMax) throw std::runtime_error("invalid chunk size");
      return consume_({data, count});
    } catch (...) {
      return pplx::task_from_exception<void>(std::current_exception());
    }
  }

  static pplx::task<int_type> nothing() { return pplx::task_from_result<int_type>(traits::eof()); }

  Consume consume_;
};

}  // namespace lockstep
