// The exchanges on GPUs that the CPU plays, with a fake NCCL and through host memory.
#include <gtest/gtest.h>

#include "agent/comm/gpu/device_communicator.h"
#include "agent/comm/make_communicator.h"
#include "tests/agent/comm/gpu/fake_nccl.h"
#include "tests/agent/comm/worlds.h"
#include "tests/agent/parallel/exchange_ranks.h"
#include "tests/support/emulated_cuda/devices.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kSteps = 3;

// Calls body(communicator) on a thread for each rank, which has a device of its own.
void on_devices(int ranks, bool has_nccl, const std::function<void(comm::Communicator&)>& body) {
  emulated_cuda::set_device_count(ranks);
  std::shared_ptr<comm::NcclApi> nccl;
  if (has_nccl) {
    nccl = std::make_shared<test::FakeNccl>([](void* stream, std::function<void()> kernel) {
      EXPECT_TRUE(emulated_cuda::issue_blocking(stream, std::move(kernel)).ok());
    });
  }
  test::World hosts = test::make_world(test::Transport::kThreads, ranks);
  test::on_ranks(ranks, [&](int rank) {
    const kernels::Device device{kernels::DeviceType::kCuda, rank};
    const auto world = comm::make_device_communicator(
        std::move(hosts[static_cast<size_t>(rank)]), {.device = device},
        {.device = comm::make_comm_device(device), .nccl = nccl, .why = "for a test", .paths = {}});
    ASSERT_TRUE(world.ok());
    body(**world);
  });
}

std::vector<Exchanged> train(ExchangeSetup setup, int ranks, bool has_nccl) {
  const SharedFile file;
  setup.device = kernels::DeviceType::kCuda;
  setup.shared = {.fd = file.fd()};
  std::vector<Exchanged> results(static_cast<size_t>(ranks));
  on_devices(ranks, has_nccl, [&](comm::Communicator& world) {
    results[static_cast<size_t>(world.rank())] = exchanged(setup, world, kSteps);
  });
  return results;
}

class DeviceExchanges : public testing::TestWithParam<std::tuple<Exchange, bool>> {};
INSTANTIATE_TEST_SUITE_P(Of, DeviceExchanges,
                         testing::Combine(testing::Values(Exchange::kFirstRank, Exchange::kHost),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::string(exchange_name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "Nccl" : "HostMemory");
                         });

TEST_P(DeviceExchanges, GiveWhatTheAllReduceGives) {
  const auto [exchange, has_nccl] = GetParam();
  for (const int ranks : {1, 2, 3}) {
    ExchangeSetup setup{.optimizer = {.epsilon = 1e-5, .rounding_seed = 5}, .has_copies = true};
    const std::vector<Exchanged> expected = train(setup, ranks, has_nccl);
    setup.exchange = exchange;
    const std::vector<Exchanged> results = train(setup, ranks, has_nccl);
    for (const Exchanged& result : results) EXPECT_TRUE(result == results[0]) << ranks << " ranks";
    EXPECT_LT(distance(results[0].parameters, expected[0].parameters), 1e-6);
    // The CPU's optimizer rounds otherwise than the GPU's.
    if (ranks <= 2 && exchange == Exchange::kFirstRank) {
      EXPECT_TRUE(results[0] == expected[0]) << ranks << " ranks";
    }
  }
}

TEST_P(DeviceExchanges, GiveTheSameBitsAgain) {
  const auto [exchange, has_nccl] = GetParam();
  EXPECT_TRUE(train({.exchange = exchange}, 3, has_nccl) ==
              train({.exchange = exchange}, 3, has_nccl));
}

TEST(FirstRankExchangeByNccl, MovesEveryGradientAndParameterThroughTheFirstRank) {
  on_devices(3, true, [](comm::Communicator& comm) {
    ExchangeRank rank({.exchange = Exchange::kFirstRank, .device = kernels::DeviceType::kCuda},
                      comm);
    ASSERT_TRUE(rank.step(1).ok());  // NCCL connects the ranks
    const comm::Traffic before = comm.traffic();
    ASSERT_TRUE(rank.step(2).ok());
    const comm::Traffic after = comm.traffic();
    const uint64_t gradients = rank.arena_bytes();
    const uint64_t answer = rank.arena_bytes() + sizeof(kernels::SquareSum);
    const bool is_first = comm.rank() == 0;
    EXPECT_EQ(after.bytes_received - before.bytes_received, is_first ? 2 * gradients : answer);
    EXPECT_EQ(after.bytes_sent - before.bytes_sent, is_first ? 2 * answer : gradients);
  });
}

}  // namespace
}  // namespace lockstep::parallel
