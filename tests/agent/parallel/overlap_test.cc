// The sink and the region on ranks with fake GPUs, whose streams are threads: work that no event
// orders may run in any order. With a fake NCCL, and through host memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/comm/gpu/device_communicator.h"
#include "agent/parallel/bucketed_sink.h"
#include "agent/parallel/tensor_region.h"
#include "tests/agent/comm/gpu/fake_cuda.h"
#include "tests/agent/comm/gpu/fake_nccl.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::parallel {
namespace {

using std::chrono::seconds;
using test::fake_stream;
using test::on_all;

const ModelConfig kConfig{1, 16, 1, 8, 32};

ParameterArena small_arena() {
  return parameter_arena(kConfig, whole_model(kConfig));
}

struct GpuWorldOptions {
  int size = 2;
  bool has_nccl = false;  // if false, through host memory
  Duration limit = seconds(60);
};

class GpuWorld {
 public:
  explicit GpuWorld(const GpuWorldOptions& options) {
    if (options.has_nccl) nccl_ = std::make_shared<test::FakeNccl>();
    test::World hosts = test::make_world(test::Transport::kThreads, options.size, options.limit);
    for (int rank = 0; rank < options.size; ++rank) {
      auto made = comm::make_device_communicator(
          std::move(hosts[static_cast<size_t>(rank)]),
          {.device = {kernels::DeviceType::kCuda, rank}, .limit = options.limit},
          {.device = test::fake_gpu(rank),
           .nccl = nccl_,
           .why = "for a test",
           .paths = {},
           .staging_bytes = 1024});
      CHECK(made.ok());
      ranks_.push_back(std::move(made).value());
    }
  }
  ~GpuWorld() {
    test::on_ranks(static_cast<int>(ranks_.size()),
                   [this](int rank) { ranks_[static_cast<size_t>(rank)].reset(); });
  }
  test::World& ranks() { return ranks_; }
  comm::Communicator& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  test::FakeNccl& nccl() { return *nccl_; }

 private:
  std::shared_ptr<test::FakeNccl> nccl_;
  test::World ranks_;
};

// Waits until the condition holds. Returns false after a limit, so that a test fails instead of
// hanging.
bool wait_until(const std::function<bool()>& holds) {
  const SystemClock clock;
  const TimePoint begin = clock.now();
  while (!holds() && clock.now() - begin < seconds(20)) std::this_thread::yield();
  return holds();
}

// The CPU's operations, issued on a fake stream.
kernels::OpTable stream_ops() {
  kernels::OpTable ops = kernels::cpu_ops();
  ops.fill = [](kernels::Stream& stream, const kernels::Fill& args) {
    fake_stream(stream.handle()).issue([args] {
      kernels::Stream at_once;
      kernels::cpu_ops().fill(at_once, args);
    });
  };
  return ops;
}

// Returns values whose sum depends on the order of addition.
float gradient(int rank, int turn, int64_t index) {
  const auto mixed = static_cast<uint32_t>(rank * 7919 + turn * 104729 + 1) *
                     (2654435761U + 2 * static_cast<uint32_t>(index));
  return static_cast<float>(mixed % 100003) / 99991.0f - 0.5f;
}

// A rank's sink with its streams and gradients.
struct Rank {
  comm::Communicator& group;
  const ParameterArena arena = small_arena();
  std::vector<float> gradients = std::vector<float>(static_cast<size_t>(arena.count));
  kernels::Stream compute = kernels::Stream::create(device()).value();
  kernels::Stream communication = kernels::Stream::create(device()).value();
  BucketedSink sink =
      BucketedSink::create(
          {.buckets = {.arena = arena, .bucket_bytes = 2048, .gradients = gradients.data()}}, group,
          kernels::cpu_ops(), {compute, communication})
          .value();

  explicit Rank(comm::Communicator& of) : group(of) { CHECK(sink.buckets().size() >= 3); }
  // After a failure, work may still be pending.
  ~Rank() {
    (void)communication.synchronize();
    (void)compute.synchronize();
  }

  kernels::Device device() const { return {kernels::DeviceType::kCuda, group.rank()}; }
  void issue(std::function<void()> task) { fake_stream(compute.handle()).issue(std::move(task)); }

