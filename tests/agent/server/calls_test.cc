// Workers and servers over sockets: where parameters are, and what calls say.
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <thread>

#include "common/base/random.h"
#include "tests/agent/server/servers.h"

namespace lockstep::server {
namespace {

using optim::OptimizerKind;
using test::Servers;
using test::ServersSetup;
using test::Worker;

constexpr uint32_t kDim = 3;

// Parameters whose updates subtract the gradient.
Catalog plain() {
  const optim::OptimizerOptions sgd{.kind = OptimizerKind::kSgd, .weight_decay = 0};
  return {.tensors = {{.name = "w", .count = 1000, .optimizer = sgd},
                      {.name = "b", .count = 3, .optimizer = sgd}},
          .tables = {{.name = "user", .dim = kDim, .optimizer = sgd},
                     {.name = "item", .dim = 1, .optimizer = sgd}}};
}

ServersSetup setup(const Consistency& consistency = {.kind = ConsistencyKind::kAsynchronous}) {
  return {.catalog = plain(), .placement = {.range_elements_max = 128}, .consistency = consistency};
}

std::vector<float> counted(size_t count, float first = 0) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<uint64_t> some_keys(size_t count, uint64_t seed = 1) {
  Random random(seed);
  std::set<uint64_t> keys;
  while (keys.size() < count) keys.insert(random.next_u64());
  return {keys.begin(), keys.end()};
}

std::string message_of(Transfer transfer) {
  const auto outcome = transfer.wait();
  return outcome.ok() ? "" : outcome.error().message;
}

class ServerCalls : public testing::Test {
 protected:
  explicit ServerCalls(ServersSetup made = setup()) : servers_(std::move(made)) {
    servers_.start();
  }
  Servers servers_;
  uint64_t clock_ = 0;
};

TEST_F(ServerCalls, MoveTensorsToAndFromAllTheirRanges) {
  const Worker worker(servers_, 1);
  const std::vector<float> values = counted(1000, 5);
  ASSERT_EQ(message_of(worker.parameters->put({.tensor = 0, .values = values})), "");
  std::vector<float> got(1000);
  Transfer pulled = worker.parameters->pull(ParameterClient::TensorPull{.tensor = 0, .into = got});
  ASSERT_TRUE(pulled.wait().ok());
  EXPECT_EQ(got, values);
  const std::vector<float> gradient = counted(1000);
  ASSERT_EQ(
      message_of(worker.parameters->push({.tensor = 0, .gradient = gradient, .learning_rate = 1})),
      "");
  ASSERT_EQ(message_of(worker.parameters->pull(
                ParameterClient::TensorPull{.tensor = 0, .clock = 1, .into = got})),
            "");
  EXPECT_EQ(got, std::vector<float>(1000, 5));
  EXPECT_NE(message_of(worker.parameters->put({.tensor = 0, .values = values}))
                .find("expected a put before the first push (w, elements 0 to 125)"),
            std::string::npos);
}

// The process before it pushed its step to one tensor, and died.
TEST_F(ServerCalls, TakeThePushesOfAWorkerThatReturnsWhereTheyWereNotTaken) {
  const Worker other(servers_, 1);
  const std::vector<float> weights = counted(1000);
  const std::vector<float> biases = counted(3);
  const auto push = [](const Worker& worker, uint32_t tensor, std::span<const float> gradient,
                       uint64_t clock) {
    return message_of(worker.parameters->push(
        {.tensor = tensor, .clock = clock, .gradient = gradient, .learning_rate = 1}));
  };
  {
    const Worker before(servers_, 2);
    ASSERT_EQ(push(before, 0, weights, 0), "");
  }
  EXPECT_NE(push(Worker(servers_, 2), 0, weights, 0), "") << "it was taken before";
  auto rpc =
      rpc::Client::create({.self = test::server_identity(2), .limits = test::quick_limits()});
  ASSERT_TRUE(rpc.ok());
  auto client = ParameterClient::create({.rpc = rpc->get(),
                                         .catalog = servers_.catalog(),
                                         .view = servers_.view(),
                                         .servers = servers_.addresses(),
                                         .returned_at = 0});
  ASSERT_TRUE(client.ok());
  ParameterClient& returned = **client;
  const auto push_again = [&](uint32_t tensor, std::span<const float> gradient, uint64_t clock) {
    return message_of(returned.push(
        {.tensor = tensor, .clock = clock, .gradient = gradient, .learning_rate = 1}));
  };
  EXPECT_EQ(push_again(0, weights, 0), "");
  EXPECT_EQ(push_again(1, biases, 0), "");
  EXPECT_EQ(push_again(1, biases, 1), "");
  EXPECT_NE(push_again(1, biases, 1), "") << "only of the step in which it died";
  std::vector<float> got(1000);
  ASSERT_EQ(message_of(returned.pull(ParameterClient::TensorPull{.tensor = 0, .into = got})), "");
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], -weights[i]) << "once";
  got.resize(3);
  ASSERT_EQ(
      message_of(other.parameters->pull(ParameterClient::TensorPull{.tensor = 1, .into = got})),
      "");
  EXPECT_EQ(got, (std::vector<float>{0, -2, -4})) << "twice";
}

