// Frames out and in, without sockets: what an outbox writes, an inbox reads; everything else is
// refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "agent/rpc/inbox.h"
#include "agent/rpc/outbox.h"
#include "common/base/random.h"
#include "tests/agent/comm/memory_link.h"

namespace lockstep::rpc {
namespace {

constexpr uint32_t kFrameMax = 1000;

// Keeps every message.
class Keeper final : public FrameSink {
 public:
  Status on_control(const FrameHeader& header, Bytes) override {
    controls.push_back(header);
    return {};
  }
  Result<InMessage*> on_message(const FrameHeader& header, Bytes head) override {
    Kept& kept = messages.emplace_back();
    kept.header = header;
    kept.head.assign(head.begin(), head.end());
    kept.body.resize(header.code != 0 ? 0 : header.total - header.head_bytes);
    kept.in.into = {kept.body};
    return &kept.in;
  }
  Status on_complete(InMessage& message) override {
    of(message).is_complete = true;
    return {};
  }
  Status on_aborted(InMessage& message) override {
    of(message).is_aborted = true;
    return {};
  }
  const PeerSegment* segment(uint32_t) const override { return nullptr; }

  struct Kept {
    FrameHeader header;
    std::vector<std::byte> head;
    std::vector<std::byte> body;
    InMessage in;
    bool is_complete = false;
    bool is_aborted = false;
  };
  Kept& of(InMessage& message) {
    for (Kept& kept : messages) {
      if (&kept.in == &message) return kept;
    }
    CHECK(false);
    return messages.front();
  }
  std::deque<Kept> messages;
  std::vector<FrameHeader> controls;
};

Limits limits() {
  Limits made;
  made.frame_bytes_max = kFrameMax;
  return made;
}

// Reads the stream, which arrives `step` bytes at a time.
Status read_all(Bytes stream, size_t step, Keeper& keeper, Side sender = Side::kClient) {
  const Limits bounds = limits();
  test::MemoryLink link(1, stream);
  Inbox inbox({.sender = sender, .limits = &bounds});
  while (!link.all_arrived()) {
    link.arrive(step);
    for (;;) {
      TRY_ASSIGN(const bool more, inbox.receive(link, keeper, 5000));
      if (!more) break;
    }
  }
  return {};
}

FrameHeader request(uint64_t call, size_t head, size_t body) {
  return {.kind = FrameKind::kRequest,
          .head_bytes = static_cast<uint16_t>(head),
          .call = call,
          .total = head + body};
}

std::vector<std::byte> noise(Random& random, size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (std::byte& each : made) each = static_cast<std::byte>(random.next_u32());
  return made;
}

TEST(RpcStream, CarriesMessagesOfAnyCutInAnySteps) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::deque<OutMessage> messages(1 + random.below(6));
    std::deque<std::vector<std::byte>> memory;
    Outbox outbox(kFrameMax);
    for (uint64_t i = 0; i < messages.size(); ++i) {
      OutMessage& message = messages[i];
      message.head = noise(random, random.below(kHeadMax + 1));
      uint64_t body = 0;
      for (uint64_t part = random.below(5); part > 0; --part) {
        memory.push_back(noise(random, 1 + random.below(random.below(2) == 0 ? 100 : 60'000)));
        message.body.push_back(memory.back());
        body += memory.back().size();
      }
      message.header = request(i + 1, message.head.size(), body);
      outbox.add(&message);
    }
    outbox.add_control({.kind = FrameKind::kPing});
    test::MemoryLink link(1, {});
    const auto flushed = outbox.flush(link, SIZE_MAX);
    ASSERT_TRUE(flushed.ok() && *flushed && outbox.is_empty());
    EXPECT_EQ(outbox.sent().size(), messages.size());
    EXPECT_EQ(link.heard().size() % kFrameAlign, 0u);
    Keeper keeper;
    ASSERT_TRUE(read_all(link.heard(), 1 + random.below(3000), keeper).ok());
    ASSERT_EQ(keeper.messages.size(), messages.size());
    EXPECT_EQ(keeper.controls.size(), 1u);
    for (const Keeper::Kept& kept : keeper.messages) {
      EXPECT_TRUE(kept.is_complete);
      const OutMessage& sent = messages[kept.header.call - 1];
      EXPECT_EQ(kept.head, sent.head);
      std::vector<std::byte> body;
      for (const Bytes part : sent.body) body.insert(body.end(), part.begin(), part.end());
      EXPECT_EQ(kept.body, body);
    }
  }
}

// Takes a limited number of bytes, then nothing.
class NarrowLink final : public comm::Link {
 public:
  NarrowLink() : comm::Link(1) {}
  void open(size_t bytes) { room_ += bytes; }
  std::vector<std::byte> heard;
  Result<size_t> write(std::initializer_list<comm::Bytes> parts) override {
    size_t taken = 0;
    for (comm::Bytes part : parts) {
      part = part.first(std::min(part.size(), room_));
      heard.insert(heard.end(), part.begin(), part.end());
      taken += part.size();
      room_ -= part.size();
    }
    return taken;
  }
  Result<comm::Bytes> peek(Want) override { return comm::Bytes{}; }
  void consume(size_t) override {}
  Result<size_t> read(std::span<std::byte>) override { return size_t{0}; }
  std::string describe() const override { return "narrow"; }

 private:
  size_t room_ = 0;
};

TEST(RpcStream, GivesAMessageUpAtAnyByte) {
  for (size_t room = 0; room < 45'000; room += 997) {
    SCOPED_TRACE(room);
    OutMessage given_up;
    std::vector<std::byte> memory(40'000, std::byte{7});
    given_up.header = request(1, 0, memory.size());
    given_up.body = {memory};
    OutMessage other;
    other.header = request(2, 5, 0);
    other.head.assign(5, std::byte{1});
    Outbox outbox(kFrameMax);
    outbox.add(&given_up);
    NarrowLink link;
    link.open(room);
    ASSERT_TRUE(outbox.flush(link, SIZE_MAX).ok());
    const bool was_sent = !given_up.is_queued;
    const bool had_begun = given_up.has_begun;
    outbox.drop(&given_up);
    std::fill(memory.begin(), memory.end(), std::byte{9});  // it is its owner's again
    outbox.add(&other);
    link.open(100'000);
    ASSERT_TRUE(outbox.flush(link, SIZE_MAX).ok());
    EXPECT_TRUE(outbox.is_empty());
    Keeper keeper;
    ASSERT_TRUE(read_all(link.heard, 777, keeper).ok());
    ASSERT_EQ(keeper.messages.size(), had_begun ? 2u : 1u);
    EXPECT_TRUE(keeper.messages.back().is_complete);
    EXPECT_EQ(keeper.messages.back().header.call, 2u);
    if (had_begun) {
      EXPECT_EQ(keeper.messages.front().is_aborted, !was_sent);
    }
    for (const std::byte each : keeper.messages.front().body) EXPECT_NE(each, std::byte{9});
  }
}

struct Refused {
  const char* name;
  FrameHeader header;
  std::string why;
};

std::vector<std::byte> frame(const FrameHeader& header, size_t payload) {
  std::vector<std::byte> bytes(sizeof header + payload + padding_of(payload));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

TEST(RpcStream, RefusesFramesThatNoClientSends) {
  FrameHeader wrong_magic;
  wrong_magic.magic = 17;
  const Refused cases[] = {
      {"magic", wrong_magic, "not a frame of remote calls"},
      {"kind", {.kind = FrameKind{99}}, "a wrong kind, 99"},
      {"reply", {.kind = FrameKind::kReply}, "a wrong kind, 5"},
      {"payload of a ping", {.kind = FrameKind::kPing, .bytes = 1}, "expected at most 0, got 1"},
      {"long head",
       {.kind = FrameKind::kRequest, .head_bytes = 1025, .total = 2000, .bytes = 1025},
       "a head that is too long: expected at most 1024, got 1025"},
      {"cut head",
       {.kind = FrameKind::kRequest, .head_bytes = 10, .total = 20, .bytes = 9},
       "whose head is cut"},
      {"small total",
       {.kind = FrameKind::kRequest, .head_bytes = 10, .total = 9, .bytes = 10},
       "whose head is cut"},
      {"more than total",
       {.kind = FrameKind::kRequest, .total = 9, .bytes = 10},
       "a frame: expected at most 9, got 10"},
      {"long frame",
       {.kind = FrameKind::kRequest, .total = 5000, .bytes = 2025},
       "a frame that is too long: expected at most 2024, got 2025"},
      {"many pieces",
       {.kind = FrameKind::kRequest, .total = 9, .bytes = 16, .pieces = 65},
       "a list of pieces: expected at most 64, got 65"},
      {"cut pieces",
       {.kind = FrameKind::kRequest, .total = 9, .bytes = 16, .pieces = 1},
       "a wrong list of pieces"},
      {"unknown piece", {.kind = FrameKind::kMore, .call = 3, .bytes = 5}, "has not begun"},
      {"empty piece", {.kind = FrameKind::kMore, .call = 3}, "an empty piece"},
      {"unknown abort", {.kind = FrameKind::kAbort, .call = 3}, "has not begun"},
      {"short opening", {.kind = FrameKind::kOpen, .bytes = 64}, "an opening of a wrong size"},
      {"error",
       {.kind = FrameKind::kRequest, .code = 8, .total = 1, .bytes = 1},
       "an unknown code: expected at most 7, got 8"},
      {"error with a head",
       {.kind = FrameKind::kRequest, .code = 1, .head_bytes = 1, .total = 1, .bytes = 1},
       "more than a text"},
      {"long error",
       {.kind = FrameKind::kRequest, .code = 1, .total = 1025, .bytes = 1025},
       "an error that is too long: expected at most 1024, got 1025"},
  };
  for (const Refused& refused : cases) {
    SCOPED_TRACE(refused.name);
    std::vector<std::byte> stream = frame({}, 0);  // one that is right
    const std::vector<std::byte> bad = frame(refused.header, refused.header.bytes);
    stream.insert(stream.end(), bad.begin(), bad.end());
    Keeper keeper;
    const Status read = read_all(stream, 10'000, keeper);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Code::kCorrupt);
    EXPECT_NE(read.error().message.find(refused.why), std::string::npos) << read.error().message;
    EXPECT_NE(read.error().message.find(", at byte 64 of its stream"), std::string::npos);
  }
}

TEST(RpcStream, RefusesPiecesThatDoNotFitTheirMessage) {
  const FrameHeader first{.kind = FrameKind::kRequest, .call = 1, .total = 20, .bytes = 10};
  const FrameHeader again{.kind = FrameKind::kMore, .call = 1, .bytes = 11};
  for (const FrameHeader& second : {again, first}) {
    std::vector<std::byte> stream = frame(first, 10);
    const std::vector<std::byte> bad = frame(second, second.bytes);
    stream.insert(stream.end(), bad.begin(), bad.end());
    Keeper keeper;
    const Status read = read_all(stream, 10'000, keeper);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Code::kCorrupt);
  }
}

}  // namespace
}  // namespace lockstep::rpc
