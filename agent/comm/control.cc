#include "agent/comm/control.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace lockstep {
namespace {

enum class MessageType : uint32_t { kHeartbeat = 1, kBell, kAbort, kBye };

// That what was said last may still need to arrive.
constexpr Duration kLeavingLimit = std::chrono::milliseconds(100);

}  // namespace

struct Control::Message {
  static constexpr uint32_t kMagic = 0x3343434c;  // "LCC3"
  uint32_t magic = kMagic;
  MessageType type = MessageType::kHeartbeat;
  int32_t suspect = -1;
  Code code = Code::kUnavailable;
  uint64_t entered = 0;
  AwaitedRanks waits_for;
  std::array<char, kFaultReasonMax + 1> reason{};  // ends with a zero
};

struct Control::Peer {
  UniqueFd fd;
  std::mutex sending;
  bool deaf = false;  // a message was cut short: nothing more can be sent. Guarded by `sending`

  // The control thread's own.
  bool open = true;
  std::array<std::byte, sizeof(Message)> partial{};
  size_t partial_bytes = 0;

  std::atomic<bool> left{false};
  std::atomic<int64_t> heard{0};  // steady nanoseconds
  std::mutex hearing;
  Pulse pulse;  // guarded by `hearing`
};

Control::Control(Options options, UniqueFd stop)
    : options_(std::move(options)), stop_(std::move(stop)) {
  const int64_t born = now().time_since_epoch().count();
  for (UniqueFd& fd : options_.peers) {
    auto peer = std::make_unique<Peer>();
    peer->open = bool(fd);
    peer->fd = std::move(fd);
    peer->heard = born;
    peers_.push_back(std::move(peer));
  }
}

Result<std::unique_ptr<Control>> Control::create(Options options) {
  static_assert(sizeof(Message) == 512);
  TRY_ASSIGN(UniqueFd stop, make_event_fd());
  return std::unique_ptr<Control>(new Control(std::move(options), std::move(stop)));
}

void Control::start() {
  thread_ = std::thread([this] { run(); });
}

void Control::say_bye() {
  for (auto& peer : peers_) send(*peer, {.type = MessageType::kBye});
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

void Control::send(Peer& peer, const Message& message) {
  if (!peer.fd) return;
  const std::lock_guard lock(peer.sending);
  if (peer.deaf) return;
  const ssize_t sent = ::send(peer.fd.get(), &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL);
  // A full buffer means that its control thread stands still, a failure that it has ended; both
  // are found out by reading, or by its silence.
  if (sent != static_cast<ssize_t>(sizeof message)) peer.deaf = true;
}

void Control::announce(const Fault& fault) {
  Message message{.type = MessageType::kAbort, .suspect = fault.suspect, .code = fault.code};
  const size_t n = std::min(fault.reason.size(), kFaultReasonMax);
  std::memcpy(message.reason.data(), fault.reason.data(), n);
  for (auto& peer : peers_) send(*peer, message);
}

void Control::ring(int rank) {
  send(*peers_[static_cast<size_t>(rank)], {.type = MessageType::kBell});
}

bool Control::left(int rank) const {
  return peers_[static_cast<size_t>(rank)]->left.load();
}

Control::Health Control::health(int rank) const {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  const std::lock_guard lock(peer.hearing);
  return {.silent = Duration(now().time_since_epoch().count() - peer.heard.load()),
          .pulse = peer.pulse};
}

void Control::beat() {
  const Pulse pulse = options_.before_beat();
  const Message message{
      .type = MessageType::kHeartbeat, .entered = pulse.entered, .waits_for = pulse.waits_for};
  for (auto& peer : peers_) send(*peer, message);
}

void Control::run() {
  TimePoint next_beat = now();
  std::vector<pollfd> polled;
  for (;;) {
    if (now() >= next_beat) {
      beat();
      next_beat = now() + options_.heartbeat;
    }
    polled.assign(1, {.fd = stop_.get(), .events = POLLIN, .revents = 0});
    for (const auto& peer : peers_) {
      polled.push_back({.fd = peer->open ? peer->fd.get() : -1, .events = POLLIN, .revents = 0});
    }
    const Duration rest = std::max<Duration>(next_beat - now(), Duration::zero());
    const auto rest_ms = std::chrono::ceil<std::chrono::milliseconds>(rest).count();
    ::poll(polled.data(), polled.size(), static_cast<int>(rest_ms));
    if (polled[0].revents != 0) return;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (polled[i + 1].revents != 0) take_messages(static_cast<int>(i));
    }
    // What was said comes before who ended: the last words of one rank may name another.
    for (size_t i = 0; i < peers_.size(); ++i) {
      const bool ended = polled[i + 1].revents != 0 && !peers_[i]->open;
      if (!ended || peers_[i]->left.load()) continue;
      const int rank = static_cast<int>(i);
      options_.on_fault({.code = Code::kUnavailable,
                         .reason = "rank " + std::to_string(rank) + " ended",
                         .suspect = rank});
    }
  }
}

void Control::take_messages(int rank) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  for (;;) {
    const ssize_t got = ::recv(peer.fd.get(), peer.partial.data() + peer.partial_bytes,
                               peer.partial.size() - peer.partial_bytes, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      peer.open = false;
      return;
    }
    peer.partial_bytes += static_cast<size_t>(got);
    if (peer.partial_bytes < peer.partial.size()) continue;
    peer.partial_bytes = 0;
    Message message;
    std::memcpy(&message, peer.partial.data(), sizeof message);
    message.reason.back() = '\0';
    handle(rank, message);
  }
}

void Control::handle(int rank, const Message& message) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  peer.heard = now().time_since_epoch().count();
  const bool known = message.magic == Message::kMagic && message.type >= MessageType::kHeartbeat &&
                     message.type <= MessageType::kBye && message.code >= Code::kInvalid &&
                     message.code <= Code::kInternal && message.suspect >= -1 &&
                     message.suspect < static_cast<int>(peers_.size());
  if (!known) {
    options_.on_fault({.code = Code::kCorrupt,
                       .reason = "rank " + std::to_string(rank) + " sent something unknown",
                       .suspect = rank});
    return;
  }
  switch (message.type) {
    case MessageType::kHeartbeat: {
      const std::lock_guard lock(peer.hearing);
      peer.pulse = {.entered = message.entered, .waits_for = message.waits_for};
      return;
    }
    case MessageType::kBell:
      options_.on_wake();
      return;
    case MessageType::kAbort:
      options_.on_fault(
          {.code = message.code, .reason = message.reason.data(), .suspect = message.suspect});
      return;
    case MessageType::kBye:
      peer.left = true;
      options_.on_wake();
      return;
  }
}

}  // namespace lockstep