TEST_F(ServerCalls, TellTheHighestClockOfAWorker) {
  const Worker worker(servers_, 1);
  const auto highest_of = [&](uint32_t rank) {
    return std::max(servers_[0].highest_clock_of(rank), servers_[1].highest_clock_of(rank));
  };
  EXPECT_EQ(highest_of(1), 0u);
  const std::vector<float> biases = counted(3);
  ASSERT_EQ(message_of(worker.parameters->push({.tensor = 1, .gradient = biases})), "");
  EXPECT_EQ(highest_of(1), 1u);
  EXPECT_EQ(highest_of(0), 0u) << "another worker";
  EXPECT_EQ(highest_of(8), 0u) << "no worker";
}

TEST_F(ServerCalls, MoveRowsToAndFromTheirServers) {
  const Worker worker(servers_, 1);
  const std::vector<uint64_t> keys = some_keys(200);
  const std::vector<float> gradients = counted(keys.size() * kDim);
  ASSERT_EQ(message_of(worker.parameters->push(ParameterClient::RowsPush{
                .table = 0, .keys = keys, .gradients = gradients, .learning_rate = 1})),
            "");
  std::vector<float> got(gradients.size());
  ASSERT_EQ(message_of(worker.parameters->pull(
                ParameterClient::RowsPull{.table = 0, .keys = keys, .clock = 1, .into = got})),
            "");
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], -gradients[i]);
  uint64_t rows = 0;
  for (size_t i = 0; i < 2; ++i) {
    for (const Unit::Report& unit : servers_[i].report().units) {
      if (unit.name.starts_with("user, slot ")) {
        EXPECT_GT(unit.size.rows, 50u);
        rows += unit.size.rows;
      }
    }
  }
  EXPECT_EQ(rows, 200u);
}

// A list of keys is sent once; afterwards its signature is enough. After more lists than a server
// remembers, the client sends it again.
TEST_F(ServerCalls, NameKeysByTheirSignature) {
  const Worker worker(servers_, 1);
  const std::vector<uint64_t> keys = some_keys(50);
  std::vector<float> got(keys.size());
  const auto pull = [&](const std::vector<uint64_t>& list, const Worker& from) {
    return message_of(from.parameters->pull(ParameterClient::RowsPull{
        .table = 1, .keys = list, .into = std::span(got).first(list.size())}));
  };
  ASSERT_EQ(pull(keys, worker), "");
  ASSERT_EQ(pull(keys, worker), "");
  const Worker again(servers_, 1);  // the same rank, and another client that sends other lists
  for (uint64_t i = 0; i < 70; ++i) ASSERT_EQ(pull(some_keys(5, 100 + i), again), "");
  EXPECT_EQ(pull(keys, worker), "");
}

// Pushes add up to the gradients although each is rounded, and pulls are rounded once.
TEST_F(ServerCalls, MayBeInFewerBits) {
  const Worker worker(servers_, 1);
  const std::vector<uint64_t> keys = some_keys(40);
  std::vector<float> tensor(1000, 0.3f), rows(keys.size() * kDim, 0.7f);
  ParameterClient& client = *worker.parameters;
  for (const Encoding encoding : {Encoding::kBf16, Encoding::kInt8}) {
    SCOPED_TRACE(static_cast<int>(encoding));
    std::vector<float> before(1000), after(1000), rows_before(rows.size()), rows_after(rows.size());
    using TensorPull = ParameterClient::TensorPull;
    using RowsPull = ParameterClient::RowsPull;
    ASSERT_EQ(message_of(client.pull(TensorPull{.into = before})), "");
    ASSERT_EQ(message_of(client.pull(RowsPull{.keys = keys, .into = rows_before})), "");
    for (int i = 0; i < 10; ++i, ++clock_) {
      tensor[7] = rows[7] = static_cast<float>(i);
      ASSERT_EQ(
          message_of(client.push(ParameterClient::TensorPush{
              .clock = clock_, .gradient = tensor, .learning_rate = 1, .encoding = encoding})),
          "");
      ASSERT_EQ(message_of(client.push(ParameterClient::RowsPush{.keys = keys,
                                                                 .clock = clock_,
                                                                 .gradients = rows,
                                                                 .learning_rate = 1,
                                                                 .encoding = encoding})),
                "");
    }
    ASSERT_EQ(message_of(client.pull(TensorPull{.into = after, .encoding = encoding})), "");
    ASSERT_EQ(
        message_of(client.pull(RowsPull{.keys = keys, .into = rows_after, .encoding = encoding})),
        "");
    EXPECT_NEAR(before[7] - after[7], 45, 0.6);
    EXPECT_NEAR(before[300] - after[300], 3, 0.1);
    EXPECT_NEAR(rows_before[7] - rows_after[7], 45, 0.6);
    EXPECT_NEAR(rows_before[100] - rows_after[100], 7, 0.1);
  }
}