  // Adds to the gradients of an entry, on the stream.
  void add(const ArenaEntry& entry, int turn) {
    float* to = sink.buffer(entry.id);
    issue([to, entry, turn, rank = group.rank()] {
      std::this_thread::yield();
      for (int64_t i = 0; i < entry.count; ++i) to[i] += gradient(rank, turn, entry.offset + i);
    });
  }
  Status backward(int turn) {
    for (auto entry = arena.entries.rbegin(); entry != arena.entries.rend(); ++entry) {
      add(*entry, turn);
      TRY(sink.ready(entry->id));
    }
    return sink.end_micro_batch();
  }
  // Issues two micro-batches and a reader of the gradients, which copies them to `seen`.
  Status issue_step(int turn, std::vector<float>& seen) {
    const kernels::OpTable ops = stream_ops();
    sink.begin_step(ops);
    TRY(backward(turn));
    sink.enable_reduction();
    TRY(backward(turn + 1));
    TRY(sink.finish());
    issue([this, &seen] { seen = gradients; });
    return {};
  }
  // Computes the same without overlap: reduces each bucket after all gradients are complete, on the
  // compute stream.
  Status step_in_turn(int turn, std::vector<float>& seen) {
    std::fill(gradients.begin(), gradients.end(), 0.0f);
    for (const int micro : {turn, turn + 1}) {
      for (const ArenaEntry& entry : arena.entries) add(entry, micro);
    }
    for (const Bucket& bucket : sink.buckets()) {
      TRY(group.all_reduce({.data = gradients.data() + bucket.offset,
                            .count = bucket.count,
                            .device = device(),
                            .stream = compute.handle()},
                           comm::ReduceOp::kSum));
    }
    TRY(compute.synchronize());
    seen = gradients;
    return {};
  }
};

class Overlap : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Backends, Overlap, ::testing::Bool(),
                         [](const auto& backend) { return backend.param ? "Nccl" : "HostMemory"; });

TEST_P(Overlap, GivesTheBitsOfReductionsInTurn) {
  GpuWorld world({.size = 4, .has_nccl = GetParam()});
  on_all(world.ranks(), [](comm::Communicator& group) {
    Rank rank(group);
    for (int turn = 0; turn < 6; turn += 2) {
      std::vector<float> expected;
      ASSERT_TRUE(rank.step_in_turn(turn, expected).ok());
      std::vector<float> seen;
      ASSERT_TRUE(rank.issue_step(turn, seen).ok());
      ASSERT_TRUE(rank.sink.wait().ok());
      ASSERT_TRUE(rank.compute.synchronize().ok());
      EXPECT_EQ(seen, expected);
      EXPECT_EQ(rank.gradients, expected);
    }
  });
}

// Rank 1 produces its first gradients only after rank 0's backward has passed the first bucket.
TEST_P(Overlap, GoesOnWithBackwardWhileABucketIsReduced) {
  GpuWorld world({.size = 2, .has_nccl = GetParam()});
  std::atomic<bool> has_gone_on = false;
  std::atomic<bool> was_seen = false;
  on_all(world.ranks(), [&](comm::Communicator& group) {
    Rank rank(group);
    const kernels::OpTable ops = stream_ops();
    rank.sink.begin_step(ops);
    rank.sink.enable_reduction();
    if (group.rank() == 1) {
      rank.issue([&] { was_seen = wait_until([&] { return has_gone_on.load(); }); });
    }
    const int64_t first_of_bucket = rank.sink.buckets().front().first_id;
    for (auto entry = rank.arena.entries.rbegin(); entry != rank.arena.entries.rend(); ++entry) {
      rank.add(*entry, 1);
      ASSERT_TRUE(rank.sink.ready(entry->id).ok());
      const bool is_behind = group.rank() == 0 && entry->id == first_of_bucket;
      if (is_behind) rank.issue([&] { has_gone_on = true; });
    }
    ASSERT_TRUE(rank.sink.end_micro_batch().ok());
    ASSERT_TRUE(rank.sink.finish().ok());
    ASSERT_TRUE(rank.sink.wait().ok());
    ASSERT_TRUE(rank.compute.synchronize().ok());
  });
  EXPECT_TRUE(was_seen);
}

// The compute stream waits for a reduction in the middle of backward.
TEST_P(Overlap, EndsAReductionWhileTheComputingStreamIsInBackward) {
  GpuWorld world({.size = 2, .has_nccl = GetParam()});
  on_all(world.ranks(), [](comm::Communicator& group) {
    Rank rank(group);
    const kernels::OpTable ops = stream_ops();
    rank.sink.begin_step(ops);
    rank.sink.enable_reduction();
    const uint64_t before = group.counts().completed;
    bool was_reduced = false;
    const int64_t first_of_bucket = rank.sink.buckets().front().first_id;
    for (auto entry = rank.arena.entries.rbegin(); entry != rank.arena.entries.rend(); ++entry) {
      rank.add(*entry, 1);
      ASSERT_TRUE(rank.sink.ready(entry->id).ok());
      if (entry->id != first_of_bucket) continue;
      rank.issue([&group, &was_reduced, before] {
        was_reduced = wait_until([&] { return group.counts().completed > before; });
      });
    }
    ASSERT_TRUE(rank.sink.end_micro_batch().ok());
    ASSERT_TRUE(rank.sink.finish().ok());
    ASSERT_TRUE(rank.sink.wait().ok());
    ASSERT_TRUE(rank.compute.synchronize().ok());
    EXPECT_TRUE(was_reduced);
  });
}

