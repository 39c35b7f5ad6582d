// Tests that the emulated device keeps CUDA's guarantees for streams, and exposes code that relies
// on more. An error need not show in every order: some of a few hundred seeds must show it, and no
// seed may report an error in correct code.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "kernels/device/cuda/intrinsics.cuh"
#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/host_pin.h"
#include "tests/support/emulated_cuda/devices.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr Device kDevice{DeviceType::kCuda, 0};
constexpr uint64_t kSeeds = 200;
constexpr int kThreads = 32;

__global__ void set_all(int32_t* to, int32_t value) {
  to[threadIdx.x] = value;
}
__global__ void copy_all(const int32_t* from, int32_t* to) {
  to[threadIdx.x] = from[threadIdx.x];
}
__global__ void times_and_plus(int32_t* values, int32_t factor, int32_t plus) {
  values[threadIdx.x] = values[threadIdx.x] * factor + plus;
}
__global__ void stop_short(int) {
  if (threadIdx.x < 5) sync_block();
}

LaunchShape one_warp(const char* name) {
  return {.name = name, .threads = kThreads};
}

struct Numbers {
  Numbers() : host(PinnedBuffer::allocate(kDevice, kBytes, "numbers on the host").value()) {}
  static constexpr size_t kBytes = kThreads * sizeof(int32_t);

  int32_t* on_device() const { return static_cast<int32_t*>(device.data()); }
  int32_t* on_host() const { return static_cast<int32_t*>(host.data()); }
  CopyArgs up() const { return {.to = device.data(), .from = host.data(), .bytes = kBytes}; }
  CopyArgs down() const { return {.to = host.data(), .from = device.data(), .bytes = kBytes}; }
  void fill(int32_t value) const { std::fill_n(on_host(), kThreads, value); }
  bool are(int32_t value) const {
    return std::all_of(on_host(), on_host() + kThreads, [=](int32_t v) { return v == value; });
  }

  Buffer device = Buffer::allocate(kDevice, kBytes, "numbers").value();
  PinnedBuffer host;
};

// The fixture of a case; its destructor waits until all of it is idle.
struct Ground {
  Stream a = Stream::create(kDevice).value();
  Stream b = Stream::create(kDevice).value();
  Event event = Event::create(kDevice).value();
  Numbers x, y;

  ~Ground() {
    EXPECT_TRUE(a.synchronize().ok());
    EXPECT_TRUE(b.synchronize().ok());
  }
};

// Returns the number of seeds for which `is_right` is false.
template <class Case>
uint64_t wrong_seeds(Case is_right) {
  uint64_t wrong = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    emulated_cuda::set_seed(seed);
    Ground ground;
    wrong += is_right(ground) ? 0 : 1;
  }
  return wrong;
}

void expect_ok(const Status& status) {
  EXPECT_TRUE(status.ok());
}

// One stream reads what another one writes.
bool reads_what_was_written(Ground& g, bool with_event) {
  launch(g.a, one_warp("set_all"), set_all, g.x.on_device(), 7);
  EXPECT_TRUE(g.event.record(g.a.handle()).ok());
  if (with_event) expect_ok(g.event.make_stream_wait(g.b.handle()));
  launch(g.b, one_warp("copy_all"), copy_all, g.x.on_device(), g.y.on_device());
  EXPECT_TRUE(copy_bytes(g.b, g.y.down()).ok());
  EXPECT_TRUE(g.b.synchronize().ok());
  return g.y.are(7);
}

TEST(EmulatedStreams, ShowThatAnEventIsMissingBetweenWriterAndReader) {
  EXPECT_EQ(wrong_seeds([](Ground& g) { return reads_what_was_written(g, true); }), 0u);
  EXPECT_GT(wrong_seeds([](Ground& g) { return reads_what_was_written(g, false); }), kSeeds / 10);
}

// One stream overwrites what another stream, issued earlier, must read first.
bool is_read_before_it_is_written_anew(Ground& g, bool with_event) {
  launch(g.b, one_warp("copy_all"), copy_all, g.x.on_device(), g.y.on_device());
  EXPECT_TRUE(g.event.record(g.b.handle()).ok());
  if (with_event) expect_ok(g.event.make_stream_wait(g.a.handle()));
  launch(g.a, one_warp("set_all"), set_all, g.x.on_device(), 7);
  EXPECT_TRUE(copy_bytes(g.b, g.y.down()).ok());
  EXPECT_TRUE(g.b.synchronize().ok());
  return g.y.are(0);
}

