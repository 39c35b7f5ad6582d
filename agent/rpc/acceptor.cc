#include "agent/rpc/acceptor.h"

#include <poll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "agent/comm/pending.h"
#include "common/base/log.h"

namespace lockstep::rpc {

Result<std::unique_ptr<Acceptor>> Acceptor::start(Options options) {
  TRY_ASSIGN(comm::UniqueFd event, comm::make_event_fd());
  std::unique_ptr<Acceptor> acceptor(new Acceptor(std::move(options), std::move(event)));
  acceptor->thread_ = std::thread([self = acceptor.get()] { self->run(); });
  return acceptor;
}

Acceptor::Acceptor(Options options, comm::UniqueFd event)
    : clock_(options.clock),
      event_(std::move(event)),
      inbound_({.self = options.self,
                .serves = comm::Serves::kCalls,
                .listener = std::move(options.listener),
                .ranks = options.self->size + options.self->later_ranks,
                .handshake_limit = options.handshake_limit,
                .clock = options.clock,
                .nonce = std::move(options.nonce),
                .on_made = [admit = std::move(options.admit)](comm::Pending& pending) {
                  admit({.rank = pending.handshake.peer(),
                         .from = pending.from,
                         .fd = std::move(pending.fd),
                         .secrets = pending.handshake.secrets()});
                }}) {}

Acceptor::~Acceptor() {
  stops_.store(true);
  comm::signal_event(event_.get());
  thread_.join();
}

void Acceptor::run() {
  while (!stops_.load()) {
    wait();
    // A client of another round cannot be served, which is its problem alone.
    const Status advanced = inbound_.advance_all();
    if (!advanced.ok()) log_warning("a client was refused", {{"why", advanced.error().message}});
    const Status accepted = inbound_.accept_some();
    if (accepted.ok()) continue;
    log_warning("no connection can be accepted", {{"why", accepted.error().message}});
    pollfd event{.fd = event_.get(), .events = POLLIN, .revents = 0};
    ::poll(&event, 1, 100);
  }
}

void Acceptor::wait() {
  std::vector<pollfd> polled{{.fd = event_.get(), .events = POLLIN, .revents = 0},
                             {.fd = inbound_.listener(), .events = POLLIN, .revents = 0}};
  std::vector<comm::Pending*> watched{nullptr, nullptr};
  const TimePoint now = clock_->now();
  TimePoint next = now + std::chrono::minutes(1);
  inbound_.for_each([&](comm::Pending& pending) {
    const bool writes = !pending.handshake.output().empty();
    const auto events = static_cast<short>(writes ? POLLOUT : POLLIN);
    polled.push_back({.fd = pending.fd.get(), .events = events, .revents = 0});
    watched.push_back(&pending);
    next = std::min(next, pending.until);
  });
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(
      std::max<Duration>(next - now, Duration::zero()));
  ::poll(polled.data(), polled.size(), static_cast<int>(rest.count()));
  for (size_t i = 2; i < polled.size(); ++i) watched[i]->ready = polled[i].revents != 0;
}

}  // namespace lockstep::rpc