class ServerCallsWithCopies : public ServerCalls {
 protected:
  ServerCallsWithCopies() : ServerCalls(with_copies()) {}
  static ServersSetup with_copies() {
    ServersSetup made = setup();
    made.placement.copies = 1;
    return made;
  }
};

// Also over the way to the copies, and with a list of keys that the server knows.
TEST_F(ServerCallsWithCopies, AreSentOfRowsThatChangeEnough) {
  const Worker worker(servers_, 1);
  ParameterClient& client = *worker.parameters;
  const std::vector<uint64_t> keys = some_keys(100);
  std::vector<float> before(keys.size()), after(before);
  const auto pull = [&](std::vector<float>& into) {
    return message_of(
        client.pull(ParameterClient::RowsPull{.table = 1, .keys = keys, .into = into}));
  };
  ASSERT_EQ(pull(before), "");
  std::vector<float> gradients(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) gradients[i] = i % 3 == 0 ? -2.0f : 0.3f;
  gradients[4] = 0;
  for (const Encoding encoding : {Encoding::kF32, Encoding::kBf16}) {
    for (int i = 0; i < 4; ++i, ++clock_) {
      ASSERT_EQ(message_of(client.push(ParameterClient::RowsPush{.table = 1,
                                                                 .keys = keys,
                                                                 .clock = clock_,
                                                                 .gradients = gradients,
                                                                 .learning_rate = 1,
                                                                 .encoding = encoding,
                                                                 .threshold = 1})),
                "");
    }
  }
  ASSERT_EQ(pull(after), "");
  for (size_t i = 0; i < keys.size(); ++i) {
    // Four pushes of 0.3 are sent with the fourth one, and four with the eighth.
    const double sum = i == 4 ? 0 : i % 3 == 0 ? -16 : 2.4;
    EXPECT_NEAR(before[i] - after[i], sum, 0.02) << i;
  }
  EXPECT_EQ(client.pushed_rows().all, 800u);
  EXPECT_EQ(client.pushed_rows().kept_back, 65u * 6 + 8);
}

TEST_F(ServerCalls, TakeEachPushOnce) {
  const Worker worker(servers_, 1);
  const std::vector<float> gradient = counted(3);
  const ParameterClient::TensorPush push{.tensor = 1, .gradient = gradient, .learning_rate = 1};
  auto first = worker.parameters->push(push).wait();
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->own, 1u);
  const std::string refused = message_of(worker.parameters->push(push));
  EXPECT_NE(refused.find("rank 1: expected a push with clock 1, got 0"), std::string::npos)
      << refused;
  std::vector<float> got(3);
  ASSERT_EQ(message_of(worker.parameters->pull(
                ParameterClient::TensorPull{.tensor = 1, .clock = 1, .into = got})),
            "");
  EXPECT_EQ(got, (std::vector<float>{0, -1, -2}));
}

TEST_F(ServerCalls, RefuseAnotherView) {
  View other = servers_.view();
  other.workers = {0, 1, 2, 3};
  const Worker worker(servers_, 1, other);
  std::vector<float> got(3);
  const ParameterClient::TensorPull pull{.tensor = 1, .into = got};
  auto refused = worker.parameters->pull(pull).wait();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kConflict);
  EXPECT_NE(refused.error().message.find("the sender has another text of it"), std::string::npos);
}

// A worker may get a view before a server does.
TEST_F(ServerCalls, WaitForTheirView) {
  View next = servers_.view();
  next.number = 2;
  const Worker early(servers_, 1, next);
  std::vector<float> got(3, 1);
  Transfer waits = early.parameters->pull({.tensor = 1, .into = got});
  const Worker worker(servers_, 1);
  std::vector<float> other(3);
  ASSERT_EQ(message_of(worker.parameters->pull({.tensor = 1, .into = other})), "");
  EXPECT_FALSE(waits.is_done());
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(servers_[i].install(next).ok());
  ASSERT_TRUE(waits.wait().ok());
  EXPECT_EQ(got, std::vector<float>(3));
}