TEST(EmulatedStreams, ShowThatAnEventIsMissingBetweenReaderAndNextWriter) {
  EXPECT_EQ(wrong_seeds([](Ground& g) { return is_read_before_it_is_written_anew(g, true); }), 0u);
  EXPECT_GT(wrong_seeds([](Ground& g) { return is_read_before_it_is_written_anew(g, false); }),
            kSeeds / 10);
}

bool sends_what_was_there(Ground& g, bool waits) {
  g.x.fill(7);
  EXPECT_TRUE(copy_bytes(g.a, g.x.up()).ok());
  EXPECT_TRUE(g.event.record(g.a.handle()).ok());
  if (waits) expect_ok(g.event.synchronize());
  g.x.fill(8);
  EXPECT_TRUE(copy_bytes(g.a, {g.y.on_host(), g.x.on_device(), Numbers::kBytes}).ok());
  EXPECT_TRUE(g.a.synchronize().ok());
  return g.y.are(7);
}

TEST(EmulatedStreams, ShowThatPageLockedMemoryIsReusedTooEarly) {
  EXPECT_EQ(wrong_seeds([](Ground& g) { return sends_what_was_there(g, true); }), 0u);
  EXPECT_GT(wrong_seeds([](Ground& g) { return sends_what_was_there(g, false); }), kSeeds / 10);
}

// Fills the memory after the copy was issued; the copy may not have started yet.
TEST(EmulatedStreams, ShowThatPageLockedMemoryIsFilledTooLate) {
  EXPECT_GT(wrong_seeds([](Ground& g) {
              g.x.fill(0);
              EXPECT_TRUE(copy_bytes(g.a, g.x.up()).ok());
              g.x.fill(7);
              EXPECT_TRUE(copy_bytes(g.a, g.x.down()).ok());
              EXPECT_TRUE(g.a.synchronize().ok());
              return g.x.are(7);
            }),
            kSeeds / 10);
}

// Copies past the end of page-locked memory fail; those of pageable memory are not checked.
TEST(EmulatedStreams, TreatMemoryFromElsewhereAsPageLockedWhileItIs) {
  Ground g;
  std::vector<int32_t> there(2 * kThreads, 7);
  const CopyArgs up{
      .to = g.x.on_device(), .from = there.data() + kThreads / 2, .bytes = Numbers::kBytes};
  {
    const auto pin = HostPin::lock(kDevice, {there.data(), Numbers::kBytes}, "a test");
    ASSERT_TRUE(pin.ok());
    EXPECT_FALSE(HostPin::lock(kDevice, {there.data(), Numbers::kBytes}, "a test").ok());
    EXPECT_FALSE(copy_bytes(g.a, up).ok());
  }
  EXPECT_TRUE(copy_bytes(g.a, up).ok());
  EXPECT_TRUE(copy_bytes(g.a, g.x.down()).ok());
  EXPECT_TRUE(g.a.synchronize().ok());
  EXPECT_TRUE(g.x.are(7));
}

bool has_results(Ground& g, bool waits) {
  launch(g.a, one_warp("set_all"), set_all, g.x.on_device(), 7);
  EXPECT_TRUE(copy_bytes(g.a, g.x.down()).ok());
  if (waits) expect_ok(g.a.synchronize());
  return g.x.are(waits ? 7 : -1);  // -1: initial content of pinned memory
}

TEST(EmulatedStreams, LeaveThePoisonInResultsThatNobodyWaitedFor) {
  EXPECT_EQ(wrong_seeds([](Ground& g) { return has_results(g, true); }), 0u);
  EXPECT_LT(wrong_seeds([](Ground& g) { return has_results(g, false); }), kSeeds * 8 / 10);
}

// Pageable memory may be read, and likewise written, immediately or later.
TEST(EmulatedStreams, PromiseNothingOfPageableMemoryBeforeTheyAreWaitedFor) {
  std::vector<int32_t> there(kThreads), back(kThreads);
  uint64_t sent_late = 0, received_late = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    emulated_cuda::set_seed(seed);
    Ground g;
    std::ranges::fill(there, 7);
    std::ranges::fill(back, 0);
    ASSERT_TRUE(copy_bytes(g.a, {g.x.on_device(), there.data(), Numbers::kBytes}).ok());
    std::ranges::fill(there, 8);
    ASSERT_TRUE(copy_bytes(g.a, {back.data(), g.x.on_device(), Numbers::kBytes}).ok());
    received_late += back[0] == 0 ? 1 : 0;
    ASSERT_TRUE(g.a.synchronize().ok());
    ASSERT_TRUE(back[0] == 7 || back[0] == 8) << seed;
    sent_late += back[0] == 8 ? 1 : 0;
  }
  for (const uint64_t late : {sent_late, received_late}) {
    EXPECT_GT(late, kSeeds / 10);
    EXPECT_LT(late, kSeeds * 9 / 10);
  }
}

