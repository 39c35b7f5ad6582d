#include <memory>
#include <thread>
#include <utility>

#include "agent/comm/gpu/device_communicator.h"
#include "agent/comm/make_communicator.h"
#include "tests/agent/train/device_ranks.h"

namespace lockstep::train {

bool can_exchange(GradientPath path, int64_t ranks) {
  return path != GradientPath::kNccl || ranks == 1;
}

void vary_order(uint64_t) {}

void on_device_ranks(int64_t ranks, GradientPath path,
                     const std::function<void(comm::Communicator&, kernels::Device)>& body) {
  auto worlds = comm::make_thread_world(static_cast<int>(ranks)).value();
  const comm::DeviceOptions options{.device = kCuda,
                                    .backend = path == GradientPath::kNccl
                                                   ? comm::DeviceBackendKind::kNccl
                                                   : comm::DeviceBackendKind::kHostMemory};
  std::vector<std::jthread> threads;
  for (std::unique_ptr<comm::Communicator>& host : worlds) {
    threads.emplace_back([&body, &options, path, host = std::move(host)]() mutable {
      if (path == GradientPath::kCpu) return body(*host, {});
      const std::unique_ptr<comm::Communicator> world =
          comm::make_device_communicator(std::move(host), options).value();
      body(*world, options.device);
    });
  }
}

}  // namespace lockstep::train
