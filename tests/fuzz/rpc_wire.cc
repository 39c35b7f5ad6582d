// Input that a process reads from another one in remote calls: the frames of either side, in pieces
// of any size, and exports of calls.
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "agent/rpc/call_memory.h"
#include "agent/rpc/inbox.h"
#include "common/base/check.h"
#include "tests/agent/comm/memory_link.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

constexpr uint64_t kBodyMax = 4096;

rpc::Limits limits() {
  rpc::Limits made;
  made.frame_bytes_max = 1024;
  return made;
}

// Memory that frames may lend, as if the other side had it.
const rpc::PeerSegment& lent_memory() {
  static const auto memory = rpc::SharedMemory::create(4096);
  CHECK(memory.ok());
  static const auto segment =
      rpc::PeerSegment::map(static_cast<uint64_t>(::getpid()), (*memory)->notice());
  CHECK(segment.ok());
  return *segment;
}

// Takes up to eight messages at a time, as a server does, and checks that each gets what it was
// promised.
class Sink final : public rpc::FrameSink {
 public:
  Status on_control(const rpc::FrameHeader& header, rpc::Bytes payload) override {
    CHECK(!rpc::begins_message(header.kind));
    CHECK(payload.empty() || payload.size() == sizeof(rpc::Opening));
    return {};
  }
  Result<rpc::InMessage*> on_message(const rpc::FrameHeader& header, rpc::Bytes head) override {
    CHECK(head.size() == (header.code != 0 ? header.bytes : header.head_bytes));
    if (under_way_ == 8) return corrupt("has too many calls under way");
    const uint64_t body = header.total - head.size();
    ++under_way_;
    Kept& kept = messages_.emplace_back();
    kept.body = body;
    kept.message.owner = &kept;
    if (body > kBodyMax || body % 3 == 2) {
      kept.message.discards = true;
    } else {
      kept.memory.resize(body);
      kept.message.into = {std::span(kept.memory).first(body / 2),
                           std::span(kept.memory).subspan(body / 2)};
    }
    return &kept.message;
  }
  Status on_complete(rpc::InMessage& message) override {
    CHECK(message.left == 0 || message.discards);
    end(message);
    return {};
  }
  Status on_aborted(rpc::InMessage& message) override {
    end(message);
    return {};
  }
  const rpc::PeerSegment* segment(uint32_t index) const override {
    return index == 1 ? &lent_memory() : nullptr;
  }

 private:
  struct Kept {
    rpc::InMessage message;
    std::vector<std::byte> memory;
    uint64_t body = 0;
    bool is_over = false;
  };
  void end(rpc::InMessage& message) {
    Kept& kept = *static_cast<Kept*>(message.owner);
    CHECK(!kept.is_over);
    kept.is_over = true;
    --under_way_;
  }
  std::deque<Kept> messages_;
  int under_way_ = 0;
};

// The first byte says how many bytes arrive at a time.
void hear_frames(rpc::Bytes input, rpc::Side sender) {
  if (input.empty()) return;
  const size_t step = 1 + static_cast<size_t>(input[0]);
  const rpc::Limits bounds = limits();
  test::MemoryLink link(1, input.subspan(1));
  rpc::Inbox inbox({.sender = sender, .limits = &bounds});
  Sink sink;
  while (!link.all_arrived() || inbox.copies()) {
    link.arrive(step);
    const auto more = inbox.receive(link, sink, 2048);
    if (more.ok()) continue;
    CHECK(more.error().code == Code::kCorrupt);
    CHECK(more.error().message.find(" of its stream") != std::string::npos);
    return;
  }
  while (*inbox.receive(link, sink, 2048)) continue;
}

void import_calls(std::string_view text) {
  rpc::CallMemory memory({.clients_max = 4, .bytes_max = 1 << 16});
  const auto clients = memory.import_from(text);
  if (!clients.ok()) {
    CHECK(memory.clients() == 0);
    return;
  }
  CHECK(memory.clients() <= 4);
  rpc::CallMemory again;
  CHECK(again.import_from(memory.export_all()).ok());
  CHECK(again.bytes() == memory.bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const rpc::Bytes rest = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % 3) {
    case 0:
      hear_frames(rest, rpc::Side::kClient);
      break;
    case 1:
      hear_frames(rest, rpc::Side::kServer);
      break;
    case 2:
      import_calls(fuzz::fuzz_text(data + 1, size - 1));
      break;
  }
  return 0;
}
