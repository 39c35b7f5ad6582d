#include "agent/rpc/server.h"

#include <utility>

#include "agent/comm/socket.h"
#include "agent/rpc/served_call.h"
#include "agent/rpc/server_core.h"
#include "common/base/check.h"
#include "common/crypto/aead.h"

namespace lockstep::rpc {

Request::Request(Request&& other) noexcept : call_(std::exchange(other.call_, nullptr)) {}

Request& Request::operator=(Request&& other) noexcept {
  if (this == &other) return *this;
  let_go();
  call_ = std::exchange(other.call_, nullptr);
  return *this;
}

Request::~Request() {
  let_go();
}

void Request::let_go() {
  if (call_ != nullptr) call_->core->let_go(*std::exchange(call_, nullptr));
}

uint32_t Request::rank() const {
  return call_->rank;
}

CallId Request::id() const {
  return call_->id;
}

uint64_t Request::floor() const {
  return call_->floor;
}

Bytes Request::head() const {
  return call_->head;
}

Bytes Request::body() const {
  return call_->body;
}

const std::shared_ptr<Object>& Request::object() const {
  return call_->object;
}

std::optional<TimePoint> Request::deadline() const {
  return call_->deadline;
}

bool Request::is_wanted() const {
  return !call_->is_cancelled.load();
}

void Request::answer(Answer answer) {
  call_->core->answer(*call_, std::move(answer));
}

void Request::fail(Code code, std::string_view text) {
  call_->core->fail(*call_, code, text);
}

Server::Server(std::unique_ptr<ServerCore> core) : core_(std::move(core)) {}

Server::~Server() = default;

ReplyBurst::ReplyBurst(Server& server) : core_(*server.core_) {
  core_.begin_burst();
}

ReplyBurst::~ReplyBurst() {
  core_.end_burst();
}

Result<std::unique_ptr<Server>> Server::create(Options options) {
  comm::UniqueFd listener(options.listen_fd);
  TRY(comm::adopt_listener(options.listen_fd));
  if (options.memory.size() > kSegmentsMax) {
    return invalid("[rpc] server: expected at most " + std::to_string(kSegmentsMax) +
                   " segments of shared memory, got " + std::to_string(options.memory.size()));
  }
  if (options.self.encrypts) TRY(can_encrypt());
  TRY_ASSIGN(Poller poller, Poller::create());
  listener.release();
  return std::unique_ptr<Server>(
      new Server(std::make_unique<ServerCore>(std::move(options), std::move(poller))));
}

void Server::add(const Method& method, Handler handler, MethodOptions options) {
  core_->add(method, std::move(handler), std::move(options));
}

Status Server::start() {
  return core_->start();
}

Status Server::record(CallId id, uint64_t floor, CallOutcome outcome) {
  return core_->record(id, floor, std::move(outcome));
}

std::string Server::export_calls() const {
  return core_->export_calls();
}

Status Server::import_calls(std::string_view exported) {
  return core_->import_calls(exported);
}

Server::Counts Server::counts() const {
  return core_->counts();
}

}  // namespace lockstep::rpc