TEST(EmulatedStreams, CopyFromHostToHostBeforeTheyReturn) {
  EXPECT_EQ(wrong_seeds([](Ground& g) {
              g.x.fill(7);
              EXPECT_TRUE(copy_bytes(g.a, {g.y.on_host(), g.x.on_host(), Numbers::kBytes}).ok());
              return g.y.are(7);
            }),
            0u);
}

TEST(EmulatedStreams, KeepTheOrderWithinEach) {
  EXPECT_EQ(wrong_seeds([](Ground& g) {
              int32_t expected = 0;
              for (int32_t i = 1; i <= 10; ++i) {
                expected = expected * 3 + i;
                launch(g.a, one_warp("times_and_plus"), times_and_plus, g.x.on_device(), 3, i);
                launch(g.b, one_warp("times_and_plus"), times_and_plus, g.y.on_device(), 3, i);
              }
              EXPECT_TRUE(copy_bytes(g.a, g.x.down()).ok());
              EXPECT_TRUE(copy_bytes(g.b, g.y.down()).ok());
              EXPECT_TRUE(g.b.synchronize().ok());
              EXPECT_TRUE(g.a.synchronize().ok());
              return g.x.are(expected) && g.y.are(expected);
            }),
            0u);
}

// The seed determines what runs and in which order.
TEST(EmulatedStreams, RunInOneOrderForOneSeed) {
  const auto order_of = [](uint64_t seed) {
    emulated_cuda::set_seed(seed);
    Ground g;
    std::vector<int> order;
    for (int i = 0; i < 8; ++i) {
      for (Stream* stream : {&g.a, &g.b}) {
        const int number = stream == &g.a ? i : 100 + i;
        EXPECT_TRUE(emulated_cuda::issue(stream->handle(), [&order, number](uint64_t) {
                      order.push_back(number);
                      return Status();
                    }).ok());
      }
    }
    EXPECT_TRUE(g.a.synchronize().ok());
    EXPECT_TRUE(g.b.synchronize().ok());
    return order;
  };
  std::vector<std::vector<int>> orders;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    orders.push_back(order_of(seed));
    EXPECT_EQ(order_of(seed), orders.back());
  }
  std::ranges::sort(orders);
  orders.erase(std::unique(orders.begin(), orders.end()), orders.end());
  EXPECT_GT(orders.size(), 10u);
}

TEST(EmulatedEvents, AreWhereTheyWereRecordedLastWhenTheyWereWaitedFor) {
  EXPECT_EQ(wrong_seeds([](Ground& g) {
              EXPECT_TRUE(g.event.make_stream_wait(g.b.handle()).ok()) << "never recorded: no wait";
              EXPECT_TRUE(g.event.passed().value());
              EXPECT_TRUE(g.event.synchronize().ok());
              launch(g.a, one_warp("set_all"), set_all, g.x.on_device(), 7);
              EXPECT_TRUE(g.event.record(g.a.handle()).ok());
              EXPECT_TRUE(g.event.make_stream_wait(g.b.handle()).ok());
              // A wait applies to the record before it, not to a later one.
              EXPECT_TRUE(g.event.record(g.b.handle()).ok());
              launch(g.b, one_warp("copy_all"), copy_all, g.x.on_device(), g.y.on_device());
              EXPECT_TRUE(copy_bytes(g.b, g.y.down()).ok());
              EXPECT_TRUE(g.b.synchronize().ok());
              EXPECT_TRUE(g.event.passed().value());
              return g.y.are(7);
            }),
            0u);
}

TEST(EmulatedEvents, PassForWhoAsksOftenEnough) {
  uint64_t asked = 0;
  EXPECT_EQ(wrong_seeds([&asked](Ground& g) {
              for (int32_t i = 0; i < 40; ++i) {
                launch(g.a, one_warp("set_all"), set_all, g.x.on_device(), i);
              }
              EXPECT_TRUE(copy_bytes(g.a, g.x.down()).ok());
              EXPECT_TRUE(g.event.record(g.a.handle()).ok());
              while (!g.event.passed().value()) ++asked;
              return g.x.are(39);
            }),
            0u);
  EXPECT_GT(asked, kSeeds);
}

