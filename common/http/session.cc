#include "common/http/session.h"

#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

#include "common/base/log.h"

namespace lockstep::http {
namespace {

constexpr size_t kLingerBytesMax = 256 * 1024;
constexpr std::chrono::seconds kLingerLimit(2);

TimePoint steady_now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

void CallQueue::post(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  if (io_ != nullptr) boost::asio::post(*io_, std::move(call));
}

void CallQueue::close() {
  const std::lock_guard lock(mutex_);
  io_ = nullptr;
}

Session::Session(const boost::asio::any_io_executor& executor, std::unique_ptr<Transport> transport,
                 const Shared& server)
    : server_(server),
      transport_(std::move(transport)),
      reader_({.header_bytes_max = server.options.header_bytes_max,
               .body_bytes_max = server.options.body_bytes_max}),
      guard_(server.options.guard ? server.options.guard() : nullptr),
      alarm_(executor),
      since_(steady_now()) {}

void Session::start() {
  set_limit(server_.options.header_limit);
  transport_->handshake(then(&Session::on_handshake));
}

void Session::close() {
  if (closed_) return;
  closed_ = true;
  alarm_.cancel();
  stream_.reset();
  transport_->close();
  server_.on_closed(shared_from_this());
}

void Session::close_when_idle() {
  last_ = true;
  if (draining_) return;  // it closes soon
  if (!busy_ || stream_ != nullptr) close();
}

void Session::wake() {
  if (stream_is_waiting_) set_alarm(steady_now());
}

// Returns a callback that continues with this step unless the session was closed meanwhile.
Transport::Done Session::then(Step step) {
  return [self = shared_from_this(), step](Error error, size_t bytes) {
    if (!self->closed_) self->survives([&] { (*self.*step)(error, bytes); });
  };
}

void Session::read(Step step) {
  transport_->read_some(reader_.prepare(), then(step));
}

void Session::write(std::string bytes, Step step) {
  output_ = std::move(bytes);
  set_limit(server_.options.write_limit);
  transport_->write(output_, then(step));
}

// The session has one alarm: the limit of what is pending, or the time to ask a stream again.
void Session::set_alarm(TimePoint at) {
  alarm_.expires_at(at);
  if (at == TimePoint::max()) return;
  alarm_.async_wait([weak = weak_from_this()](Error error) {
    const auto self = weak.lock();
    if (error || self == nullptr || self->closed_) return;
    // It may have been set again after it expired and before this ran.
    if (self->alarm_.expiry() <= steady_now()) self->on_alarm();
  });
}

void Session::set_limit(Duration limit) {
  set_alarm(steady_now() + limit);
}

void Session::on_alarm() {
  if (!stream_is_waiting_) return close();
  survives([&] { next_chunk(); });
}

// Runs a call of the handler, or a step. An exception, such as bad_alloc, ends this session alone.
template <class Call>
bool Session::survives(const Call& call) {
  try {
    call();
    return true;
  } catch (const std::exception& error) {
    log_error("a request failed", {{"error", error.what()}, {"target", head_.target}});
    close();
    return false;
  }
}

// A connection that waits keeps no copy of what it has sent.
void Session::release_output() {
  std::string().swap(output_);
}

void Session::on_handshake(Error error, size_t) {
  if (error) return close();
  wait_for_request();
}

// An authenticated connection may stay idle between requests. The head has its own, shorter limit.
void Session::wait_for_request() {
  busy_ = false;
  head_ = {};
  reader_.begin();
  if (reader_.has_bytes()) return on_first_bytes({}, 0);  // pipelined
  set_limit(authenticated_ ? server_.options.idle_limit : server_.options.stranger_idle_limit);
  read(&Session::on_first_bytes);
}

void Session::on_first_bytes(Error error, size_t bytes) {
  if (error == boost::asio::error::eof) return finish();
  if (error) return close();
  reader_.commit(bytes);
  busy_ = true;
  request_end_ = steady_now() + server_.options.request_limit;
  set_limit(server_.options.header_limit);
  read_head();
}

void Session::read_head() {
  const Progress progress = reader_.read_head();
  if (progress == Progress::kNeedsMore) return read(&Session::on_head_bytes);
  if (progress == Progress::kFailed) return refuse();
  on_head();
}

void Session::on_head_bytes(Error error, size_t bytes) {
  if (error) return close();
  reader_.commit(bytes);
  read_head();
}

Admission Session::admit() {
  if (guard_ != nullptr) {
    if (std::optional<Response> response = guard_->check(head_)) return {.refusal = *response};
  }
  return server_.handler.authorize(head_);
}

void Session::on_head() {
  head_ = reader_.head();
  Admission admission;
  if (!survives([&] { admission = admit(); })) return;
  if (admission.authenticated) {
    authenticated_ = true;
    since_ = steady_now();
  }
  if (admission.refusal) {
    // The rest of the request is not read.
    last_ = last_ || !reader_.is_complete() || !reader_.keeps_open();
    return answer(*std::move(admission.refusal));
  }
  const size_t overhead = guard_ != nullptr && head_.is_authentic ? guard_->body_overhead() : 0;
  reader_.limit_body(admission.body_bytes_max + overhead);
  set_alarm(request_end_);
  const bool waits = reader_.expects_continue() && !reader_.is_complete();
  if (!waits || reader_.body_is_too_large()) return read_body();
  output_ = kContinue;
  transport_->write(output_, then(&Session::on_continue_written));
}

void Session::on_continue_written(Error error, size_t) {
  if (error) return close();
  read_body();
}

void Session::read_body() {
  const Progress progress = reader_.read_body();
  if (progress == Progress::kNeedsMore) return read(&Session::on_body_bytes);
  if (progress == Progress::kFailed) return refuse();
  on_request();
}

void Session::on_body_bytes(Error error, size_t bytes) {
  if (error) return close();
  reader_.commit(bytes);
  read_body();
}

void Session::on_request() {
  last_ = last_ || !reader_.keeps_open();
  set_alarm(TimePoint::max());  // no limit while the handler works; it limits its own time
  Request request = {head_, reader_.take_body()};
  if (guard_ != nullptr) {
    if (std::optional<Response> refusal = guard_->check_body(request.body)) return answer(*refusal);
  }
  auto respond = [weak = weak_from_this(), calls = server_.calls](Response response) {
    calls->post([weak, response = std::move(response)]() mutable {
      const auto self = weak.lock();
      if (self == nullptr || self->closed_) return;
      self->survives([&] { self->answer(std::move(response)); });
    });
  };
  survives([&] { server_.handler.handle(std::move(request), std::move(respond)); });
}

// Answers what can't be read as a request. Nothing more can be read from the connection.
void Session::refuse() {
  last_ = true;
  const RequestReader::Failure& failure = reader_.failure();
  Response response;
  if (survives([&] { response = server_.handler.error(failure.status, failure.message); }))
    answer(std::move(response));
}

void Session::answer(Response response) {
  last_ = last_ || !response.keeps_open || response.stream != nullptr;
  if (response.stream != nullptr) return begin_stream(response);
  if (guard_ != nullptr) guard_->sign(response);
  std::string text = format_head(response, {.closes = last_});
  if (head_.method != "HEAD") text = std::move(response.body.insert(0, text));
  write(std::move(text), &Session::on_answer_written);
}

void Session::on_answer_written(Error error, size_t) {
  if (error) return close();
  release_output();
  if (last_) return finish();
  wait_for_request();
}

void Session::begin_stream(const Response& response) {
  stream_ = response.stream;
  stream_has_ended_ = head_.method == "HEAD";
  transport_->wait_for_input(then(&Session::on_stream_input));
  write(format_head(response, {.closes = true, .is_chunked = !reader_.is_http_1_0()}),
        &Session::on_chunk_written);
}

void Session::on_stream_input(Error, size_t) {
  if (stream_ != nullptr) close();  // the client has left
}

void Session::on_chunk_written(Error error, size_t) {
  if (error) return close();
  release_output();
  if (stream_has_ended_) return finish();
  next_chunk();
}

void Session::next_chunk() {
  Stream::Chunk chunk;
  if (!survives([&] { chunk = stream_->next(); })) return;
  stream_is_waiting_ = chunk.bytes.empty() && !chunk.is_last;
  if (stream_is_waiting_) return set_alarm(chunk.again);
  stream_has_ended_ = chunk.is_last;
  std::string text;
  if (reader_.is_http_1_0()) {
    text = std::move(chunk.bytes);
  } else {
    if (!chunk.bytes.empty()) text = format_chunk(chunk.bytes);
    if (chunk.is_last) text += kLastChunk;
  }
  if (text.empty()) return finish();
  write(std::move(text), &Session::on_chunk_written);
}

// Ends the connection so that the client receives everything that was written.
void Session::finish() {
  stream_.reset();
  busy_ = false;
  draining_ = true;
  set_limit(kLingerLimit);
  transport_->say_goodbye(then(&Session::on_goodbye));
}

void Session::on_goodbye(Error, size_t) {
  transport_->end_writing();
  discarded_.resize(16 * 1024);
  linger();
}

// Reads and discards what the client still sends, for a short time. Closing with unread bytes would
// reset the connection, and the client might lose the response.
void Session::linger() {
  transport_->read_raw(discarded_, then(&Session::on_lingered));
}

void Session::on_lingered(Error error, size_t bytes) {
  discarded_bytes_ += bytes;
  if (error || discarded_bytes_ > kLingerBytesMax) return close();
  linger();
}

}  // namespace lockstep::http
