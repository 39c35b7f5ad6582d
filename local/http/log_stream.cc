#include "local/http/log_stream.h"

#include <utility>

namespace lockstep::local {
namespace {

constexpr size_t kLogChunkBytes = 64u << 10;
constexpr std::chrono::milliseconds kLogPoll(100);

}  // namespace

LogStream::LogStream(Api& api, LogRequest log, LogFile file, std::shared_ptr<void> open)
    : api_(api), log_(std::move(log)), file_(std::move(file)), open_(std::move(open)) {}

http::Stream::Chunk LogStream::next() {
  // Check before reading the file: once the container has stopped, nothing more is appended.
  const bool more = log_.follow && api_.is_running(log_);
  Chunk chunk{.bytes = file_.read(kLogChunkBytes)};
  chunk.is_last = file_.is_over() || (chunk.bytes.empty() && !more);
  chunk.again = std::chrono::steady_clock::now() + kLogPoll;
  return chunk;
}

}  // namespace lockstep::local
