// Input that a rank reads from another rank: handshakes with changed bytes or garbage from the
// start, frames, and control messages, in pieces of any size.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "agent/comm/control_message.h"
#include "agent/comm/handshake.h"
#include "agent/comm/port.h"
#include "common/base/check.h"
#include "tests/agent/comm/memory_link.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

comm::Identity identity(uint32_t rank) {
  return {.rank = rank,
          .size = 3,
          .round = 7,
          .job = sha256("job"),
          .world = sha256("world"),
          .key = "secret"};
}

std::vector<std::byte> take_output(comm::Handshake& handshake) {
  const comm::Bytes output = handshake.output();
  std::vector<std::byte> bytes(output.begin(), output.end());
  handshake.sent(bytes.size());
  return bytes;
}

// A handshake of two sides that know the key. Three bytes of the input say which message to change,
// where and how. A side that receives a changed message never completes.
void shake_hands(comm::Bytes input) {
  const comm::Identity high = identity(2);
  const comm::Identity low = identity(1);
  comm::Handshake client = comm::Handshake::client(high, sha256("a"), {1, comm::Channel::kData});
  comm::Handshake server = comm::Handshake::server(low, sha256("b"));
  comm::Handshake* const hearers[] = {&server, &client, &server, &client};
  comm::Handshake* speaker = &client;
  bool changed = false;
  for (size_t message = 0; message < std::size(hearers); ++message) {
    comm::Handshake& hearer = *hearers[message];
    std::vector<std::byte> bytes = take_output(*speaker);
    if (bytes.size() != hearer.wanted()) break;
    const std::vector<std::byte> said = bytes;
    for (size_t at = 0; at + 3 <= input.size(); at += 3) {
      if (static_cast<size_t>(input[at]) % std::size(hearers) != message) continue;
      bytes[static_cast<size_t>(input[at + 1]) % bytes.size()] ^= input[at + 2];
    }
    changed = changed || bytes != said;
    const Status heard = hearer.received(bytes);
    if (changed) CHECK(!hearer.done() && (!heard.ok() || message < 2));
    if (!heard.ok()) return;
    speaker = &hearer;
  }
  CHECK(changed || (client.done() && server.done()));
}

void hear_garbage(comm::Bytes input) {
  const comm::Identity self = identity(1);
  comm::Handshake handshake = comm::Handshake::server(self, sha256("b"));
  while (handshake.wanted() > 0 && input.size() >= handshake.wanted()) {
    const comm::Bytes message = input.first(handshake.wanted());
    input = input.subspan(handshake.wanted());
    if (!handshake.received(message).ok()) break;
    take_output(handshake);
  }
  CHECK(!handshake.done());
}

constexpr comm::CommLimits kLimits{
    .window_bytes = 4096, .frame_bytes_max = 1024, .buffered_windows_max = 1};

// A message that this rank expects.
struct Awaited {
  comm::FrameHeader header;
  size_t taken = 0;
};

// Takes the part of the message that has arrived; false if the peer is at fault.
bool take(comm::Port& port, Awaited& awaited, bool& moved) {
  const auto next = port.match_next(awaited.header);
  if (!next.ok()) {
    CHECK(next.error().code == Code::kCorrupt || next.error().code == Code::kConflict);
    return false;
  }
  if (*next != comm::Port::Next::kMatches) return true;
  CHECK(port.left() <= kLimits.frame_bytes_max);
  if (port.left() > awaited.header.total - awaited.taken) return false;
  if (port.left() == 0) {
    moved = true;
    return port.finish_empty().ok();
  }
  std::array<std::byte, 100> into;
  const auto got = port.read(into);
  CHECK(got.ok());
  awaited.taken += *got;
  moved = moved || *got > 0;
  return true;
}

// The first byte says how many bytes arrive at a time.
void hear_frames(comm::Bytes input) {
  if (input.empty()) return;
  const size_t step = 1 + static_cast<size_t>(input[0]);
  test::MemoryLink link(1, input.subspan(1));
  comm::Port port(&link, {.limits = kLimits});
  std::array<Awaited, 2> messages;
  for (uint64_t i = 0; i < messages.size(); ++i) {
    messages[i].header = {.kind = comm::Collective::kSend,
                          .type = comm::DataType::kI32,
                          .round = 7,
                          .sequence = i + 1,
                          .count = 50,
                          .total = 200};
  }
  for (bool moved = true; moved || !link.all_arrived();) {
    moved = false;
    link.arrive(step);
    for (Awaited& awaited : messages) {
      const bool complete = awaited.taken == awaited.header.total;
      if (!complete && !take(port, awaited, moved)) return;
    }
    const auto credit = port.credit(messages[0].header, 1);
    if (!credit.ok()) return;
    CHECK(*credit >= 1);
    if (moved || !port.in_the_way()) continue;
    const auto aside = port.buffer_frame();
    if (!aside.ok()) return;
    moved = *aside;
  }
}

// The first byte says how many bytes arrive at a time. Every accepted message must be valid.
void hear_control(comm::Bytes input) {
  if (input.empty()) return;
  const size_t step = 1 + static_cast<size_t>(input[0]);
  comm::Bytes left = input.subspan(1);
  comm::ControlReader reader(2);
  while (!left.empty()) {
    const std::span<std::byte> room = reader.room();
    CHECK(!room.empty() && room.size() <= comm::ControlBytes::kMost);
    const size_t n = std::min({step, room.size(), left.size()});
    std::memcpy(room.data(), left.data(), n);
    left = left.subspan(n);
    const auto message = reader.received(n);
    if (!message.ok()) {
      CHECK(message.error().code == Code::kCorrupt);
      continue;
    }
    if (!message->has_value()) continue;
    const comm::Fault& fault = (*message)->fault;
    CHECK(fault.suspect >= -1 && fault.suspect < 2 && fault.reason.size() <= comm::kFaultReasonMax);
    comm::ControlReader again(2);
    const comm::ControlBytes said(**message);
    size_t at = 0;
    Result<std::optional<comm::ControlMessage>> heard = std::optional<comm::ControlMessage>();
    while (at < said.bytes().size()) {
      const std::span<std::byte> rest = again.room();
      std::memcpy(rest.data(), said.bytes().data() + at, rest.size());
      at += rest.size();
      heard = again.received(rest.size());
      CHECK(heard.ok());
    }
    CHECK(heard->has_value() && (*heard)->type == (*message)->type &&
          (*heard)->fault.reason == fault.reason);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const comm::Bytes input = std::as_bytes(std::span(data, size));
  if (input.empty()) return 0;
  const comm::Bytes rest = input.subspan(1);
  switch (data[0] % 4) {
    case 0:
      shake_hands(rest);
      break;
    case 1:
      hear_garbage(rest);
      break;
    case 2:
      hear_frames(rest);
      break;
    case 3:
      hear_control(rest);
      break;
  }
  return 0;
}