// Their work is not lost.
TEST(EmulatedStreams, GoOnWhenTheyAreDestroyed) {
  EXPECT_EQ(wrong_seeds([](Ground& g) {
              {
                Stream short_lived = Stream::create(kDevice).value();
                launch(short_lived, one_warp("set_all"), set_all, g.x.on_device(), 7);
                EXPECT_TRUE(g.event.record(short_lived.handle()).ok());
              }
              EXPECT_TRUE(g.event.make_stream_wait(g.a.handle()).ok());
              EXPECT_TRUE(copy_bytes(g.a, g.x.down()).ok());
              EXPECT_TRUE(g.a.synchronize().ok());
              return g.x.are(7);
            }),
            0u);
}

TEST(EmulatedDevice, IsBrokenForGoodByAKernelThatFails) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    emulated_cuda::set_seed(seed);
    {
      Ground g;
      launch(g.a, one_warp("stop_short"), stop_short, 0);
      launch(g.a, one_warp("set_all"), set_all, g.x.on_device(), 7);
      for (int i = 0; i < 2; ++i) {
        const Status status = g.a.synchronize();
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().message.find("stop_short"), std::string::npos);
      }
      for (const Status& status :
           {Status(Stream::create(kDevice).error()), Status(Buffer::allocate(kDevice, 8).error()),
            Status(Event::create(kDevice).error()), g.event.record(g.b.handle()),
            copy_bytes(g.b, g.x.up()), Status(g.event.passed().error())}) {
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().message.find("stop_short"), std::string::npos);
      }
      emulated_cuda::reset_devices();
      EXPECT_TRUE(copy_bytes(g.a, g.x.down()).ok());
      EXPECT_TRUE(g.a.synchronize().ok());
      EXPECT_TRUE(g.x.are(0)) << "what came behind the failed kernel was dropped";
    }
  }
}

TEST(EmulatedDevice, RefusesWhatIsNoStreamNoEventOrBeyondAnAllocation) {
  Ground g;
  void* gone = Stream::create(kDevice).value().handle();
  const Status refused = g.event.record(gone);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("no such stream"), std::string::npos);
  EXPECT_FALSE(copy_bytes(kDevice, nullptr, g.x.up()).ok());
  for (CopyArgs args : {g.x.up(), g.x.down()}) {
    args.bytes += 1;
    const Status status = copy_bytes(g.a, args);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("129 bytes where an allocation has 128 left"),
              std::string::npos)
        << status.error().message;
  }
}

// Like a collective whose other ranks are late.
TEST(EmulatedStreams, LetOthersGoOnBesideWorkThatWaits) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    emulated_cuda::set_seed(seed);
    Ground g;
    std::promise<void> other_rank;
    launch(g.a, one_warp("set_all"), set_all, g.x.on_device(), 7);
    ASSERT_TRUE(emulated_cuda::issue_blocking(g.a.handle(), [&] {
                  other_rank.get_future().wait();
                  *g.x.on_device() = 8;
                }).ok());
    ASSERT_TRUE(copy_bytes(g.a, g.x.down()).ok());
    ASSERT_TRUE(g.event.record(g.a.handle()).ok());
    launch(g.b, one_warp("set_all"), set_all, g.y.on_device(), 9);
    ASSERT_TRUE(copy_bytes(g.b, g.y.down()).ok());
    ASSERT_TRUE(g.b.synchronize().ok());
    EXPECT_TRUE(g.y.are(9));
    EXPECT_FALSE(g.event.passed().value());
    other_rank.set_value();
    ASSERT_TRUE(g.a.synchronize().ok());
    EXPECT_EQ(g.x.on_host()[0], 8);
    EXPECT_EQ(g.x.on_host()[1], 7);
  }
}

TEST(EmulatedDevice, ServesSeveralHostThreadsAtOnce) {
  std::vector<std::jthread> threads;
  std::atomic<int> right = 0;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&right] {
      for (int round = 0; round < 50; ++round) {
        Ground g;
        launch(g.a, one_warp("set_all"), set_all, g.x.on_device(), round);
        if (!g.event.record(g.a.handle()).ok() || !g.event.make_stream_wait(g.b.handle()).ok())
          return;
        if (!copy_bytes(g.b, g.x.down()).ok() || !g.b.synchronize().ok()) return;
        right += g.x.are(round) ? 1 : 0;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(right.load(), 4 * 50);
}

}  // namespace

}  // namespace lockstep::kernels::cuda
