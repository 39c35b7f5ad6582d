// Objects with their own streams keep the order of their operations, whichever stream the device
// executes first.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "agent/train/data/device_feed.h"
#include "agent/train/data/token_windows.h"
#include "tests/agent/train/device_ranks.h"
#include "tests/support/emulated_cuda/devices.h"

namespace lockstep::train {
namespace {

// Reads device memory in stream order.
template <class T>
void read_in_turn(kernels::Stream& stream, const T* from, std::vector<T>& to) {
  EXPECT_TRUE(emulated_cuda::issue(stream.handle(), [from, &to](uint64_t) {
                std::copy_n(from, to.size(), to.data());
                return Status();
              }).ok());
}

TEST(EmulatedDeviceFeed, GivesEveryReaderItsBatchInWhateverOrderStreamsRun) {
  constexpr int64_t kRows = 2, kBatches = 6;
  constexpr size_t kTokens = kRows * kContext;
  constexpr size_t kSlotBytes = 2 * kTokens * sizeof(int32_t);  // tokens and targets
  TemporaryFolder folder;
  std::string text(4000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i % 251);
  const TokenSource source =
      TokenSource::open({folder.write("text", text), TokenWidth::kByte, 256}).value();
  const DataSplit split = split_data({.tokens = 4000, .context = kContext}, "text").value();
  const TokenWindows windows(source, split);
  const BatchLoaderOptions options{.shape = {.micro = kRows}, .seed = 7};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    emulated_cuda::set_seed(seed);
    kernels::Stream compute = kernels::Stream::create(kCuda).value();
    BatchLoader loader(windows, options), expected(windows, options);
    std::array<kernels::Buffer, 2> slots;
    std::array<kernels::PinnedBuffer, 2> pinned;
    std::array<parallel::BatchMemory, 2> memory;
    for (size_t i = 0; i < slots.size(); ++i) {
      slots[i] = kernels::Buffer::allocate(kCuda, kSlotBytes).value();
      pinned[i] = kernels::PinnedBuffer::allocate(kCuda, kSlotBytes).value();
      memory[i] = {slots[i].workspace(), {pinned[i].data(), pinned[i].bytes()}};
    }
    const auto feed = DeviceFeed::create(loader, compute, memory).value();
    std::vector<std::vector<int32_t>> tokens(kBatches, std::vector<int32_t>(kTokens)),
        targets = tokens;
    for (size_t i = 0; i < kBatches; ++i) {
      const parallel::DeviceBatch batch = feed->next().value().value();
      read_in_turn(compute, batch.tensor<int32_t>(TokenWindows::kTokens), tokens[i]);
      read_in_turn(compute, batch.tensor<int32_t>(TokenWindows::kTargets), targets[i]);
    }
    ASSERT_TRUE(compute.synchronize().ok());
    for (size_t i = 0; i < kBatches; ++i) {
      const SampleBatch& batch = *expected.next().value();
      ASSERT_TRUE(std::ranges::equal(tokens[i], batch.values<int32_t>(TokenWindows::kTokens)))
          << "seed " << seed << ", batch " << i;
      ASSERT_TRUE(std::ranges::equal(targets[i], batch.values<int32_t>(TokenWindows::kTargets)))
          << "seed " << seed << ", batch " << i;
    }
  }
}

class EmulatedReduction : public testing::TestWithParam<GradientPath> {};

// A reduction sees work issued on the stream before it, and work issued afterwards sees its result.
TEST_P(EmulatedReduction, HasItsPlaceInTheOrderOfItsStream) {
  constexpr size_t kCount = 3000;
  constexpr int kRounds = 4, kRanks = 2;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    emulated_cuda::set_seed(seed);
    on_device_ranks(kRanks, GetParam(), [seed](comm::Communicator& group, kernels::Device device) {
      kernels::Stream stream = kernels::Stream::create(device).value();
      const kernels::Buffer buffer =
          kernels::Buffer::allocate(device, kCount * sizeof(float)).value();
      std::vector<std::vector<float>> found(kRounds, std::vector<float>(kCount));
      std::vector<comm::Work> works;
      for (int round = 0; round < kRounds; ++round) {
        const auto value = static_cast<float>(10 * round + group.rank());
        EXPECT_TRUE(emulated_cuda::issue(stream.handle(), [&buffer, value](uint64_t) {
                      std::fill_n(buffer.f32(), kCount, value);
                      return Status();
                    }).ok());
        works.push_back(group.start_all_reduce(
            {.data = buffer.data(), .count = kCount, .device = device, .stream = stream.handle()},
            comm::ReduceOp::kSum));
        if (!group.device_traits().is_stream_ordered) {
          EXPECT_TRUE(works.back().wait().ok());
        }
        read_in_turn(stream, buffer.f32(), found[static_cast<size_t>(round)]);
      }
      EXPECT_TRUE(stream.synchronize().ok());
      for (comm::Work& work : works) EXPECT_TRUE(work.wait().ok());
      for (int round = 0; round < kRounds; ++round) {
        EXPECT_EQ(found[static_cast<size_t>(round)],
                  std::vector<float>(kCount, static_cast<float>(20 * round + 1)))
            << "seed " << seed << ", round " << round;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, EmulatedReduction,
                         testing::Values(GradientPath::kHostMemory, GradientPath::kNccl),
                         [](const auto& info) {
                           return info.param == GradientPath::kNccl ? "ByNccl" : "ByHostMemory";
                         });

}  // namespace
}  // namespace lockstep::train
