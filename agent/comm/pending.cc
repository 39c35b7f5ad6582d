#include "agent/comm/pending.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

namespace lockstep::comm {
namespace {

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

}  // namespace

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

}  // namespace lockstep::comm
