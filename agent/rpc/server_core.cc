#include "agent/rpc/server_core.h"

#include <algorithm>
#include <utility>

#include "agent/rpc/lending.h"
#include "common/base/check.h"
#include "common/base/log.h"

namespace lockstep::rpc {
namespace {

constexpr Duration kTickEvery = std::chrono::milliseconds(250);
// Connections that have not opened a session yet, in addition to those of clients.
constexpr size_t kUnopenedMax = 64;

}  // namespace

ServerCore::ServerCore(Server::Options options, Poller poller)
    : options_(std::move(options)),
      poller_(std::move(poller)),
      memory_({.clients_max = options_.limits.clients_max,
               .bytes_max = options_.limits.remembered_bytes_max}) {}

ServerCore::~ServerCore() {
  acceptor_.reset();
  {
    const std::lock_guard lock(mutex);
    stops_ = true;
    wake();
  }
  if (thread_.joinable()) thread_.join();
  {
    const std::lock_guard lock(mutex);
    while (!connections_.empty()) end_connection(connections_.begin()->first, Status());
    while (!sessions_.empty()) end_session(*sessions_.begin()->second);
    CHECK(states_.size() == free_states_.size());  // else a Request outlives its server
  }
  run_deferred();
}

void ServerCore::add(const Method& method, Server::Handler handler, MethodOptions options) {
  CHECK(!thread_.joinable());
  const bool is_new = methods_
                          .emplace(method.id, ServedMethod{.method = &method,
                                                           .handler = std::move(handler),
                                                           .options = std::move(options)})
                          .second;
  CHECK(is_new);
}

Status ServerCore::start() {
  TRY_ASSIGN(acceptor_, Acceptor::start({.self = &options_.self,
                                         .listener = comm::UniqueFd(options_.listen_fd),
                                         .handshake_limit = options_.limits.handshake_limit,
                                         .clock = options_.clock,
                                         .nonce = options_.nonce,
                                         .admit = [this](Admitted admitted) {
                                           const std::lock_guard lock(mutex);
                                           admitted_.push_back(std::move(admitted));
                                           wake();
                                         }}));
  thread_ = std::thread([this] {
    loop_id_.store(std::this_thread::get_id());
    for (;;) {
      {
        const std::lock_guard lock(mutex);
        if (stops_) return;
      }
      run_once();
    }
  });
  return {};
}

const ServedMethod* ServerCore::method(uint64_t id) const {
  const auto found = methods_.find(id);
  return found == methods_.end() ? nullptr : &found->second;
}

ClientLink* ServerCore::connection(uint64_t number) const {
  const auto found = connections_.find(number);
  return found == connections_.end() ? nullptr : found->second.get();
}

// --- The loop ---

void ServerCore::adopt() {
  for (Admitted& admitted : std::exchange(admitted_, {})) {
    if (connections_.size() >= options_.limits.clients_max + kUnopenedMax) continue;
    const uint64_t number = next_connection_++;
    auto link = std::make_unique<ClientLink>(*this, number, std::move(admitted));
    if (!poller_.add(link->fd(), number).ok()) continue;
    connections_.emplace(number, std::move(link));
  }
}

void ServerCore::tick() {
  const std::lock_guard lock(mutex);
  adopt();
  for (const uint64_t number : std::exchange(dirty_, {})) {
    ClientLink* const link = connection(number);
    if (link != nullptr) link->flush();
  }
  const TimePoint at = now();
  wakes_at_ = at + kTickEvery;
  std::vector<std::pair<uint64_t, Status>> ended;
  for (const auto& [number, link] : connections_) {
    Status alive = link->tick(at);
    if (!alive.ok()) ended.emplace_back(number, std::move(alive));
    if (link->has_work()) wakes_at_ = at;
  }
  for (const auto& [number, why] : ended) end_connection(number, why);
  if (at >= next_expiry_) expire_sessions(at);
  if (!deferred_.empty() || !garbage_.empty()) wakes_at_ = at;
}

void ServerCore::run_once() {
  tick();
  run_deferred();
  Duration timeout{};
  {
    const std::lock_guard lock(mutex);
    timeout = wakes_at_ - now();
    if (!dirty_.empty()) timeout = Duration::zero();
  }
  const auto handle = [this](uint64_t number, bool readable, bool writable) {
    ClientLink* const link = connection(number);
    if (link == nullptr) return;
    const Status handled = link->on_event(readable, writable);
    if (handled.ok()) return;
    const std::lock_guard lock(mutex);
    end_connection(number, handled);
  };
  for (const Poller::Event& event : poller_.wait(timeout)) {
    handle(event.tag, event.readable, event.writable);
  }
  std::vector<uint64_t> busy;
  for (const auto& [number, link] : connections_) {
    if (link->has_work()) busy.push_back(number);
  }
  for (const uint64_t number : busy) handle(number, true, false);
}

void ServerCore::run_deferred() {
  std::vector<std::function<void()>> deferred;
  std::vector<std::shared_ptr<Object>> garbage;
  {
    const std::lock_guard lock(mutex);
    deferred.swap(deferred_);
    garbage.swap(garbage_);
  }
  for (const auto& function : deferred) function();
}

// --- Connections and sessions ---

void ServerCore::end_connection(uint64_t number, const Status& why) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  ClientLink& link = *found->second;
  if (!why.ok() && (why.error().code == Code::kCorrupt || why.error().code == Code::kConflict)) {
    ++refused_;
    log_warning("a client's connection ends",
                {{"client", link.name()}, {"why", link.name() + " " + why.error().message}});
  }
  link.close();
  Session* const session = link.session();
  if (session != nullptr && session->connection == number) {
    detach_calls(*session, number);
    session->connection = 0;
    session->last_seen = now();
    if (link.is_leaving()) end_session(*session);
  }
  connections_.erase(found);
}

