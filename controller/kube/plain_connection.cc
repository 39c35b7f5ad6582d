#include "controller/kube/plain_connection.h"

#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>

#include "common/base/log.h"
#include "common/base/nonce.h"
#include "controller/kube/socket_options.h"

namespace lockstep::kube {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;

constexpr size_t kHeadBytesMax = 32u << 10;
constexpr size_t kBufferBytesMax = 64u << 10;
constexpr size_t kChunkedEndBytes = 5;  // 0\r\n\r\n
// An agent's answer mostly fits in the first read.
constexpr size_t kFirstReadBytes = 2u << 10, kReadBytes = 16u << 10;
constexpr size_t kInterimHeadsMax = 8;
constexpr size_t kIdleMax = 2;  // a poll and an assignment at the same time
constexpr size_t kGreetingBytesMax = 4u << 10;
constexpr unsigned kOk = 200, kUnauthorized = 401, kNoSuchPath = 404;

// Returns the field's first value if it occurs several times.
std::string field(const beast_http::fields& fields, beast_http::field name) {
  const auto value = fields[name];
  return std::string(value.data(), value.size());
}

std::string proof_in(const beast_http::fields& fields) {
  const auto found = fields.find(http::kProofField);
  return found == fields.end() ? "" : std::string(found->value().data(), found->value().size());
}

Error too_large() {
  return invalid("[http] the reply is larger than allowed");
}

}  // namespace

PlainNetwork::PlainNetwork() : work_(asio::make_work_guard(io_)), thread_([this] { run(); }) {}

PlainNetwork::~PlainNetwork() {
  io_.stop();
  thread_.join();
}

// An exception in a call, for lack of memory, loses only its exchange, which then ends at its
// deadline.
void PlainNetwork::run() {
  while (!io_.stopped()) {
    try {
      io_.run();
    } catch (const std::exception& exception) {
      log_error("a call on the network thread failed", {{"error", exception.what()}});
    }
  }
}

void PlainNetwork::post(std::function<void()> call) {
  asio::post(io_, std::move(call));
}

std::shared_ptr<PlainNetwork> start_plain_network() {
  return std::make_shared<PlainNetwork>();
}

void PlainPool::run(std::shared_ptr<PlainExchange> exchange) {
  if (exchange->is_abandoned()) return;
  while (!idle_.empty()) {
    const std::shared_ptr<PlainConnection> connection = std::move(idle_.back());
    idle_.pop_back();
    if (connection->is_quiet()) return connection->run(std::move(exchange));
    connection->close();
  }
  run_anew(std::move(exchange));
}

void PlainPool::run_anew(std::shared_ptr<PlainExchange> exchange) {
  if (is_closed_ || exchange->is_abandoned()) return;
  std::make_shared<PlainConnection>(network_, weak_from_this())
      ->connect(*this, std::move(exchange));
}

const std::string* PlainPool::bearer_token() const {
  const auto& session = options_.session;
  const bool may_send = session && session->may_send_secret && !has_proof_;
  return may_send && !session->secrets.empty() ? &session->secrets[bearer_token_] : nullptr;
}

bool PlainPool::next_bearer_token(size_t number, size_t refusals) {
  const size_t count = options_.session->secrets.size();
  if (number == bearer_token_) bearer_token_ = (bearer_token_ + 1) % count;
  return refusals < count;
}

void PlainPool::give_back(const std::shared_ptr<PlainConnection>& connection) {
  if (is_closed_ || idle_.size() >= kIdleMax) return connection->close();
  idle_.push_back(connection);
}

void PlainPool::close() {
  is_closed_ = true;
  for (const std::shared_ptr<PlainConnection>& connection : idle_) connection->close();
  idle_.clear();
}

PlainConnection::PlainConnection(PlainNetwork& network, std::weak_ptr<PlainPool> pool)
    : pool_(std::move(pool)), socket_(network.io()), buffer_(kBufferBytesMax) {}