TEST_F(ServerCalls, RefuseArgumentsThatDoNotFit) {
  const Worker worker(servers_, 1);
  std::vector<float> got(4);
  const std::vector<uint64_t> unordered = {4, 2};
  using TensorPull = ParameterClient::TensorPull;
  using RowsPull = ParameterClient::RowsPull;
  ParameterClient& client = *worker.parameters;
  EXPECT_EQ(message_of(client.pull(TensorPull{.tensor = 1, .into = got})),
            "[server] b: expected elements 3, got 4");
  EXPECT_EQ(message_of(client.pull(TensorPull{.tensor = 9, .into = got})),
            "[server] tensor: expected an index below 2, got 9");
  EXPECT_EQ(message_of(client.pull(RowsPull{.table = 1, .keys = unordered, .into = got})),
            "[server] item: expected floats 2, got 4");
  EXPECT_EQ(message_of(client.pull(
                RowsPull{.table = 1, .keys = unordered, .into = std::span(got).first(2)})),
            "[server] item: expected keys in ascending order");
}

TEST_F(ServerCalls, RefuseRanksThatAreNoWorkers) {
  const Worker stranger(servers_, 5);
  std::vector<float> got(3);
  const std::vector<uint64_t> keys = some_keys(3);
  const std::string tensor =
      message_of(stranger.parameters->pull(ParameterClient::TensorPull{.tensor = 1, .into = got}));
  EXPECT_NE(tensor.find("rank 5 is no worker of this view"), std::string::npos) << tensor;
  const std::string rows = message_of(
      stranger.parameters->pull(ParameterClient::RowsPull{.table = 1, .keys = keys, .into = got}));
  EXPECT_NE(rows.find("rank 5 is no worker of this view"), std::string::npos) << rows;
}

TEST_F(ServerCalls, RefuseMoreRowsThanATableMayHave) {
  const Worker worker(servers_, 1);
  const std::vector<uint64_t> keys = some_keys(3000);
  std::vector<float> got(keys.size());
  const std::string refused = message_of(
      worker.parameters->pull(ParameterClient::RowsPull{.table = 1, .keys = keys, .into = got}));
  EXPECT_NE(refused.find("item: expected at most 1000 rows"), std::string::npos) << refused;
}

class SynchronousCalls : public ServerCalls {
 protected:
  SynchronousCalls() : ServerCalls(setup({.kind = ConsistencyKind::kSynchronous})) {}
  Transfer push(const Worker& worker, uint64_t clock, double learning_rate = 1) {
    return worker.parameters->push(
        {.tensor = 1, .clock = clock, .gradient = gradient_, .learning_rate = learning_rate});
  }
  Transfer pull(const Worker& worker, uint64_t clock) {
    return worker.parameters->pull(
        ParameterClient::TensorPull{.tensor = 1, .clock = clock, .into = got_});
  }
  // Returns the slowest worker of the tensor that push() is about.
  uint32_t slowest_of_pushed() {
    for (size_t i = 0; i < 2; ++i) {
      for (const Unit::Report& unit : servers_[i].report().units) {
        if (unit.name == "b, elements 0 to 3") return unit.slowest.worker;
      }
    }
    return ~0u;
  }
  // Returns the number of calls that wait.
  uint64_t waiting() {
    uint64_t calls = 0;
    for (size_t i = 0; i < 2; ++i) {
      for (const Unit::Report& unit : servers_[i].report().units) calls += unit.waiting;
    }
    return calls;
  }
  std::vector<float> gradient_ = {1, 2, 3};
  std::vector<float> got_ = std::vector<float>(3);
};

// Pulls may be asked for ahead of time.
TEST_F(SynchronousCalls, WaitForTheUpdateThatTheyAskFor) {
  const Worker workers[] = {{servers_, 0}, {servers_, 1}, {servers_, 2}};
  Transfer ahead = pull(workers[0], 1);
  for (const Worker& worker : workers) {
    EXPECT_FALSE(ahead.is_done());
    ASSERT_EQ(message_of(push(worker, 0)), "");
  }
  const auto outcome = ahead.wait();
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->slowest, 1u);
  EXPECT_EQ(got_, (std::vector<float>{-3, -6, -9}));
}

