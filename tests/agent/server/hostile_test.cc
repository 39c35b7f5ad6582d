// Members of the round that send a parameter server what no worker sends.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <optional>

#include "agent/server/limits.h"
#include "common/base/random.h"
#include "tests/agent/server/servers.h"

namespace lockstep::server {
namespace {

using test::Servers;
using test::Worker;

class Hostile : public testing::Test {
 protected:
  Hostile()
      : servers_({.catalog = {.tensors = {{.name = "w", .count = 16}},
                              .tables = {{.name = "user", .dim = 4}}},
                  .servers = {8, 9},
                  .consistency = {.kind = ConsistencyKind::kAsynchronous}}) {
    servers_.start();
    worker_.emplace(servers_, 1);
    peer_ = worker_->rpc->add_server(servers_.addresses()[0]);
  }

  CallHead rows(uint64_t keys, uint16_t flags = CallHead::kSendsKeys) const {
    return {.kind = UnitKind::kTable,
            .flags = flags,
            .fence = fence_of(servers_.view()),
            .signature = 5,
            .key_count = keys};
  }
  Error refused(const rpc::Method& method, rpc::Bytes head, const std::vector<uint64_t>& body) {
    const rpc::Bytes parts[] = {std::as_bytes(std::span(body))};
    rpc::Call call = peer_.call(method, {.head = head, .body = parts});
    const Status status = call.wait();
    EXPECT_FALSE(status.ok());
    return status.ok() ? Error() : status.error();
  }
  Error refused(const rpc::Method& method, const CallHead& head,
                const std::vector<uint64_t>& body = {}) {
    return refused(method, std::as_bytes(std::span(&head, 1)), body);
  }
  // The server still works.
  void expect_service() {
    std::vector<float> got(16);
    const auto outcome =
        worker_->parameters->pull(ParameterClient::TensorPull{.tensor = 0, .into = got}).wait();
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
  }

  Servers servers_;
  std::optional<Worker> worker_;
  rpc::Peer peer_;
};

TEST_F(Hostile, HeadsAreRefused) {
  EXPECT_EQ(refused(kPush, rpc::Bytes(), {}).code, Code::kInvalid);
  CallHead head = rows(1);
  head.magic = 0;
  EXPECT_EQ(refused(kPull, head).code, Code::kInvalid);
  head = rows(1);
  head.unit = 77;
  EXPECT_NE(refused(kPull, head, {1}).message.find("rank 8 does not have unit 77"),
            std::string::npos);
  head = rows(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(refused(kPull, head, {1}).code, Code::kInvalid);
  head = rows(kKeysMax);
  EXPECT_EQ(refused(kPull, head, {1}).code, Code::kInvalid);
  head = rows(1);
  EXPECT_EQ(refused(kPut, head, {1, 0, 0}).code, Code::kInvalid);
  expect_service();
}

TEST_F(Hostile, KeysAreRefused) {
  EXPECT_NE(refused(kPull, rows(2), {7, 7}).message.find("ascending order"), std::string::npos);
  const Error unknown = refused(kPull, rows(2, 0));
  EXPECT_EQ(unknown.code, Code::kNotFound);
  EXPECT_NE(unknown.message.find("no list of keys has this signature"), std::string::npos);
  // A key of the other server's.
  const Routing routing(std::make_shared<const View>(servers_.view()));
  uint64_t key = 1;
  while (test::primary_of(routing, key) != 9) ++key;
  EXPECT_NE(refused(kPull, rows(1), {key}).message.find("does not have the row of key"),
            std::string::npos);
  expect_service();
}

// A signature that was used for another list finds only lists of the same size, and is the
// sender's own.
TEST_F(Hostile, SignaturesHarmOnlyTheirSender) {
  const Routing routing(std::make_shared<const View>(servers_.view()));
  uint64_t key = 1;
  while (test::primary_of(routing, key) != 8) ++key;
  const std::vector<uint64_t> body = {key};
  const rpc::Bytes parts[] = {std::as_bytes(std::span(body))};
  const CallHead head = rows(1);
  rpc::Call call = peer_.call(kPull, {.head = std::as_bytes(std::span(&head, 1)), .body = parts});
  ASSERT_TRUE(call.wait().ok());
  EXPECT_EQ(refused(kPull, rows(2, 0)).code, Code::kNotFound);
  const Worker other(servers_, 2);
  rpc::Peer peer = other.rpc->add_server(servers_.addresses()[0]);
  const CallHead known = rows(1, 0);
  EXPECT_EQ(peer.call(kPull, {.head = std::as_bytes(std::span(&known, 1))}).wait().error().code,
            Code::kNotFound);
}

// A worker is not the server before this one in a chain.
TEST_F(Hostile, WorkersAreNoServersOfAChain) {
  CopyHead head;
  head.call.fence = fence_of(servers_.view());
  const auto bytes = std::as_bytes(std::span(&head, 1));
  EXPECT_NE(refused(kCopy, bytes, {0, 0}).message.find("rank 1 is not the server before rank 8"),
            std::string::npos);
  head.call.fence.number = 0;
  EXPECT_EQ(refused(kCopy, bytes, {}).code, Code::kConflict);
  EXPECT_EQ(refused(kCopy, bytes.first(100), {}).code, Code::kInvalid);
  expect_service();
}

TEST_F(Hostile, ViewsAreRefused) {
  EXPECT_EQ(refused(kInstallView, rpc::Bytes(), {1, 2, 3}).code, Code::kInvalid);
  const auto install = [&](const View& view) {
    const std::string text = text_of(view);
    const rpc::Bytes body[] = {std::as_bytes(std::span(text))};
    return peer_.call(kInstallView, {.body = body}).wait();
  };
  View view = servers_.view();
  EXPECT_TRUE(install(view).ok());  // it is there already
  view.workers = {0};
  EXPECT_EQ(install(view).error().code, Code::kConflict);
  view.number = 2;
  view.slots[0].joining = 3;  // has no address
  EXPECT_EQ(install(view).error().code, Code::kInvalid);
  expect_service();
}

TEST_F(Hostile, AnyBytesAreRefused) {
  Random random(17);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::byte> head(random.below(rpc::kHeadMax));
    for (std::byte& byte : head) byte = static_cast<std::byte>(random.next_u32());
    const rpc::Method* const methods[] = {&kPush, &kPull, &kPut};
    refused(*methods[random.below(3)], head, std::vector<uint64_t>(random.below(20)));
  }
  // Heads that differ in one byte from one that is taken.
  const CallHead right = rows(1);
  for (size_t at = 0; at < sizeof right; ++at) {
    std::vector<std::byte> head(sizeof right);
    std::memcpy(head.data(), &right, sizeof right);
    head[at] ^= std::byte{0x80};
    // A call of a later view waits for it.
    rpc::Call call = peer_.call(kPush, {.head = head, .timeout = std::chrono::milliseconds(200)});
    EXPECT_FALSE(call.wait().ok()) << at;
  }
  expect_service();
}

}  // namespace
}  // namespace lockstep::server
