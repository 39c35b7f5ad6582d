#include "tests/agent/comm/gpu/device_world.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <utility>

#include "common/base/check.h"
#include "tests/agent/comm/cases.h"

namespace lockstep::test {
namespace {

// Passes every call on to a device communicator, on a stream.
class OnStream final : public comm::Communicator {
 public:
  OnStream(std::unique_ptr<comm::Communicator> inner, kernels::Device device, void* stream)
      : inner_(std::move(inner)), device_(device), stream_(stream) {}

  using comm::Communicator::run;
  using comm::Communicator::start;
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  comm::Work start(std::span<const comm::Call> calls) override {
    return inner_->start(on_device(calls));
  }
  Status run(std::span<const comm::Call> calls) override { return inner_->run(on_device(calls)); }
  Result<std::unique_ptr<comm::Communicator>> sub_group(const std::vector<int>& ranks) override {
    TRY_ASSIGN(auto group, inner_->sub_group(ranks));
    return std::unique_ptr<comm::Communicator>(new OnStream(std::move(group), device_, stream_));
  }
  std::unique_ptr<comm::ActivityReport> make_report() override { return inner_->make_report(); }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  void set_silence_limit(Duration limit) override { inner_->set_silence_limit(limit); }
  comm::DeviceTraits device_traits() const override { return inner_->device_traits(); }
  Status health() const override { return inner_->health(); }
  int suspect() const override { return inner_->suspect(); }
  comm::CollectiveCounts counts() const override { return inner_->counts(); }
  comm::Traffic traffic() const override { return inner_->traffic(); }
  const comm::HostMap& hosts() const override { return inner_->hosts(); }
  std::string path_to(int rank) const override { return inner_->path_to(rank); }
  std::string describe() const override { return inner_->describe(); }

 private:
  std::vector<comm::Call> on_device(std::span<const comm::Call> calls) const {
    std::vector<comm::Call> made(calls.begin(), calls.end());
    for (comm::Call& call : made) {
      call.buffer.device = device_;
      call.buffer.stream = stream_;
    }
    return made;
  }

  std::unique_ptr<comm::Communicator> inner_;
  kernels::Device device_;
  void* stream_;
};

}  // namespace

DeviceWorld::DeviceWorld(const DeviceWorldOptions& options)
    : DeviceWorld(options, make_world(Transport::kThreads, options.size, options.limit)) {}

DeviceWorld::DeviceWorld(const DeviceWorldOptions& options, World hosts) {
  if (options.has_nccl) nccl_ = std::make_shared<FakeNccl>();
  for (int rank = 0; rank < options.size; ++rank) {
    devices_.push_back(std::make_shared<FakeDevice>(rank));
    auto stream = devices_.back()->create_stream();
    CHECK(stream.ok());
    streams_.push_back(std::move(stream).value());
    const kernels::Device device{kernels::DeviceType::kCuda, rank};
    auto made = comm::make_device_communicator(
        std::move(hosts[static_cast<size_t>(rank)]),
        {.device = device, .limit = options.limit, .check_mismatches = options.check_mismatches},
        {.device = devices_.back(),
         .nccl = nccl_,
         .why = "for a test",
         .staging_bytes = options.staging_bytes});
    CHECK(made.ok());
    world_.push_back(
        std::make_unique<OnStream>(std::move(made).value(), device, streams_.back().get()));
  }
}

DeviceWorld::~DeviceWorld() {
  drop();
}

void DeviceWorld::drop() {
  on_ranks(static_cast<int>(world_.size()),
           [&](int rank) { world_[static_cast<size_t>(rank)].reset(); });
  world_.clear();
}

comm::CommBuffer f32(std::vector<float>& values) {
  return {.data = values.data(), .count = static_cast<int64_t>(values.size())};
}

void run_covering_array(DeviceWorldOptions options, uint64_t seed) {
  const TestSetup setup{.transports = {Transport::kThreads},
                        .block_bytes_max = 70'000,
                        .has_algorithms = !options.has_nccl,
                        // With NCCL, concurrent groups need separate streams.
                        .has_concurrent_groups = !options.has_nccl,
                        .has_limits = false};
  std::map<int, std::vector<Case>> by_size;
  for (const Case& c : covering_array(setup, seed)) by_size[c.shape.world].push_back(c);
  std::vector<Case> ran;
  for (const auto& [size, cases] : by_size) {
    std::printf("%zu cases of seed %llu on %d ranks\n", cases.size(),
                static_cast<unsigned long long>(seed), size);
    options.size = size;
    DeviceWorld world(options);
    for (const Case& c : cases) {
      on_all(world.world(), [&](comm::Communicator& comm) { run_case(c, comm); });
      if (::testing::Test::HasFailure()) return;
      ran.push_back(c);
    }
    world.drop();
    if (!options.has_nccl) continue;
    EXPECT_EQ(world.nccl().alive(), 0);
    EXPECT_EQ(world.nccl().aborted(), 0);
  }
  EXPECT_EQ(missing_pairs(setup, ran), std::vector<std::string>{});
}

}  // namespace lockstep::test
