#include "agent/comm/former.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "common/base/log.h"

namespace lockstep::comm {
namespace {

constexpr Duration kRetryMin = std::chrono::milliseconds(2);
constexpr Duration kRetryMax = std::chrono::milliseconds(250);
constexpr size_t kRefusalsLogged = 5;

// A connection in the middle of its handshake.
struct Pending {
  UniqueFd fd;
  std::string from;  // the other end, for messages
  Handshake handshake;
  TimePoint until{};
  bool connecting = false;
  bool ready = false;     // poll reports it, or it is new and may have input
  bool answered = false;  // with a message that ends the handshake
  std::array<std::byte, 256> input{};
  size_t input_bytes = 0;
};

// A connection that this rank makes, and retries until it is established.
struct Dial {
  Handshake::Target target;
  std::optional<Pending> attempt;
  TimePoint next{};
  Duration backoff = kRetryMin;
  std::string failure = "no answer yet";
  std::string answer;  // of a rank; tells more than a later failure to connect
  bool made = false;
};

enum class Advance { kWaiting, kDone };

Result<Advance> flush(Pending& pending) {
  while (!pending.handshake.output().empty()) {
    const auto output = pending.handshake.output();
    const ssize_t n = ::send(pending.fd.get(), output.data(), output.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Advance::kWaiting;
    if (n <= 0) return unavailable(std::strerror(errno));
    pending.handshake.sent(static_cast<size_t>(n));
  }
  return pending.handshake.done() ? Advance::kDone : Advance::kWaiting;
}

// Does nothing if poll reported nothing. Otherwise reads exactly what the handshake wants, answers,
// and goes on while there is more.
Result<Advance> advance(Pending& pending) {
  if (!std::exchange(pending.ready, false)) return Advance::kWaiting;
  if (pending.connecting) {
    TRY(connect_outcome(pending.fd.get()));
    pending.connecting = false;
  }
  for (;;) {
    TRY_ASSIGN(const Advance sent, flush(pending));
    if (sent == Advance::kDone || pending.handshake.wanted() == 0) return sent;
    const size_t missing = pending.handshake.wanted() - pending.input_bytes;
    const ssize_t n =
        ::recv(pending.fd.get(), pending.input.data() + pending.input_bytes, missing, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Advance::kWaiting;
    if (n < 0) return unavailable(std::strerror(errno));
    if (n == 0) return unavailable("connection closed during the handshake");
    pending.input_bytes += static_cast<size_t>(n);
    if (pending.input_bytes < pending.handshake.wanted()) continue;
    const Status taken =
        pending.handshake.received(std::span(pending.input).first(pending.input_bytes));
    pending.input_bytes = 0;
    if (!taken.ok()) {
      pending.answered = true;
      static_cast<void>(flush(pending));  // tells the other side why, if that needs no waiting
      return taken.error();
    }
  }
}

class Former {
 public:
  explicit Former(FormOptions options) : options_(std::move(options)) {
    const size_t size = options_.addresses.size();
    made_.control.resize(size);
    made_.data.resize(size);
    for (uint32_t peer = 0; peer < options_.self.rank; ++peer) {
      dials_.push_back({.target = {peer, Channel::kControl}});
      if (options_.wants_data[peer]) dials_.push_back({.target = {peer, Channel::kData}});
    }
    slots_ = 2 * size + 16;
  }

  Result<Connections> run() {
    while (!complete()) {
      if (now() >= options_.deadline) return timed_out(missing(), Blame::kPeer);
      TRY(dial());
      poll_once();
      TRY(advance_dials());
      TRY(accept_inbound());
      TRY(advance_inbound());
    }
    return std::move(made_);
  }

 private:
  TimePoint now() const { return options_.clock->now(); }

  std::string rank_at(uint32_t rank) const {
    return "rank " + std::to_string(rank) + " at " + to_string(options_.addresses[rank]);
  }

  bool complete() const {
    for (size_t peer = 0; peer < made_.control.size(); ++peer) {
      if (peer == options_.self.rank) continue;
      if (!made_.control[peer] || (options_.wants_data[peer] && !made_.data[peer])) return false;
    }
    return true;
  }

  Status dial() {
    for (Dial& dial : dials_) {
      if (dial.made || dial.attempt || now() < dial.next) continue;
      TRY_ASSIGN(const Digest nonce, options_.nonce());
      auto fd = begin_connect(options_.addresses[dial.target.rank]);
      if (!fd.ok()) {
        if (fd.error().code == Code::kInvalid) return fd.error();
        postpone(dial, fd.error().message);
        continue;
      }
      tune_stream(fd->get());
      dial.attempt.emplace(
          Pending{.fd = std::move(*fd),
                  .from = rank_at(dial.target.rank),
                  .handshake = Handshake::client(options_.self, nonce, dial.target),
                  .until = now() + options_.handshake_limit,
                  .connecting = true});
    }
    return {};
  }

  void postpone(Dial& dial, const std::string& why) {
    dial.failure = why;
    dial.attempt.reset();
    dial.next = now() + dial.backoff;
    dial.backoff = std::min(kRetryMax, dial.backoff * 2);
  }

  void poll_once() {
    std::vector<pollfd> polled{{.fd = options_.listener.get(), .events = POLLIN, .revents = 0}};
    std::vector<Pending*> watched{nullptr};
    TimePoint next = options_.deadline;
    const auto watch = [&](Pending& pending) {
      const bool writes = pending.connecting || !pending.handshake.output().empty();
      const auto events = static_cast<short>(writes ? POLLOUT : POLLIN);
      polled.push_back({.fd = pending.fd.get(), .events = events, .revents = 0});
      watched.push_back(&pending);
      next = std::min(next, pending.until);
    };
    for (Dial& dial : dials_) {
      if (dial.attempt) watch(*dial.attempt);
      if (!dial.made && !dial.attempt) next = std::min(next, dial.next);
    }
    for (Pending& pending : inbound_) watch(pending);
    const Duration rest = std::max<Duration>(next - now(), Duration::zero());
    const auto rest_ms = std::chrono::ceil<std::chrono::milliseconds>(rest).count();
    ::poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(rest_ms, 60'000)));
    for (size_t i = 1; i < polled.size(); ++i) watched[i]->ready = polled[i].revents != 0;
  }

  Status advance_dials() {
    for (Dial& dial : dials_) {
      if (!dial.attempt) continue;
      const auto advanced = advance(*dial.attempt);
      if (!advanced.ok()) {
        if (advanced.error().code == Code::kConflict) {
          return conflict("[comm] forming: " + advanced.error().message, Blame::kPeer);
        }
        if (dial.attempt->answered) dial.answer = advanced.error().message;
        postpone(dial, advanced.error().message);
      } else if (*advanced == Advance::kDone) {
        dial.made = true;
        keep(*dial.attempt);
        dial.attempt.reset();
      } else if (dial.attempt->handshake.awaits_welcome()) {
        // The other side may count it as established: make no second connection.
        dial.attempt->until = options_.deadline;
      } else if (now() >= dial.attempt->until) {
        postpone(dial, "handshake timed out");
      }
    }
    return {};
  }

  void evict_oldest_inbound() {
    refuse(inbound_.front(), "evicted by later connections");
    inbound_.erase(inbound_.begin());
  }

  // Accepts at most one connection per slot in a row, so that accepted ones are served too.
  Status accept_inbound() {
    for (size_t taken = 0; taken < slots_; ++taken) {
      auto accepted = accept_one(options_.listener.get());
      if (!accepted.ok() && !inbound_.empty()) {
        // They may hold the descriptors.
        evict_oldest_inbound();
        continue;
      }
      if (!accepted.ok()) return accepted.error();
      if (!accepted->fd) return {};
      tune_stream(accepted->fd.get());
      if (inbound_.size() >= slots_) evict_oldest_inbound();
      TRY_ASSIGN(const Digest nonce, options_.nonce());
      inbound_.push_back({.fd = std::move(accepted->fd),
                          .from = accepted->from,
                          .handshake = Handshake::server(options_.self, nonce),
                          .until = now() + options_.handshake_limit,
                          .ready = true});
    }
    return {};
  }

  Status advance_inbound() {
    for (size_t i = 0; i < inbound_.size();) {
      Pending& pending = inbound_[i];
      const auto advanced = advance(pending);
      const bool waits = advanced.ok() && *advanced == Advance::kWaiting;
      if (waits && now() < pending.until) {
        ++i;
        continue;
      }
      if (!advanced.ok()) {
        if (advanced.error().code == Code::kConflict) {
          return conflict("[comm] forming: " + advanced.error().message, Blame::kPeer);
        }
        refuse(pending, advanced.error().message);
      } else if (waits) {
        refuse(pending, "handshake timed out");
      } else {
        keep(pending);
      }
      inbound_.erase(inbound_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return {};
  }

  void keep(Pending& pending) {
    auto& kept = pending.handshake.channel() == Channel::kControl ? made_.control : made_.data;
    kept[pending.handshake.peer()] = std::move(pending.fd);
  }

  void refuse(const Pending& pending, const std::string& why) {
    last_refusal_ = why + " from " + pending.from;
    if (++refusals_ > kRefusalsLogged) return;
    log_warning("comm refused a connection",
                {{"rank", options_.self.rank}, {"from", pending.from}, {"why", why}});
  }

  static std::string before(const Dial& dial) {
    const bool is_news = !dial.answer.empty() && dial.answer != dial.failure;
    return is_news ? ", earlier: " + dial.answer : "";
  }

  std::string missing() const {
    std::string text = "[comm] forming: ";
    bool first = true;
    const auto add = [&](const std::string& part) {
      text += (first ? "" : "; ") + part;
      first = false;
    };
    for (uint32_t peer = 0; peer < made_.control.size(); ++peer) {
      if (peer == options_.self.rank || made_.control[peer]) continue;
      if (peer > options_.self.rank) {
        add("rank " + std::to_string(peer) + " has not connected");
        continue;
      }
      const auto dial = std::find_if(dials_.begin(), dials_.end(), [&](const Dial& candidate) {
        return candidate.target.rank == peer;
      });
      add("no connection to " + rank_at(peer) + " (" + dial->failure + before(*dial) + ")");
    }
    if (first) add("data connections are missing");
    if (refusals_ > 0) {
      add("refused " + std::to_string(refusals_) + " connections, the last: " + last_refusal_);
    }
    return text;
  }

  FormOptions options_;
  Connections made_;
  std::vector<Dial> dials_;
  std::vector<Pending> inbound_;
  size_t slots_ = 0;
  size_t refusals_ = 0;
  std::string last_refusal_;
};

}  // namespace

Result<Connections> form_connections(FormOptions options) {
  return Former(std::move(options)).run();
}

}  // namespace lockstep::comm
