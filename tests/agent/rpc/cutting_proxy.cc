#include "tests/agent/rpc/cutting_proxy.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "common/base/check.h"
#include "common/base/random.h"

namespace lockstep::test {

CuttingProxy::CuttingProxy(const Options& options) : options_(options) {
  const auto fd = comm::listen_on("127.0.0.1", 0);
  CHECK(fd.ok());
  listener_ = comm::UniqueFd(*fd);
  port_ = *comm::port_of(*fd);
  thread_ = std::thread([this] { run(); });
}

CuttingProxy::~CuttingProxy() {
  stops_ = true;
  thread_.join();
}

void CuttingProxy::run() {
  Random random(options_.seed);
  while (!stops_) {
    pollfd polled{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    ::poll(&polled, 1, 10);
    auto accepted = comm::accept_one(listener_.get());
    if (!accepted.ok() || !accepted->fd) continue;
    carry(std::move(accepted->fd),
          options_.bytes_min + random.below(options_.bytes_max - options_.bytes_min + 1));
  }
}

// One connection at a time: a client makes the next one once this one is cut.
void CuttingProxy::carry(comm::UniqueFd from, uint64_t bytes) {
  auto to = comm::begin_connect({.host = "127.0.0.1", .port = options_.target_port});
  if (!to.ok()) return;
  pollfd connects{.fd = to->get(), .events = POLLOUT, .revents = 0};
  ::poll(&connects, 1, 10'000);
  const std::array<int, 2> ends{from.get(), to->get()};
  std::array<std::vector<std::byte>, 2> waiting;  // for the other end
  std::vector<std::byte> buffer(size_t{64} << 10);
  while (!stops_ && (bytes > 0 || heals_)) {
    std::array<pollfd, 2> polled{};
    for (size_t i = 0; i < 2; ++i) {
      const auto reads = static_cast<short>(waiting[i].empty() ? POLLIN : 0);
      const auto writes = static_cast<short>(waiting[1 - i].empty() ? 0 : POLLOUT);
      polled[i] = {.fd = ends[i], .events = static_cast<short>(reads | writes), .revents = 0};
    }
    ::poll(polled.data(), polled.size(), 10);
    for (size_t i = 0; i < 2; ++i) {
      if (waiting[i].empty()) {
        const uint64_t most = heals_ ? buffer.size() : std::min<uint64_t>(bytes, buffer.size());
        if (most == 0) break;
        const auto got = comm::receive_some(ends[i], std::span(buffer).first(most));
        if (!got.ok()) return;
        waiting[i].assign(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*got));
        bytes -= std::min<uint64_t>(bytes, *got);
      }
      if (waiting[i].empty()) continue;
      const auto sent = comm::send_some(ends[1 - i], {waiting[i]});
      if (!sent.ok()) return;
      waiting[i].erase(waiting[i].begin(), waiting[i].begin() + static_cast<std::ptrdiff_t>(*sent));
    }
  }
  ++cuts_;
}

}  // namespace lockstep::test
