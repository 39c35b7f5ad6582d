#include <memory>
#include <thread>
#include <utility>

#include "agent/comm/gpu/device_communicator.h"
#include "agent/comm/make_communicator.h"
#include "tests/agent/comm/gpu/fake_nccl.h"
#include "tests/agent/train/device_ranks.h"
#include "tests/support/emulated_cuda/devices.h"

namespace lockstep::train {

namespace {

std::shared_ptr<comm::NcclApi> nccl_on_emulated_streams() {
  return std::make_shared<test::FakeNccl>([](void* stream, std::function<void()> kernel) {
    EXPECT_TRUE(emulated_cuda::issue_blocking(stream, std::move(kernel)).ok());
  });
}

}  // namespace

bool can_exchange(GradientPath, int64_t) {
  return true;
}

void vary_order(uint64_t seed) {
  emulated_cuda::set_seed(seed);
}

void on_device_ranks(int64_t ranks, GradientPath path,
                     const std::function<void(comm::Communicator&, kernels::Device)>& body) {
  auto worlds = comm::make_thread_world(static_cast<int>(ranks)).value();
  const auto nccl = path == GradientPath::kNccl ? nccl_on_emulated_streams() : nullptr;
  if (path != GradientPath::kCpu) emulated_cuda::set_device_count(static_cast<int>(ranks));
  std::vector<std::jthread> threads;
  for (std::unique_ptr<comm::Communicator>& host : worlds) {
    threads.emplace_back([&body, &nccl, path, host = std::move(host)]() mutable {
      if (path == GradientPath::kCpu) return body(*host, {});
      const kernels::Device device{kernels::DeviceType::kCuda, host->rank()};
      const std::unique_ptr<comm::Communicator> world =
          comm::make_device_communicator(
              std::move(host), {.device = device},
              {.device = comm::make_comm_device(device), .nccl = nccl, .why = "for a test"})
              .value();
      body(*world, device);
    });
  }
}

}  // namespace lockstep::train
