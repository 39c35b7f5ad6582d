#pragma once

#include <memory>
#include <vector>

#include "agent/comm/gpu/device_communicator.h"
#include "tests/agent/comm/gpu/fake_device.h"
#include "tests/agent/comm/gpu/fake_nccl.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::test {

// A world whose ranks are threads, each with a fake GPU. Its communicators treat memory of the CPU
// as the GPU's, on the rank's stream, so that the cases of all other communicators run on them.
struct DeviceWorldOptions {
  int size = 2;
  bool has_nccl = false;  // else through host memory
  bool check_mismatches = false;
  Duration limit = std::chrono::seconds(60);
  size_t staging_bytes = comm::kStagingBytes;
};

class DeviceWorld {
 public:
  explicit DeviceWorld(const DeviceWorldOptions& options);
  // Uses existing communicators of the host.
  DeviceWorld(const DeviceWorldOptions& options, World hosts);
  ~DeviceWorld();

  World& world() { return world_; }
  comm::Communicator& operator[](int rank) { return *world_[static_cast<size_t>(rank)]; }
  FakeDevice& device(int rank) { return *devices_[static_cast<size_t>(rank)]; }
  FakeStream& stream(int rank) { return fake_stream(streams_[static_cast<size_t>(rank)].get()); }
  FakeNccl& nccl() { return *nccl_; }
  // Drops all communicators, with a thread for each rank, because they wait for each other.
  void drop();

 private:
  std::shared_ptr<FakeNccl> nccl_;
  std::vector<std::shared_ptr<FakeDevice>> devices_;
  std::vector<std::shared_ptr<void>> streams_;
  World world_;
};

comm::CommBuffer f32(std::vector<float>& values);

// Runs the covering array (covering.h) without its large cases, on a world for each of its sizes.
// With NCCL, which chooses the algorithm itself, no case names one. Afterwards every communicator
// must have left cleanly. Stops at the first case that fails.
void run_covering_array(DeviceWorldOptions options, uint64_t seed);

}  // namespace lockstep::test
