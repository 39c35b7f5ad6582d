// Control connections, and input on them that none of our ranks sends.
#include "agent/comm/control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::comm {
namespace {

using std::chrono::seconds;

struct Ends {
  UniqueFd one;
  UniqueFd other;
};

Ends connected() {
  int pair[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
  return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

// Makes the Control of rank 0 of two, which keeps the first fault; `to_peer` leads to rank 1.
std::unique_ptr<Control> make_control(UniqueFd to_peer, FaultBox* faults) {
  std::vector<UniqueFd> peers(2);
  peers[1] = std::move(to_peer);
  auto made = Control::create({.peers = std::move(peers),
                               .heartbeat = seconds(1),
                               .on_fault = [faults](const Fault& fault) { faults->raise(fault); },
                               .on_wake = [] {},
                               .before_beat = [] { return Control::Pulse(); }});
  EXPECT_TRUE(made.ok());
  return std::move(*made);
}

// Returns the bytes of an announcement.
std::vector<std::byte> announcement(const Fault& fault) {
  Ends ends = connected();
  FaultBox none;
  const auto control = make_control(std::move(ends.one), &none);
  control->announce(fault);
  std::vector<std::byte> bytes(4096);
  const ssize_t got = ::recv(ends.other.get(), bytes.data(), bytes.size(), 0);
  EXPECT_GT(got, 0);
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

// Returns the fault that rank 0 finds in these bytes from rank 1.
Fault fault_of(const std::vector<std::byte>& bytes) {
  Ends ends = connected();
  FaultBox faults;
  const auto control = make_control(std::move(ends.one), &faults);
  control->start();
  // In pieces.
  for (size_t at = 0; at < bytes.size(); at += 100) {
    const size_t piece = std::min<size_t>(100, bytes.size() - at);
    EXPECT_EQ(::send(ends.other.get(), bytes.data() + at, piece, MSG_NOSIGNAL),
              static_cast<ssize_t>(piece));
  }
  EXPECT_TRUE(faults.wait_for(seconds(10)));
  return faults.get();
}

TEST(Control, AFaultArrivesAsItWasAnnounced) {
  const Fault said{.code = Code::kTimeout, .reason = "rank 1 silent for 30 s", .suspect = 1};
  const Fault heard = fault_of(announcement(said));
  EXPECT_EQ(heard.code, said.code);
  EXPECT_EQ(heard.reason, said.reason);
  EXPECT_EQ(heard.suspect, said.suspect);
}

// Every rank receives one from every other rank, and often, so it had better be short.
TEST(Control, OnlyTheWordsOfAFaultTakeTheRoomOfWords) {
  EXPECT_EQ(announcement({.reason = "enough", .suspect = -1}).size(), 512u);
  Ends ends = connected();
  FaultBox none;
  const auto control = make_control(std::move(ends.one), &none);
  for (int bells = 1; bells <= 3; ++bells) {
    control->ring(1);
    std::vector<std::byte> bytes(4096);
    EXPECT_EQ(::recv(ends.other.get(), bytes.data(), bytes.size(), 0), 56);
  }
}

TEST(ControlReader, TakesMessagesHoweverTheyCome) {
  AwaitedRanks waits_for;
  waits_for.add(1);
  const ControlMessage beat{
      .type = ControlMessage::Type::kHeartbeat, .entered = 77, .waits_for = waits_for};
  const ControlMessage abort{
      .type = ControlMessage::Type::kAbort,
      .fault = {
          .code = Code::kTimeout, .reason = std::string(kFaultReasonMax + 9, 'x'), .suspect = 1}};
  std::vector<std::byte> stream;
  for (const ControlMessage* message : {&beat, &abort, &beat}) {
    const ControlBytes made(*message);
    stream.insert(stream.end(), made.bytes().begin(), made.bytes().end());
  }
  for (const size_t step : {size_t{1}, size_t{55}, size_t{57}, size_t{9999}}) {
    ControlReader reader(2);
    std::vector<ControlMessage> heard;
    for (size_t at = 0; at < stream.size();) {
      const size_t n = std::min({step, reader.room().size(), stream.size() - at});
      std::memcpy(reader.room().data(), &stream[at], n);
      const auto message = reader.received(n);
      ASSERT_TRUE(message.ok());
      if (message->has_value()) heard.push_back(**message);
      at += n;
    }
    ASSERT_EQ(heard.size(), 3u) << step;
    EXPECT_EQ(heard[2].entered, 77u);
    EXPECT_EQ(heard[2].waits_for, waits_for);
    EXPECT_EQ(heard[1].fault.code, Code::kTimeout);
    EXPECT_EQ(heard[1].fault.reason, std::string(kFaultReasonMax, 'x'));
    EXPECT_EQ(heard[1].fault.suspect, 1);
  }
}

TEST(Control, WhatNoRankSendsIsNamedAsUnknown) {
  const std::vector<std::byte> sound = announcement({.reason = "enough", .suspect = -1});
  struct Wrong {
    const char* what;
    size_t at;
    int32_t value;
  };
  constexpr Wrong kWrongs[] = {{"magic", 0, 1},   {"type 0", 4, 0},      {"type 99", 4, 99},
                               {"suspect", 8, 2}, {"no suspect", 8, -2}, {"code", 12, 99}};
  for (const Wrong& wrong : kWrongs) {
    std::vector<std::byte> bytes = sound;
    std::memcpy(bytes.data() + wrong.at, &wrong.value, sizeof wrong.value);
    const Fault fault = fault_of(bytes);
    EXPECT_EQ(fault.code, Code::kCorrupt) << wrong.what;
    EXPECT_EQ(fault.reason, "rank 1 sent an unknown control message") << wrong.what;
    EXPECT_EQ(fault.suspect, 1) << wrong.what;
  }
}

}  // namespace
}  // namespace lockstep::comm
