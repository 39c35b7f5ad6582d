#include "agent/comm/sealed_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/base/sha256.h"
#include "tests/agent/comm/connected.h"

namespace lockstep::comm {
namespace {

using Text = std::vector<std::byte>;

constexpr std::pair<const char*, const char*> kSecrets{"one way", "the other"};

// Rank 1 writes to rank 0. Tests that change what is on its way have the bytes in their hands.
struct Wire {
  Wire() {
    auto [a, b] = test::connected_pair();
    auto [c, d] = test::connected_pair();
    sender = std::make_unique<SealedLink>(
        0, std::move(a), SessionSecrets{sha256(kSecrets.first), sha256(kSecrets.second)});
    tapped = std::move(b);
    towards = std::move(c);
    receiver = std::make_unique<SealedLink>(
        1, std::move(d), SessionSecrets{sha256(kSecrets.second), sha256(kSecrets.first)});
  }
  // Takes what is on its way.
  Text tap(size_t bytes) const {
    Text text(bytes);
    for (size_t got = 0; got < bytes;) {
      const Result<size_t> some = receive_some(tapped.get(), std::span(text).subspan(got));
      EXPECT_TRUE(some.ok());
      if (!some.ok()) break;
      got += *some;
    }
    return text;
  }
  void pass_on(const Text& bytes) const {
    ASSERT_EQ(::send(towards.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Returns the error that reading ends with.
  Error error() const {
    for (;;) {
      const Result<Bytes> got = receiver->peek({.at_least = 1, .at_most = 64});
      if (!got.ok()) return got.error();
      receiver->consume(got->size());
    }
  }

  std::unique_ptr<SealedLink> sender;
  UniqueFd tapped;   // its other end
  UniqueFd towards;  // what is sent here reaches the receiver
  std::unique_ptr<SealedLink> receiver;
};

constexpr size_t kSmallRecord = 64 + kRecordOverheadBytes;

TEST(SealedLink, CarriesAnySizesInAnyPiecesAndKeepsThemAligned) {
  auto [a, b] = test::connected_pair();
  SealedLink one(1, std::move(a), {sha256("a"), sha256("b")});
  SealedLink other(0, std::move(b), {sha256("b"), sha256("a")});
  Random random(7);
  const Text text = test::random_bytes(size_t{4} << 20, 8);
  Text got(text.size());
  size_t written = 0;
  size_t read = 0;
  while (read < text.size()) {
    if (written < text.size()) {
      const size_t most = std::min(text.size() - written, size_t{64} + random.below(200'000) * 64);
      const Bytes rest = Bytes(text).subspan(written, most);
      const size_t head = std::min<size_t>(rest.size(), 64);
      const auto taken = one.write({rest.first(head), rest.subspan(head)});
      ASSERT_TRUE(taken.ok());
      written += *taken;
    }
    if (random.below(2) == 0) {
      const auto seen = other.peek({.at_least = 64, .at_most = 64 * (1 + random.below(40))});
      ASSERT_TRUE(seen.ok());
      if (seen->empty()) continue;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(seen->data()) % 64, 0u);
      const size_t whole = seen->size() - seen->size() % 64;
      std::memcpy(got.data() + read, seen->data(), whole);
      other.consume(whole);
      read += whole;
    } else {
      const size_t most = std::min(text.size() - read, size_t{64} + random.below(3000) * 64);
      const auto some = other.read(std::span(got).subspan(read, most));
      ASSERT_TRUE(some.ok());
      read += *some;
      while (read % 64 != 0) {
        const auto rest = other.read(std::span(got).subspan(read, 64 - read % 64));
        ASSERT_TRUE(rest.ok());
        read += *rest;
      }
    }
  }
  EXPECT_EQ(got, text);
}

TEST(SealedLink, NothingReadableIsOnTheWay) {
  const Wire wire;
  const std::string words = "gradients of a secret model, in plain words, 64 bytes of them: abcd";
  const Bytes text = std::as_bytes(std::span(words)).first(64);
  ASSERT_EQ(wire.sender->write({text}).value(), text.size());
  const Text seen = wire.tap(kSmallRecord);
  EXPECT_EQ(std::search(seen.begin(), seen.end(), text.begin(), text.begin() + 8), seen.end());
}

TEST(SealedLink, AChangedRecordEndsItAndNamesThePeer) {
  const Wire wire;
  const Text text = test::random_bytes(64, 1);
  ASSERT_TRUE(wire.sender->write({text}).ok());
  Text record = wire.tap(kSmallRecord);
  record[20] ^= std::byte{1};
  wire.pass_on(record);
  const Error error = wire.error();
  EXPECT_EQ(error.code, Code::kCorrupt);
  EXPECT_EQ(error.message,
            "rank 1 sent a record that is not authentic: record 0 of its encrypted connection was "
            "changed, repeated, left out or moved on its way");
}

TEST(SealedLink, RepeatedAndSwappedRecordsEndIt) {
  for (const bool swaps : {false, true}) {
    const Wire wire;
    for (const uint64_t seed : {1, 2})
      ASSERT_TRUE(wire.sender->write({test::random_bytes(64, seed)}).ok());
    const Text first = wire.tap(kSmallRecord);
    const Text second = wire.tap(kSmallRecord);
    wire.pass_on(swaps ? second : first);
    wire.pass_on(first);
    EXPECT_EQ(wire.error().code, Code::kCorrupt);
  }
}

TEST(SealedLink, AStrangersBytesInTheMiddleEndIt) {
  const Wire wire;
  wire.pass_on(Text(64, std::byte{0xff}));
  EXPECT_EQ(wire.error().message,
            "rank 1 sent what is not a record of an encrypted connection: expected 1 to 131072 "
            "bytes, got 4294967295");
}

TEST(SealedLink, ACutConnectionIsNotTakenForTheEndOfARecord) {
  Wire wire;
  ASSERT_TRUE(wire.sender->write({test::random_bytes(64, 1)}).ok());
  Text record = wire.tap(kSmallRecord);
  record.pop_back();
  wire.pass_on(record);
  wire.towards.reset();
  EXPECT_EQ(wire.error().message, "its connection closed");
}

}  // namespace
}  // namespace lockstep::comm