// The connection of these calls is gone. Those that never repeat go on: the client may come back
// for the outcome.
void ServerCore::detach_calls(Session& session, uint64_t number) {
  for (ServedCall* call = session.calls; call != nullptr;) {
    ServedCall* const next = call->next;
    if (call->connection == number) {
      call->is_counted = false;
      call->connection = 0;
      call->out.clear();
      end_loan(call->word, call->word_of);
      if (call->is_receiving) {
        call->is_receiving = false;
        abandon(*call);
      } else if (call->is_replying) {
        replied(*call);
      } else if (call->method->method->repeats == Repeats::kAllowed) {
        call->is_cancelled.store(true);
      }
    }
    call = next;
  }
}

void ServerCore::end_session(Session& session) {
  for (auto& [number, object] : session.objects) garbage_.push_back(std::move(object));
  for (ServedCall* call = session.calls; call != nullptr;) {
    ServedCall* const next = call->next;
    call->session = nullptr;
    call->next = call->before = nullptr;
    call->is_cancelled.store(true);
    call = next;
  }
  memory_.forget_client(session.client);
  sessions_.erase(session.client);
}

void ServerCore::expire_sessions(TimePoint at) {
  std::vector<Session*> over;
  next_expiry_ = at + std::min<Duration>(options_.limits.lease / 4, std::chrono::seconds(1));
  for (const auto& [client, session] : sessions_) {
    const bool is_over =
        session->connection == 0 && at - session->last_seen >= options_.limits.lease;
    if (is_over) over.push_back(session.get());
  }
  for (Session* const session : over) end_session(*session);
}

// Makes room for a session of the rank, at the expense of one without a connection.
bool ServerCore::make_room(std::optional<uint32_t> rank) {
  size_t of_rank = 0;
  Session* oldest = nullptr;
  Session* oldest_of_rank = nullptr;
  const auto older = [](const Session* a, const Session& b) {
    return b.connection == 0 && (a == nullptr || b.last_seen < a->last_seen);
  };
  for (const auto& [client, session] : sessions_) {
    if (older(oldest, *session)) oldest = session.get();
    if (!rank || session->rank != rank) continue;
    ++of_rank;
    if (older(oldest_of_rank, *session)) oldest_of_rank = session.get();
  }
  const bool is_rank_full = rank && of_rank >= options_.limits.clients_per_rank_max;
  if (!is_rank_full && sessions_.size() < options_.limits.clients_max) return true;
  Session* const victim = is_rank_full ? oldest_of_rank : oldest;
  if (victim == nullptr) return false;
  end_session(*victim);
  return true;
}

Result<ServerCore::Opened> ServerCore::open_session(const ClientLink& link, uint32_t rank,
                                                    const Opening& opening) {
  const bool resumes = opening.session == kSessionResumed;
  auto found = sessions_.find(opening.client);
  if (found == sessions_.end()) {
    if (resumes) return Opened{.state = kSessionUnknown};
    if (!make_room(rank)) return Opened{.state = kSessionsFull};
    found = sessions_.emplace(opening.client, std::make_unique<Session>()).first;
    found->second->client = opening.client;
  }
  Session& session = *found->second;
  if (session.rank && *session.rank != rank) {
    return conflict("uses a client number that belongs to rank " + std::to_string(*session.rank));
  }
  session.rank = rank;
  if (session.connection != 0) end_connection(session.connection, Status());
  if (!resumes) {
    for (auto& [number, object] : session.objects) garbage_.push_back(std::move(object));
    session.objects.clear();
  }
  session.connection = link.number();
  return Opened{.state = resumes ? kSessionResumed : kSessionBegun, .session = &session};
}

void ServerCore::release_object(Session& session, uint64_t object) {
  const auto found = session.objects.find(object);
  if (found == session.objects.end()) return;
  garbage_.push_back(std::move(found->second));
  session.objects.erase(found);
}

// --- For replicas ---

Session* ServerCore::touch_session(uint64_t client) {
  auto found = sessions_.find(client);
  if (found == sessions_.end()) {
    if (!make_room({})) return nullptr;
    found = sessions_.emplace(client, std::make_unique<Session>()).first;
    found->second->client = client;
  }
  found->second->last_seen = now();
  return found->second.get();
}

Status ServerCore::record(CallId id, uint64_t floor, CallOutcome outcome) {
  const std::lock_guard lock(mutex);
  if (touch_session(id.client) == nullptr) {
    return unavailable("[rpc] there is no room to remember another client");
  }
  TRY_ASSIGN(const CallMemory::Seen seen, memory_.begin(id, floor));
  static_cast<void>(seen);
  memory_.finish(id, std::move(outcome));
  return {};
}

std::string ServerCore::export_calls() const {
  const std::lock_guard lock(mutex);
  return memory_.export_all();
}

Status ServerCore::import_calls(std::string_view exported) {
  const std::lock_guard lock(mutex);
  TRY_ASSIGN(const std::vector<uint64_t> clients, memory_.import_from(exported));
  for (const uint64_t client : clients) {
    if (touch_session(client) == nullptr) memory_.forget_client(client);
  }
  return {};
}

Server::Counts ServerCore::counts() const {
  const std::lock_guard lock(mutex);
  Server::Counts counts{.connections = connections_.size(),
                        .sessions = sessions_.size(),
                        .calls = states_.size() - free_states_.size(),
                        .refused_connections = refused_};
  for (const auto& [client, session] : sessions_) counts.objects += session->objects.size();
  return counts;
}

}  // namespace lockstep::rpc