bool PlainConnection::is_quiet() {
  char byte = 0;
  const ssize_t got = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

void PlainConnection::connect(const PlainPool& pool, std::shared_ptr<PlainExchange> exchange) {
  carry(std::move(exchange));
  const auto connected = [self = shared_from_this(),
                          pool = pool.weak_from_this()](ErrorCode error) {
    if (self->exchange_ == nullptr) return;
    if (error) return self->fail(error);
    set_socket_options(self->socket_.native_handle());
    const auto open = pool.lock();
    if (open != nullptr && open->options().session) return self->greet(*open);
    self->send();
  };
  socket_.async_connect(pool.options().endpoint, connected);
}

void PlainConnection::run(std::shared_ptr<PlainExchange> exchange) {
  carry(std::move(exchange));
  send();
}

void PlainConnection::carry(std::shared_ptr<PlainExchange> exchange) {
  exchange_ = std::move(exchange);
  exchange_->carried_by(weak_from_this());
  heads_ = 0;
  received_ = 0;
  refusals_ = 0;
}

void PlainConnection::close() {
  exchange_ = nullptr;
  ErrorCode ignored;
  socket_.close(ignored);
}

void PlainConnection::drop(const PlainExchange& exchange) {
  if (exchange_.get() == &exchange) close();
}

// Nothing of the request is sent before the server has shown that it has a secret.
void PlainConnection::greet(const PlainPool& pool) {
  const PlainSession& session = *pool.options().session;
  trust_ = Trust::kGreeting;
  session_.emplace(http::SessionClient::Options{.server_name = session.server_name,
                                                .secrets = session.secrets,
                                                .nonce = random_nonce(),
                                                .encrypts = session.encrypts});
  written_ = std::string("GET ") + http::kSessionPath +
             " HTTP/1.1\r\nHost: " + pool.options().host +
             "\r\nAuthorization: " + session_->hello() + "\r\n\r\n";
  asio::async_write(socket_, asio::buffer(written_),
                    [self = shared_from_this()](ErrorCode, size_t) {
                      if (self->exchange_ == nullptr) return;
                      self->expect_head();
                      self->read();
                    });
}

void PlainConnection::on_greeted(unsigned status, bool may_stay) {
  const std::shared_ptr<PlainPool> pool = pool_.lock();
  if (pool == nullptr) return close();
  if (status == kOk && session_->accept(proof_)) {
    pool->note_proof();
    trust_ = Trust::kSession;
    if (const Status made = make_cipher(); !made.ok()) return fail(made.error());
  } else if (status == kNoSuchPath && pool->bearer_token() != nullptr && !session_->encrypts()) {
    trust_ = Trust::kBearer;
  } else if (status == kOk || status == kUnauthorized || status == kNoSuchPath) {
    return fail(not_found("[session] the server does not show that it has the secret: HTTP " +
                          std::to_string(status)));
  } else {
    return fail(unavailable("[session] HTTP " + std::to_string(status)));
  }
  if (!may_stay) return fail(unavailable("[session] the server closes after the greeting"));
  received_ = 0;
  heads_ = 0;
  send();
}

Status PlainConnection::make_cipher() {
  if (!session_->encrypts()) return {};
  const http::SessionKeys keys = session_->body_keys();
  TRY_ASSIGN(cipher_, http::BodyCipher::make(keys.request, keys.reply));
  return {};
}

Status PlainConnection::encrypt_body() {
  if (!cipher_) return {};
  TRY_ASSIGN(encrypted_, cipher_->encrypt(session_->number() + 1, exchange_->request().body));
  return {};
}

// Returns the body as it is sent.
const std::string& PlainConnection::sent_body() const {
  return cipher_ ? encrypted_ : exchange_->request().body;
}

// Checks the reply of a session, and decrypts its body.
Status PlainConnection::check_reply(unsigned status) {
  if (!session_->check(proof_, status, sha256(exchange_->reply().body))) {
    return unavailable("[session] the reply is not the server's, or was changed on its way");
  }
  if (!cipher_) return {};
  TRY_ASSIGN(std::string body, cipher_->decrypt(session_->number(), exchange_->reply().body));
  exchange_->set_body(std::move(body));
  return {};
}

std::string PlainConnection::authorization() {
  const PlainExchange::Request& request = exchange_->request();
  if (trust_ == Trust::kSession) {
    return session_->sign(request.method, request.target, sha256(sent_body()));
  }
  if (trust_ == Trust::kNone) return "";
  const std::shared_ptr<PlainPool> pool = pool_.lock();
  const std::string* token = pool == nullptr ? nullptr : pool->bearer_token();
  if (token == nullptr) return "";
  bearer_token_ = pool->bearer_token_number();
  return bearer(*token);
}

void PlainConnection::send() {
  if (const Status encrypted = encrypt_body(); !encrypted.ok()) return fail(encrypted.error());
  written_ = exchange_->request().head;
  if (const std::string value = authorization(); !value.empty()) {
    written_ += "Authorization: " + value + "\r\n";
  }
  written_ += "\r\n";
  const std::array<asio::const_buffer, 2> bytes = {asio::buffer(written_),
                                                   asio::buffer(sent_body())};
  // The exchange, or this, owns the body, even if it is dropped meanwhile. A write error also shows
  // when reading, unless the server answered before it left.
  asio::async_write(socket_, bytes,
                    [self = shared_from_this(), exchange = exchange_](ErrorCode, size_t) {
                      // Thousands of connections wait.
                      std::string().swap(self->written_);
                      std::string().swap(self->encrypted_);
                      if (self->exchange_ == nullptr) return;
                      self->wait();
                    });
}

void PlainConnection::expect_head() {
  const bool is_greeting = trust_ == Trust::kGreeting;
  parser_.emplace();
  parser_->header_limit(kHeadBytesMax);
  parser_->body_limit(is_greeting ? kGreetingBytesMax : exchange_->request().reply_bytes_max);
  parser_->get().body() = [this, is_greeting](std::string_view piece) {
    return is_greeting || exchange_->take(piece);
  };
}

// Holds no buffer while the server takes its time.
void PlainConnection::wait() {
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](ErrorCode error) {
                       if (self->exchange_ == nullptr) return;
                       if (error) return self->fail(error);
                       self->expect_head();
                       self->read();
                     });
}

