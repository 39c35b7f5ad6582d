#include "tests/agent/rpc/raw_client.h"

#include <poll.h>

#include <cstring>

#include "agent/comm/pending.h"
#include "common/base/check.h"
#include "tests/agent/rpc/support.h"

namespace lockstep::test {
namespace {

constexpr int kPatienceMs = 20'000;

void wait_for(int fd, short events) {
  pollfd polled{.fd = fd, .events = events, .revents = 0};
  ::poll(&polled, 1, kPatienceMs);
}

}  // namespace

RawClient::RawClient(int port, uint32_t rank) {
  auto fd = comm::begin_connect({.host = "127.0.0.1", .port = port});
  CHECK(fd.ok());
  const comm::Identity self = rpc_identity(rank);
  comm::Pending pending{.fd = std::move(*fd),
                        .handshake = comm::Handshake::client(
                            self, random_nonce(), {.rank = 3, .channel = comm::Channel::kCalls}),
                        .connecting = true};
  wait_for(pending.fd.get(), POLLOUT);
  for (;;) {
    pending.ready = true;
    const auto advanced = comm::advance(pending);
    CHECK(advanced.ok());
    if (*advanced == comm::Advance::kDone) break;
    wait_for(pending.fd.get(), POLLIN);
  }
  fd_ = std::move(pending.fd);
}

void RawClient::say_bytes(rpc::Bytes bytes) {
  while (!bytes.empty()) {
    const auto sent = comm::send_some(fd_.get(), {bytes});
    if (!sent.ok()) return;
    bytes = bytes.subspan(*sent);
    if (*sent == 0) wait_for(fd_.get(), POLLOUT);
  }
}

void RawClient::say(const rpc::FrameHeader& header, rpc::Bytes payload) {
  rpc::FrameHeader whole = header;
  whole.bytes = static_cast<uint32_t>(payload.size());
  std::vector<std::byte> bytes(sizeof whole + payload.size() + rpc::padding_of(payload.size()));
  std::memcpy(bytes.data(), &whole, sizeof whole);
  if (!payload.empty()) std::memcpy(bytes.data() + sizeof whole, payload.data(), payload.size());
  say_bytes(bytes);
}

void RawClient::open(uint64_t client, uint32_t session) {
  const rpc::Opening opening{.client = client, .session = session};
  say({.kind = rpc::FrameKind::kOpen}, value_bytes(opening));
}

bool RawClient::receive(std::span<std::byte> into) {
  while (!into.empty()) {
    wait_for(fd_.get(), POLLIN);
    const auto got = comm::receive_some(fd_.get(), into);
    if (!got.ok()) return false;
    CHECK(*got > 0);  // else the server says nothing for too long
    into = into.subspan(*got);
  }
  return true;
}

std::vector<RawClient::Heard> RawClient::hear() {
  for (;;) {
    Heard heard;
    if (!receive(std::as_writable_bytes(std::span(&heard.header, 1)))) return {};
    heard.payload.resize(heard.header.bytes + rpc::padding_of(heard.header.bytes));
    if (!receive(heard.payload)) return {};
    heard.payload.resize(heard.header.bytes);
    if (heard.header.kind != rpc::FrameKind::kPing) return {heard};
  }
}

bool RawClient::is_ended() {
  while (!hear().empty()) continue;
  return true;
}

}  // namespace lockstep::test
