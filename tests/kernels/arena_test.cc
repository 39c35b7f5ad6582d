#include "kernels/device/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "common/base/random.h"
#include "kernels/device/device_errors.h"
#include "kernels/device/host_pin.h"

namespace lockstep::kernels {
namespace {

TEST(BytesText, HasThreeDigitsAndIsNeverMoreThanThereIs) {
  EXPECT_EQ(bytes_text(0), "0 bytes");
  EXPECT_EQ(bytes_text(1), "1 byte");
  EXPECT_EQ(bytes_text(1023), "1023 bytes");
  EXPECT_EQ(bytes_text(1024), "1.00 KiB");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text((uint64_t{10} << 20) - 1), "9.99 MiB");
  EXPECT_EQ(bytes_text(uint64_t{1} << 30), "1.00 GiB");
  EXPECT_EQ(bytes_text((uint64_t{1} << 40) - 1), "1023 GiB");
  EXPECT_EQ(bytes_text(84'990'000'000), "79.1 GiB");
  EXPECT_EQ(bytes_text(UINT64_MAX).substr(2), ".0 EiB");
}

TEST(Words, OfAFailedCallNameTheCallTheFileTheLineAndTheDevice) {
  const Error error = call_error({.call = "cudaMalloc(&data, bytes)",
                                  .file = "/somewhere/kernels/device/cuda_api.cc",
                                  .line = 72,
                                  .device = {DeviceType::kCuda, 1}},
                                 "invalid argument");
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_EQ(error.message,
            "[cuda] cudaMalloc(&data, bytes) at cuda_api.cc:72 on CUDA device 1 failed: invalid "
            "argument");
}

TEST(Words, OfMemoryThatIsNotThereSayWhatWasAskedForForWhatAndWhatWouldFit) {
  FailedAllocation failed{.device = {DeviceType::kCuda, 0},
                          .bytes = uint64_t{4} << 30,
                          .by = "gradients",
                          .free_bytes = uint64_t{1} << 30,
                          .total_bytes = uint64_t{8} << 30};
  EXPECT_EQ(out_of_memory(failed).message,
            "[memory] 4.00 GiB (4294967296 bytes) for gradients on CUDA device 0: 1.00 GiB of "
            "8.00 GiB are free, 3.00 GiB short; at most 1073741824 bytes fit");
  failed.free_bytes = uint64_t{5} << 30;
  EXPECT_EQ(out_of_memory(failed).message,
            "[memory] 4.00 GiB (4294967296 bytes) for gradients on CUDA device 0: 5.00 GiB of "
            "8.00 GiB are free, but fragmented");
  failed = {.bytes = 10, .by = "staging"};
  EXPECT_EQ(out_of_memory(failed).message,
            "[memory] 10 bytes (10 bytes) for staging on CPU: allocation failed");
}

TEST(Buffer, OfMoreThanThereIsIsRefusedWithItsPurpose) {
  const auto buffer = Buffer::allocate({}, SIZE_MAX - 10, "the whole world");
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, Code::kUnavailable);
  EXPECT_NE(buffer.error().message.find("for the whole world on CPU"), std::string::npos);
  EXPECT_FALSE(PinnedBuffer::allocate({}, SIZE_MAX / 2, "too much").ok());
}

TEST(PinnedBuffer, OfTheCpuIsOrdinaryMemory) {
  auto made = PinnedBuffer::allocate({}, 100);
  ASSERT_TRUE(made.ok());
  const PinnedBuffer buffer = std::move(made).value();
  EXPECT_EQ(buffer.bytes(), 100U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0U);
  std::memset(buffer.data(), 1, buffer.bytes());
  EXPECT_EQ(PinnedBuffer::allocate({}, 0)->data(), nullptr);
}

TEST(HostPin, DoesNothingForTheCpuAndNeedsADeviceOtherwise) {
  std::vector<char> memory(100);
  EXPECT_TRUE(HostPin::lock({}, {memory.data(), memory.size()}, "a test").ok());
  const Device past_the_last{DeviceType::kCuda, device_count(DeviceType::kCuda)};
  EXPECT_FALSE(HostPin::lock(past_the_last, {memory.data(), memory.size()}, "a test").ok());
}

TEST(Event, OfTheCpuHasAlwaysPassed) {
  auto event = Event::create({});
  ASSERT_TRUE(event.ok());
  EXPECT_TRUE(event->record(nullptr).ok());
  EXPECT_TRUE(event->make_stream_wait(nullptr).ok());
  EXPECT_TRUE(event->passed().value());
  EXPECT_TRUE(event->synchronize().ok());
  EXPECT_EQ(event->seconds_until(*event).error().code, Code::kUnavailable);
}

TEST(Device, WithoutCudaNothingOfItIsThere) {
  const Device past_the_last{DeviceType::kCuda, device_count(DeviceType::kCuda)};
  EXPECT_FALSE(Event::create(past_the_last).ok());
  EXPECT_FALSE(PinnedBuffer::allocate(past_the_last, 16).ok());
  EXPECT_FALSE(memory_of(past_the_last).ok());
  EXPECT_EQ(Stream::create(past_the_last).error().code, Code::kUnavailable);
  const auto cpu = memory_of({});
  ASSERT_TRUE(cpu.ok());
  EXPECT_GT(cpu->total_bytes, cpu->free_bytes);
}

TEST(ArenaPlan, PutsTheUsesOneBehindTheOtherAndTheWishesInTheirOrder) {
  const auto plan = plan_arena({{ArenaUse::kWorkspace, "matmul", 300},
                                {ArenaUse::kParameters, "wte", 600},
                                {ArenaUse::kOptimizer, "none", 0},
                                {ArenaUse::kParameters, "wpe", 400}});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->parts[1].offset, 0U);
  EXPECT_EQ(plan->parts[3].offset, 768U);
  EXPECT_EQ(plan->parts[0].offset, 1280U);
  EXPECT_EQ(plan->bytes, 1580U);
  EXPECT_EQ(bytes_of(*plan, ArenaUse::kParameters), 1000U);
}

TEST(Arena, LeavesItsReserveFreeAndSaysSoWhereThatIsNotThere) {
  ArenaPlan plan = plan_arena({{ArenaUse::kParameters, "wte", 600}}).value();
  plan.reserve = uint64_t{1} << 49;
  const auto refused = Arena::allocate({}, plan);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_NE(
      refused.error().message.find("an arena of parameters 600 bytes, and 512 TiB for libraries"),
      std::string::npos)
      << refused.error().message;
  plan.reserve = 1;
  EXPECT_TRUE(Arena::allocate({}, plan).ok());
}

TEST(Arena, OfPageLockedMemoryHasTheSameParts) {
  const ArenaPlan plan = plan_arena({{ArenaUse::kWorkspace, "a", 100},
                                     {ArenaUse::kWorkspace, "none", 0},
                                     {ArenaUse::kWorkspace, "b", 50}})
                             .value();
  const Arena arena = Arena::allocate_pinned({}, plan).value();
  auto* first = static_cast<char*>(arena.at(0));
  std::memset(first, 1, 100);
  EXPECT_EQ(arena.at(1), nullptr);
  EXPECT_EQ(static_cast<char*>(arena.at(2)), first + plan.parts[2].offset);
  std::memset(arena.at(2), 2, 50);
  EXPECT_EQ(first[99], 1);
  const Device past_the_last{DeviceType::kCuda, device_count(DeviceType::kCuda)};
  EXPECT_FALSE(Arena::allocate_pinned(past_the_last, plan).ok());
}

TEST(ArenaPlan, OfRandomWishesGivesNoByteTwice) {
  constexpr uint64_t kSeed = 20261122;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<ArenaRequest> requests(random.below(20));
    for (ArenaRequest& request : requests) {
      request = {static_cast<ArenaUse>(random.below(kArenaUses)), "w", random.below(3000)};
    }
    const auto plan = plan_arena(requests);
    ASSERT_TRUE(plan.ok());
    std::vector<bool> taken(plan->bytes);
    for (size_t i = 0; i < requests.size(); ++i) {
      const ArenaPart& part = plan->parts[i];
      EXPECT_EQ(part.bytes, requests[i].bytes);
      EXPECT_EQ(part.offset % kArenaAlign, 0U);
      ASSERT_LE(part.offset + part.bytes, plan->bytes);
      for (uint64_t at = part.offset; at < part.offset + part.bytes; ++at) {
        ASSERT_FALSE(taken[at]);
        taken[at] = true;
      }
    }
  }
}

