#include "agent/comm/former.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "agent/comm/inbound.h"
#include "agent/comm/pending.h"

namespace lockstep::comm {
namespace {

constexpr Duration kRetryMin = std::chrono::milliseconds(2);
constexpr Duration kRetryMax = std::chrono::milliseconds(250);
// The first attempt's limit. A SYN that the other side drops, because its queue is full, is sent
// again after a second; another connection is faster.
constexpr Duration kConnectLimit = std::chrono::milliseconds(500);

// A connection that this rank makes, and retries until it is established.
struct Dial {
  Handshake::Target target;
  std::optional<Pending> attempt;
  TimePoint next{};
  Duration backoff = kRetryMin;
  Duration connect_limit = kConnectLimit;  // doubles with each attempt that had no answer
  std::string failure = "no answer yet";
  std::string answer;  // of a rank; tells more than a later failure to connect
  bool made = false;
};

class Former {
 public:
  explicit Former(FormOptions options)
      : options_(std::move(options)),
        inbound_({.self = &options_.self,
                  .listener = std::move(options_.listener),
                  .ranks = options_.addresses.size(),
                  .handshake_limit = options_.handshake_limit,
                  .clock = options_.clock,
                  .nonce = options_.nonce,
                  .on_made = [this](Pending& pending) { keep(pending); }}) {
    const size_t size = options_.addresses.size();
    made_.control.resize(size);
    made_.data.resize(size);
    for (uint32_t peer = 0; peer < options_.self.rank; ++peer) {
      dials_.push_back({.target = {peer, Channel::kControl}});
      if (options_.wants_data[peer]) dials_.push_back({.target = {peer, Channel::kData}});
    }
  }

  Result<Connections> run() {
    while (!complete()) {
      if (now() >= options_.deadline) return timed_out(missing(), Blame::kPeer);
      TRY(dial());
      poll_once();
      TRY(advance_dials());
      TRY(inbound_.advance_all());
      TRY(inbound_.accept_some());
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
      const Digest nonce = options_.nonce();
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
                  .until = now() + std::min(dial.connect_limit, options_.handshake_limit),
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
    std::vector<pollfd> polled{{.fd = inbound_.listener(), .events = POLLIN, .revents = 0}};
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
    inbound_.for_each(watch);
    const Duration rest = std::max<Duration>(next - now(), Duration::zero());
    const auto rest_ms = std::chrono::ceil<std::chrono::milliseconds>(rest).count();
    ::poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(rest_ms, 60'000)));
    for (size_t i = 1; i < polled.size(); ++i) watched[i]->ready = polled[i].revents != 0;
  }

  Status advance_dials() {
    for (Dial& dial : dials_) {
      if (!dial.attempt) continue;
      const bool was_connecting = dial.attempt->connecting;
      const auto advanced = advance(*dial.attempt);
      if (was_connecting && !dial.attempt->connecting) {
        dial.attempt->until = now() + options_.handshake_limit;
      }
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
        if (was_connecting) dial.connect_limit *= 2;
        postpone(dial, was_connecting ? "no answer" : "handshake timed out");
      }
    }
    return {};
  }

  void keep(Pending& pending) {
    auto& kept = pending.handshake.channel() == Channel::kControl ? made_.control : made_.data;
    kept[pending.handshake.peer()] = {std::move(pending.fd), pending.handshake.secrets()};
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
    if (inbound_.refusals() > 0) {
      add("refused " + std::to_string(inbound_.refusals()) +
          " connections, the last: " + inbound_.last_refusal());
    }
    return text;
  }

  FormOptions options_;
  Connections made_;
  std::vector<Dial> dials_;
  Inbound inbound_;
};

}  // namespace

Result<Connections> form_connections(FormOptions options) {
  return Former(std::move(options)).run();
}

}  // namespace lockstep::comm