TEST(OverlapByNccl, LetsTheHostIssueWhatComesBehindTheReductionsBeforeTheyBegin) {
  GpuWorld world({.size = 2, .has_nccl = true});
  on_all(world.ranks(), [](comm::Communicator& group) {
    Rank rank(group);
    std::vector<float> expected;
    ASSERT_TRUE(rank.step_in_turn(2, expected).ok());
    std::latch issued(1);
    rank.issue([&issued] { issued.wait(); });
    std::vector<float> seen;
    const Status status = rank.issue_step(2, seen);
    issued.count_down();
    ASSERT_TRUE(status.ok()) << status.error().message;
    ASSERT_TRUE(rank.sink.wait().ok());
    ASSERT_TRUE(rank.compute.synchronize().ok());
    EXPECT_EQ(seen, expected);
  });
}

TEST(OverlapByHostMemory, HasReducedEverythingWhenFinishReturns) {
  GpuWorld world({.size = 2});
  on_all(world.ranks(), [](comm::Communicator& group) {
    Rank rank(group);
    std::vector<float> expected;
    ASSERT_TRUE(rank.step_in_turn(2, expected).ok());
    std::vector<float> seen;
    ASSERT_TRUE(rank.issue_step(2, seen).ok());
    EXPECT_EQ(rank.gradients, expected);
    EXPECT_TRUE(rank.sink.wait().ok());
    ASSERT_TRUE(rank.compute.synchronize().ok());
    EXPECT_EQ(seen, expected);
  });
}

// The rows that two ranks sum, with the stream that computes them.
struct RegionRank {
  static constexpr int64_t kCount = 512;
  std::vector<float> rows = std::vector<float>(kCount);
  kernels::Stream compute;
  std::unique_ptr<TensorRegion> region;

  explicit RegionRank(comm::Communicator& group)
      : compute(kernels::Stream::create({kernels::DeviceType::kCuda, group.rank()}).value()),
        region(TensorRegion::create(group, compute).value()) {}
  ~RegionRank() { (void)compute.synchronize(); }
  void issue(std::function<void()> task) { fake_stream(compute.handle()).issue(std::move(task)); }
  model::RegionRows chunk(int64_t index) {
    const kernels::View place(rows.data() + index * kCount / 2);
    return {.whole = place, .part = place, .count = kCount / 2};
  }
  void compute_chunk(int64_t index, float value) {
    issue([this, index, value] {
      std::this_thread::yield();
      std::fill_n(rows.data() + index * kCount / 2, kCount / 2, value);
    });
  }
  Status sum_chunks(int turn) {
    for (int64_t index = 0; index < 2; ++index) {
      compute_chunk(index, static_cast<float>(turn + index));
      region->start_sum_rows(chunk(index));
    }
    return region->finish(model::Pass::kForward);
  }
};

TEST_P(Overlap, OrdersSumsOfRowsBehindWhatComputesThemAndBeforeWhatReadsThem) {
  GpuWorld world({.size = 2, .has_nccl = GetParam()});
  on_all(world.ranks(), [](comm::Communicator& group) {
    RegionRank rank(group);
    EXPECT_EQ(rank.region->overlap(), model::Overlap::kWeights);
    for (int turn = 1; turn < 8; ++turn) {
      ASSERT_TRUE(rank.sum_chunks(turn).ok());
      ASSERT_TRUE(rank.region->sum_rows(rank.chunk(1), model::Pass::kForward).ok());
      std::vector<float> seen;
      rank.issue([&] { seen = rank.rows; });
      ASSERT_TRUE(rank.region->wait().ok());
      ASSERT_TRUE(rank.compute.synchronize().ok());
      const auto value = static_cast<float>(turn);
      EXPECT_EQ(seen.front(), 2 * value);
      EXPECT_EQ(seen.back(), 4 * (value + 1));
    }
  });
}