TEST(ArenaPlan, RefusesSumsThatNoMachineHas) {
  EXPECT_FALSE(plan_arena({{ArenaUse::kGradients, "huge", UINT64_MAX}}).ok());
  const auto two = plan_arena({{ArenaUse::kGradients, "first", kArenaBytesMax / 2 + 1},
                               {ArenaUse::kGradients, "second", kArenaBytesMax / 2}});
  ASSERT_FALSE(two.ok());
  EXPECT_EQ(two.error().code, Code::kInvalid);
  EXPECT_NE(two.error().message.find("for second"), std::string::npos);
}

TEST(Arena, IsOneZeroedAllocationAndSaysItsPartsWhereItCannotBeHad) {
  auto plan = plan_arena({{ArenaUse::kParameters, "a", 100}, {ArenaUse::kGradients, "b", 0}});
  ASSERT_TRUE(plan.ok());
  const auto arena = Arena::allocate({}, *plan);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(*static_cast<const char*>(arena->at(0)), 0);
  EXPECT_EQ(arena->at(1), nullptr);
  EXPECT_EQ(arena->workspace(0).bytes, 100U);
  auto huge = plan_arena({{ArenaUse::kParameters, "a", kArenaBytesMax}});
  ASSERT_TRUE(huge.ok());
  const auto refused = Arena::allocate({}, *huge);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("for an arena of parameters 1.00 PiB"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace lockstep::kernels
