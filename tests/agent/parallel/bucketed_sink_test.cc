#include "agent/parallel/bucketed_sink.h"

#include <gtest/gtest.h>

#include <span>
#include <thread>
#include <vector>

#include "agent/comm/make_communicator.h"

namespace lockstep::parallel {
namespace {

const ModelConfig kConfig{1, 16, 1, 8, 32};

ParameterArena small_arena() {
  return parameter_arena(kConfig, whole_model(kConfig));
}

// A sink and the memory it uses.
struct Given {
  std::vector<float> gradients = std::vector<float>(static_cast<size_t>(small_arena().count));
  kernels::Stream stream;
  BucketedSink sink;

  explicit Given(comm::Communicator& group)
      : sink(BucketedSink::create({.buckets = {.arena = small_arena(),
                                               .bucket_bytes = 2048,
                                               .gradients = gradients.data()}},
                                  group, kernels::cpu_ops(), {stream, stream})
                 .value()) {}
};

// Adds `value` to every gradient, from the last to the first, like a backward pass.
void backward(BucketedSink& sink, std::span<const ArenaEntry> entries, float value) {
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    float* gradient = sink.buffer(entry->id);
    for (int64_t i = 0; i < entry->count; ++i) gradient[i] += value;
    ASSERT_TRUE(sink.ready(entry->id).ok());
  }
  ASSERT_TRUE(sink.end_micro_batch().ok());
}
void backward(BucketedSink& sink, const ParameterArena& arena, float value) {
  backward(sink, arena.entries, value);
}

void expect_all(BucketedSink& sink, const ParameterArena& arena, float value) {
  for (const ArenaEntry& entry : arena.entries) {
    const float* gradient = sink.buffer(entry.id);
    for (int64_t i = 0; i < entry.count; ++i) ASSERT_EQ(gradient[i], value) << entry.id;
  }
}

// Runs one rank's two steps of three micro-batches; its gradients are rank + 1.
void train_rank(comm::Communicator& group) {
  const ParameterArena arena = small_arena();
  Given given(group);
  BucketedSink* sink = &given.sink;
  ASSERT_GE(sink->buckets().size(), 3u);
  const auto own = static_cast<float>(group.rank() + 1);
  const auto all = static_cast<float>(group.size() * (group.size() + 1) / 2);
  for (int step = 0; step < 2; ++step) {
    sink->begin_step(kernels::cpu_ops());
    backward(*sink, arena, own);
    backward(*sink, arena, own);
    expect_all(*sink, arena, 2 * own);  // nothing was sent before the last one
    sink->enable_reduction();
    backward(*sink, arena, own);
    ASSERT_TRUE(sink->finish().ok());
    expect_all(*sink, arena, 3 * all);
  }
}

TEST(BucketedSink, SumsOverMicroBatchesAndRanks) {
  for (const int size : {1, 2, 4}) {
    auto world = comm::make_thread_world(size);
    ASSERT_TRUE(world.ok());
    std::vector<std::jthread> ranks;
    for (auto& group : *world) ranks.emplace_back([&group] { train_rank(*group); });
  }
}

// The chunk with the head completes the tied embedding, which is in a bucket with parameters of a
// chunk that is complete later.
TEST(BucketedSink, SumsTheGradientsOfChunksWithATiedEmbedding) {
  const ParameterArena arena = small_arena();
  std::vector<ArenaEntry> first(arena.entries.begin() + 1, arena.entries.begin() + 7);
  std::vector<ArenaEntry> last(arena.entries.begin() + 7, arena.entries.end());
  last.insert(last.begin(), arena.entries.front());
  auto world = comm::make_thread_world(2);
  ASSERT_TRUE(world.ok());
  std::vector<std::jthread> ranks;
  for (auto& group : *world) {
    ranks.emplace_back([&, group = group.get()] {
      Given given(*group);
      given.sink.begin_step(kernels::cpu_ops());
      backward(given.sink, last, 1);
      given.sink.enable_reduction();
      backward(given.sink, last, 1);
      backward(given.sink, first, 1);  // after a backward that completed another chunk
      given.sink.enable_reduction();
      backward(given.sink, first, 1);
      ASSERT_TRUE(given.sink.finish().ok());
      expect_all(given.sink, arena, 4);
    });
  }
}

TEST(BucketedSink, SendsEachBucketWhileBackwardGoesOn) {
  auto world = comm::make_thread_world(2);
  ASSERT_TRUE(world.ok());
  std::vector<std::jthread> ranks;
  for (auto& group : *world) {
    ranks.emplace_back([&group] {
      Given given(*group);
      BucketedSink* sink = &given.sink;
      sink->begin_step(kernels::cpu_ops());
      sink->enable_reduction();
      const uint64_t before = group->counts().completed;
      // Both ranks have completed their first bucket and do nothing else; it must still be reduced.
      const Bucket& first = sink->buckets().front();
      for (int64_t id = first.last_id; id >= first.first_id; --id) {
        ASSERT_TRUE(sink->ready(id).ok());
      }
      while (group->counts().completed == before) std::this_thread::yield();
      for (int64_t id = first.first_id - 1; id >= 0; --id) ASSERT_TRUE(sink->ready(id).ok());
      ASSERT_TRUE(sink->end_micro_batch().ok());
      ASSERT_TRUE(sink->finish().ok());
    });
  }
}

TEST(BucketedSink, ReportsAPeerThatIsGone) {
  auto world = comm::make_thread_world(2);
  ASSERT_TRUE(world.ok());
  const ParameterArena arena = small_arena();
  Given given(*world->front());
  BucketedSink* sink = &given.sink;
  sink->begin_step(kernels::cpu_ops());
  sink->enable_reduction();
  backward(*sink, arena, 1);
  world->back()->abort("gone");
  EXPECT_FALSE(sink->finish().ok());
}

}  // namespace
}  // namespace lockstep::parallel
