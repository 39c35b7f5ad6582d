#include "agent/comm/control.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agent/comm/message_text.h"
#include "common/base/check.h"

namespace lockstep::comm {
namespace {

using Type = ControlMessage::Type;

// Names the stop event in epoll, where peers go by their rank.
constexpr uint64_t kStop = ~uint64_t{0};

Status watch(int epoll, int fd, uint64_t name) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = name}};
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return errno_error("[comm] watching a control connection", errno);
}

}  // namespace

struct Control::Peer {
  explicit Peer(int world_size) : reader(world_size) {}
  UniqueFd fd;
  std::unique_ptr<ControlWire> wire;
  std::mutex sending;
  // A message was cut short: nothing more can be sent. Guarded by `sending`.
  bool send_failed = false;

  // For the control thread only.
  bool open = true;
  ControlReader reader;

  std::atomic<bool> said_goodbye{false};
  std::atomic<int64_t> heard{0};  // steady-clock nanoseconds
  std::mutex hearing;
  Pulse pulse;  // guarded by `hearing`
};

Control::Control(Options options, UniqueFd stop)
    : options_(std::move(options)), stop_(std::move(stop)) {
  const int64_t born = now().time_since_epoch().count();
  options_.wires.resize(options_.peers.size());
  for (size_t rank = 0; rank < options_.peers.size(); ++rank) {
    auto peer = std::make_unique<Peer>(static_cast<int>(options_.peers.size()));
    peer->fd = std::move(options_.peers[rank]);
    peer->open = bool(peer->fd);
    peer->wire = std::move(options_.wires[rank]);
    if (peer->wire == nullptr) peer->wire = make_plain_wire(peer->fd.get());
    peer->heard = born;
    peers_.push_back(std::move(peer));
  }
}

Result<std::unique_ptr<Control>> Control::create(Options options) {
  TRY_ASSIGN(UniqueFd stop, make_event_fd());
  std::unique_ptr<Control> control(new Control(std::move(options), std::move(stop)));
  TRY(control->watch_all());
  return control;
}

Status Control::watch_all() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return errno_error("[comm] watching control connections", errno);
  TRY(watch(epoll_.get(), stop_.get(), kStop));
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    if (peers_[rank]->open) TRY(watch(epoll_.get(), peers_[rank]->fd.get(), rank));
  }
  return {};
}

void Control::start() {
  thread_ = std::thread([this] { run(); });
}

void Control::say_bye() {
  send_all({.type = Type::kBye});
}

Control::~Control() {
  signal_event(stop_.get());
  if (thread_.joinable()) thread_.join();
  std::vector<int> fds;
  for (const auto& peer : peers_) {
    if (peer->fd) fds.push_back(peer->fd.get());
  }
  finish_sending(std::move(fds), kLeavingLimit);
}

void Control::send_all(const ControlMessage& message) {
  const ControlBytes made(message);
  for (auto& peer : peers_) send(*peer, made.bytes());
}

void Control::send(Peer& peer, std::span<const std::byte> message) {
  if (!peer.fd) return;
  const std::lock_guard lock(peer.sending);
  if (peer.send_failed) return;
  peer.send_failed = !peer.wire->send(message);
}

void Control::announce(const Fault& fault) {
  send_all({.type = Type::kAbort, .fault = fault});
}

void Control::ring(int rank) {
  const ControlBytes made(ControlMessage{.type = Type::kBell});
  send(*peers_[static_cast<size_t>(rank)], made.bytes());
}

bool Control::said_goodbye(int rank) const {
  return peers_[static_cast<size_t>(rank)]->said_goodbye.load();
}

Control::Health Control::health(int rank) const {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  const std::lock_guard lock(peer.hearing);
  return {.silent = Duration(now().time_since_epoch().count() - peer.heard.load()),
          .pulse = peer.pulse};
}

void Control::beat() {
  const Pulse pulse = options_.before_beat();
  send_all({.type = Type::kHeartbeat, .entered = pulse.entered, .waits_for = pulse.waits_for});
}

void Control::run() {
  TimePoint next_beat = now();
  // Has room for all events, because messages are handled before closed connections: the last
  // message of one rank may blame another.
  std::vector<epoll_event> events(peers_.size() + 1);
  for (;;) {
    if (now() >= next_beat) {
      beat();
      next_beat = now() + options_.heartbeat;
    }
    const Duration rest = std::max<Duration>(next_beat - now(), Duration::zero());
    const auto rest_ms = std::chrono::ceil<std::chrono::milliseconds>(rest).count();
    const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   static_cast<int>(rest_ms));
    const auto of_peers = std::span(events).first(static_cast<size_t>(std::max(ready, 0)));
    for (const epoll_event& event : of_peers) {
      if (event.data.u64 == kStop) return;
      take_messages(static_cast<int>(event.data.u64));
    }
    for (const epoll_event& event : of_peers) end_if_closed(static_cast<int>(event.data.u64));
  }
}

void Control::end_if_closed(int rank) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  if (peer.open) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.fd.get(), nullptr);
  if (peer.said_goodbye.load()) return;
  options_.on_fault(
      {.code = Code::kUnavailable, .reason = rank_name(rank) + " ended", .suspect = rank});
}

void Control::take_messages(int rank) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  for (;;) {
    const Result<size_t> got = peer.wire->receive(peer.reader.room());
    if (got.ok() && *got == 0) return;
    if (!got.ok()) {
      if (got.error().code != Code::kUnavailable) report(rank, got.error());
      peer.open = false;
      return;
    }
    const auto message = peer.reader.received(*got);
    if (message.ok() && !message->has_value()) continue;
    peer.heard = now().time_since_epoch().count();
    if (!message.ok()) {
      report(rank, message.error());
    } else {
      handle(peer, **message);
    }
  }
}

void Control::report(int rank, const Error& error) {
  options_.on_fault(
      {.code = error.code, .reason = rank_name(rank) + " " + error.message, .suspect = rank});
}

void Control::handle(Peer& peer, const ControlMessage& message) {
  switch (message.type) {
    case Type::kHeartbeat: {
      const std::lock_guard lock(peer.hearing);
      peer.pulse = {.entered = message.entered, .waits_for = message.waits_for};
      return;
    }
    case Type::kBell:
      options_.on_wake();
      return;
    case Type::kAbort:
      options_.on_fault(message.fault);
      return;
    case Type::kBye:
      peer.said_goodbye = true;
      options_.on_wake();
      return;
  }
}

}  // namespace lockstep::comm