TEST_F(SynchronousCalls, RefuseAnotherLearningRateWithinAStep) {
  const Worker workers[] = {{servers_, 0}, {servers_, 1}};
  ASSERT_EQ(message_of(push(workers[0], 0, 0.5)), "");
  const std::string refused = message_of(push(workers[1], 0, 0.25));
  EXPECT_NE(refused.find("expected the learning rate of rank 0, 0.5"), std::string::npos)
      << refused;
  EXPECT_EQ(message_of(push(workers[1], 0, 0.5)), "");
}

// A worker that is lost does not stop the others once a view without it is there.
TEST_F(SynchronousCalls, GoOnWithoutAWorkerThatAViewLeavesOut) {
  const Worker workers[] = {{servers_, 0}, {servers_, 1}};
  for (const Worker& worker : workers) ASSERT_EQ(message_of(push(worker, 0)), "");
  Transfer waits = pull(workers[0], 1);
  ASSERT_TRUE(test::eventually([&] { return waiting() == 1; }));  // judged by the first view
  EXPECT_EQ(slowest_of_pushed(), 2u);
  View next = servers_.view();
  next.number = 2;
  next.workers = {0, 1};
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(servers_[i].install(next).ok());
  ASSERT_TRUE(waits.wait().ok());
  EXPECT_EQ(got_, (std::vector<float>{-2, -4, -6}));
  const std::string old = message_of(push(workers[0], 1));
  EXPECT_NE(old.find("expected view 2 of round 7, got view 1"), std::string::npos) << old;
  const Worker again(servers_, 0, next);
  EXPECT_EQ(message_of(push(again, 1)), "");
  EXPECT_EQ(servers_[0].report().view, 2u);
}

TEST_F(SynchronousCalls, KeepTheirViewIfTheNextOneIsWrong) {
  View next = servers_.view();
  EXPECT_EQ(servers_[0].install(next).error().code, Code::kConflict);
  next.number = 2;
  View other = next;
  std::swap(other.arcs[0].slot, other.arcs[1].slot);
  other.arcs[0].slot = 1 - other.arcs[0].slot;
  EXPECT_EQ(servers_[0].install(other).error().message,
            "[server] expected the ranges, slots and arcs of the views before");
  other = next;
  other.slots[1].chain = {8};
  EXPECT_EQ(servers_[0].install(other).error().message,
            "[server] rank 8 does not have all of user, slot 1");
  other = next;
  other.slots[0].joining = 11;
  EXPECT_EQ(servers_[0].install(other).error().message,
            "[server] the address of rank 11 is missing");
  next.workers = {};
  EXPECT_EQ(servers_[0].install(next).error().code, Code::kInvalid);
  EXPECT_EQ(servers_[0].report().view, 1u);
}

TEST_F(SynchronousCalls, ThatWaitFailWhenTheServerEnds) {
  const Worker worker(servers_, 0);
  Transfer waits = pull(worker, 1);
  ASSERT_TRUE(test::eventually([&] { return waiting() == 1; }));
  servers_.stop(0);
  servers_.stop(1);
  const auto outcome = waits.wait();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, Code::kUnavailable);
}

// A call that nobody waits for any more leaves the server's memory with the next one that waits.
TEST_F(SynchronousCalls, AreForgottenWhenTheyAreCancelled) {
  const Worker worker(servers_, 0);
  for (int i = 0; i < 5; ++i) pull(worker, 1);  // destroyed at once
  Transfer waits = pull(worker, 1);
  EXPECT_TRUE(test::eventually([&] {
    Transfer another = pull(worker, 2);
    return waiting() <= 3;
  }));
}

// Replies that a worker has not read are bounded; what does not fit waits for those before it.
TEST(ServerMemory, OfRepliesIsBounded) {
  ServersSetup made = setup();
  made.reply_bytes_max = 2000;
  Servers servers(std::move(made));
  servers.start();
  const Worker worker(servers, 1);
  std::vector<std::vector<float>> got(20, std::vector<float>(1000));
  std::vector<Transfer> pulls;
  for (auto& into : got) {
    pulls.push_back(
        worker.parameters->pull(ParameterClient::TensorPull{.tensor = 0, .into = into}));
  }
  for (Transfer& pull : pulls) EXPECT_TRUE(pull.wait().ok());
}

TEST(ServerOptions, RefuseALaterViewWithTheServer) {
  auto view = place(plain(), {.round = 7, .workers = {0}, .servers = {8}}, {});
  ASSERT_TRUE(view.ok());
  view->number = 2;
  const auto refused = ParameterServer::create(
      {.rpc = {.self = test::server_identity(8), .listen_fd = test::listen_here().fd},
       .catalog = plain(),
       .view = *view});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_NE(refused.error().message.find("it begins with nothing"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::server
