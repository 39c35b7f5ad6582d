#include "agent/rpc/client.h"

#include <mutex>
#include <utility>

#include "agent/rpc/client_core.h"
#include "common/base/check.h"
#include "common/crypto/aead.h"

namespace lockstep::rpc {

Call::Call(std::shared_ptr<ClientCore> core, CallState* state)
    : core_(std::move(core)), state_(state) {}

Call::Call(Call&& other) noexcept
    : core_(std::move(other.core_)),
      state_(std::exchange(other.state_, nullptr)),
      refused_(std::move(other.refused_)) {}

Call& Call::operator=(Call&& other) noexcept {
  if (this == &other) return *this;
  let_go();
  core_ = std::move(other.core_);
  state_ = std::exchange(other.state_, nullptr);
  refused_ = std::move(other.refused_);
  return *this;
}

Call::~Call() {
  let_go();
}

void Call::let_go() {
  if (state_ != nullptr) core_->let_go(*std::exchange(state_, nullptr));
}

bool Call::is_done() const {
  return state_ == nullptr || state_->done.load() != 0;
}

Status Call::wait() {
  if (state_ != nullptr) {
    CHECK(is_done() || !core_->is_loop());
    while (state_->done.load() == 0) state_->done.wait(0);
  }
  return status();
}

void Call::cancel() {
  if (state_ != nullptr) core_->cancel(*state_);
}

const Status& Call::status() const {
  CHECK(is_done());
  return state_ == nullptr ? refused_ : state_->status;
}

Bytes Call::head() const {
  return state_ == nullptr ? Bytes() : Bytes(state_->head);
}

Bytes Call::body() const {
  return state_ == nullptr ? Bytes() : state_->allocated_body();
}

uint64_t Call::body_bytes() const {
  return state_ == nullptr ? 0 : state_->body_bytes;
}

uint64_t Call::object() const {
  return state_ == nullptr ? 0 : state_->object;
}

CallId Call::id() const {
  if (state_ == nullptr) return {};
  return {.client = core_->client(), .number = state_->number};
}

Peer::Peer(std::shared_ptr<ClientCore> core, ServerLink* link)
    : core_(std::move(core)), link_(link) {}

Call Peer::call(const Method& method, const CallOptions& options) const {
  Status refused;
  CallState* const state = core_->begin(*link_, method, options, 0, refused);
  Call call(core_, state);
  if (state == nullptr) call.refused_ = std::move(refused);
  return call;
}

Call Peer::call_again(Call failed, const Method& method, const CallOptions& options) const {
  CHECK(failed.is_done() && !failed.status().ok());
  const uint64_t number = failed.state_ == nullptr ? 0 : core_->take_number(*failed.state_);
  Status refused;
  CallState* const state = core_->begin(*link_, method, options, number, refused);
  Call call(core_, state);
  if (state == nullptr) call.refused_ = std::move(refused);
  return call;
}

void Peer::release(uint64_t object) const {
  const std::lock_guard lock(core_->mutex);
  link_->release_object(object);
}

void Peer::leave(std::string_view reason) const {
  const std::lock_guard lock(core_->mutex);
  link_->request_leave(std::string(reason));
  core_->wake();
}

std::string Peer::path() const {
  const std::lock_guard lock(core_->mutex);
  return link_->path();
}

RequestBurst::RequestBurst(Client& client) : core_(*client.core_) {
  core_.begin_burst();
}

RequestBurst::~RequestBurst() {
  core_.end_burst();
}

Result<std::unique_ptr<Client>> Client::create(Options options) {
  if (options.memory.size() > kSegmentsMax) {
    return invalid("[rpc] client: expected at most " + std::to_string(kSegmentsMax) +
                   " segments of shared memory, got " + std::to_string(options.memory.size()));
  }
  if (options.self.encrypts) TRY(can_encrypt());
  TRY_ASSIGN(Poller poller, Poller::create());
  auto core = std::make_shared<ClientCore>(std::move(options), std::move(poller));
  core->run();
  return std::unique_ptr<Client>(new Client(std::move(core)));
}

Client::~Client() {
  core_->stop();
}

Peer Client::add_server(const ServerAddress& server) {
  return Peer(core_, core_->add_server(server));
}

}  // namespace lockstep::rpc