// Rank 1 computes its rows only after rank 0 has gone on computing behind its own.
TEST_P(Overlap, GoesOnComputingWhileRowsAreSummed) {
  GpuWorld world({.size = 2, .has_nccl = GetParam()});
  std::atomic<bool> has_gone_on = false;
  std::atomic<bool> was_seen = false;
  on_all(world.ranks(), [&](comm::Communicator& group) {
    RegionRank rank(group);
    if (group.rank() == 1) {
      rank.issue([&] { was_seen = wait_until([&] { return has_gone_on.load(); }); });
    }
    rank.compute_chunk(0, 3);
    rank.region->start_sum_rows(rank.chunk(0));
    if (group.rank() == 0) rank.issue([&] { has_gone_on = true; });
    ASSERT_TRUE(rank.region->finish(model::Pass::kBackward).ok());
    ASSERT_TRUE(rank.region->wait().ok());
    ASSERT_TRUE(rank.compute.synchronize().ok());
    EXPECT_EQ(rank.rows.front(), 6);
  });
  EXPECT_TRUE(was_seen);
}

TEST(OverlapByHostMemory, TellsTheErrorOfASumOfRowsOnce) {
  GpuWorld world({.size = 2});
  on_all(world.ranks(), [](comm::Communicator& group) {
    RegionRank rank(group);
    ASSERT_TRUE(rank.sum_chunks(1).ok());
    if (group.rank() == 1) test::fake_gpu(1)->fail_after(1);
    const Status status = rank.sum_chunks(1);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("the fake device has failed"), std::string::npos)
        << status.error().message;
    EXPECT_TRUE(rank.region->finish(model::Pass::kForward).ok());
  });
  test::fake_gpu(1)->fail_after(-1);
}

// The host would wait forever for a stream blocked by a hung operation; the sink reports it.
TEST(OverlapByNccl, NamesAReductionToWhichARankDoesNotCome) {
  GpuWorld world({.size = 2, .has_nccl = true, .limit = std::chrono::milliseconds(1000)});
  on_all(world.ranks(), [](comm::Communicator& group) {
    Rank rank(group);
    std::vector<float> seen;
    ASSERT_TRUE(rank.step_in_turn(0, seen).ok());
    const size_t before = rank.sink.buckets().size();
    if (group.rank() == 1) return;
    ASSERT_TRUE(rank.issue_step(0, seen).ok());
    const Status status = rank.sink.wait();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kTimeout);
    EXPECT_NE(status.error().message.find("all_reduce #" + std::to_string(before + 1) +
                                          ": not finished on the GPU after 1 s"),
              std::string::npos)
        << status.error().message;
    // NCCL was aborted, so the streams continue.
    EXPECT_TRUE(rank.compute.synchronize().ok());
    EXPECT_FALSE(seen.empty());
  });
}

TEST(OverlapByNccl, TellsTheErrorOfOneBucketAtTheEndOfTheStep) {
  GpuWorld world({.size = 2, .has_nccl = true});
  std::latch formed(2);
  on_all(world.ranks(), [&](comm::Communicator& group) {
    Rank rank(group);
    std::vector<float> seen;
    const bool is_formed = rank.step_in_turn(0, seen).ok();
    formed.arrive_and_wait();
    ASSERT_TRUE(is_formed);
    const kernels::OpTable ops = stream_ops();
    rank.sink.begin_step(ops);
    rank.sink.enable_reduction();
    const int64_t first_of_second = rank.sink.buckets()[1].first_id;
    for (auto entry = rank.arena.entries.rbegin(); entry != rank.arena.entries.rend(); ++entry) {
      if (group.rank() == 0 && entry->id == first_of_second) world.nccl().refuse_calls();
      rank.add(*entry, 1);
      EXPECT_TRUE(rank.sink.ready(entry->id).ok());
    }
    EXPECT_TRUE(rank.sink.finish().ok());
    const Status status = rank.sink.wait();
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("got invalid usage"), std::string::npos)
        << status.error().message;
    EXPECT_TRUE(rank.sink.wait().ok());  // reported only once
  });
}

TEST(OverlapByHostMemory, TellsTheErrorOfACopyByFinish) {
  GpuWorld world({.size = 2});
  on_all(world.ranks(), [](comm::Communicator& group) {
    Rank rank(group);
    std::vector<float> seen;
    ASSERT_TRUE(rank.step_in_turn(0, seen).ok());
    if (group.rank() == 1) test::fake_gpu(1)->fail_after(1);
    const Status status = rank.issue_step(0, seen);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("the fake device has failed"), std::string::npos)
        << status.error().message;
  });
  test::fake_gpu(1)->fail_after(-1);
}

}  // namespace
}  // namespace lockstep::parallel