void PlainConnection::read() {
  const size_t wanted = received_ > 0 ? kReadBytes : kFirstReadBytes;
  const size_t bytes = std::min(wanted, kBufferBytesMax - buffer_.size());
  const size_t received_max = 2 * (exchange_->request().reply_bytes_max + kBufferBytesMax);
  if (bytes == 0 || received_ > received_max) return fail(too_large());
  socket_.async_read_some(buffer_.prepare(bytes),
                          [self = shared_from_this()](ErrorCode error, size_t got) {
                            if (self->exchange_ != nullptr) self->on_read(error, got);
                          });
}

void PlainConnection::on_read(ErrorCode error, size_t bytes) {
  const bool is_end = error == asio::error::eof && received_ > 0;
  if (error && !is_end) return fail(error);
  if (is_end) {  // end of a body without a length, or within a reply
    parser_->put_eof(error);
    if (error) return fail(error);
    return on_reply();
  }
  buffer_.commit(bytes);
  received_ += bytes;
  parse();
}

void PlainConnection::parse() {
  while (!parser_->is_done()) {
    // Beast 1.74 asserts that the end of a chunked body arrives in at least kChunkedEndBytes. As
    // long as there are fewer, more have to follow.
    const bool in_chunks = parser_->is_header_done() && parser_->chunked();
    if (buffer_.size() < (in_chunks ? kChunkedEndBytes : 1)) return read();
    const bool had_head = parser_->is_header_done();
    ErrorCode error;
    buffer_.consume(parser_->put(buffer_.data(), error));
    if (error == beast_http::error::need_more) return read();
    if (error) return fail(error);
    if (!had_head && parser_->is_header_done()) on_head();
  }
  on_reply();
}

void PlainConnection::on_head() {
  const auto& head = parser_->get();
  proof_ = proof_in(head);
  if (trust_ == Trust::kGreeting) return;
  exchange_->on_head({.status = static_cast<int>(head.result_int()),
                      .retry_after = field(head, beast_http::field::retry_after),
                      .warning = field(head, beast_http::field::warning),
                      .content_type = field(head, beast_http::field::content_type),
                      .body = {}});
}

void PlainConnection::on_reply() {
  const unsigned status = parser_->get().result_int();
  if (status < 200) {  // RFC 9110, section 15.2: interim replies come unasked before the answer
    if (status == 101 || ++heads_ > kInterimHeadsMax) {
      return fail(unavailable("[http] expected a final reply, got HTTP " + std::to_string(status)));
    }
    expect_head();
    return parse();
  }
  const bool may_stay = parser_->keep_alive() && buffer_.size() == 0;
  parser_.reset();
  buffer_.shrink_to_fit();
  if (trust_ == Trust::kGreeting) return on_greeted(status, may_stay);
  if (trust_ == Trust::kSession) {
    if (const Status checked = check_reply(status); !checked.ok()) return fail(checked.error());
  }
  if (trust_ == Trust::kBearer && status == kUnauthorized && try_next_token(may_stay)) return;
  end_exchange(may_stay);
}

// A server that refuses the token has not carried the request out.
bool PlainConnection::try_next_token(bool may_stay) {
  const std::shared_ptr<PlainPool> pool = pool_.lock();
  if (pool == nullptr) return false;
  if (!pool->next_bearer_token(bearer_token_, ++refusals_) || !may_stay) return false;
  received_ = 0;
  send();
  return true;
}

void PlainConnection::end_exchange(bool may_stay) {
  is_used_ = true;
  std::exchange(exchange_, nullptr)->end_well();
  const std::shared_ptr<PlainPool> pool = pool_.lock();
  if (!may_stay || pool == nullptr) return close();
  pool->give_back(shared_from_this());
}

void PlainConnection::fail(Error error) {
  const std::shared_ptr<PlainExchange> exchange = exchange_;
  close();
  const std::shared_ptr<PlainPool> pool = pool_.lock();
  // The server may have closed the connection before the request came.
  const bool is_stale = is_used_ && received_ == 0;
  if (is_stale && exchange->request().may_repeat && pool) return pool->run_anew(exchange);
  exchange->fail(std::move(error));
}

void PlainConnection::fail(ErrorCode error) {
  if (error == beast_http::error::body_limit || error == beast_http::error::header_limit) {
    return fail(too_large());
  }
  fail(unavailable("[http] " + error.message()));
}

}  // namespace lockstep::kube
