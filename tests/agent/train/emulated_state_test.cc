// How the host reads and writes a model's state on an emulated CUDA device, and the bytes this
// allocates and copies.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "agent/model/init.h"
#include "agent/train/weights/hugging_face.h"
#include "agent/train/weights/import_weights.h"
#include "agent/train/weights/weight_files.h"
#include "common/base/random.h"
#include "tests/agent/train/training.h"
#include "tests/agent/train/whole_state.h"
#include "tests/support/emulated_cuda/memory_use.h"

namespace lockstep::train {
namespace {

using emulated_cuda::memory_use;
using emulated_cuda::MemoryUse;

// An array of numbers on the device, and runs of it.
struct Numbers {
  static constexpr int64_t kCount = 1000;
  kernels::Stream stream = kernels::Stream::create(kCuda).value();
  kernels::Buffer device = kernels::Buffer::allocate(kCuda, kCount * sizeof(float)).value();
  std::vector<float> host = std::vector<float>(kCount);

  Numbers() {
    std::iota(host.begin(), host.end(), 1.0f);
    EXPECT_TRUE(kernels::copy_bytes(stream, {device.data(), host.data(), device.bytes()}).ok());
    EXPECT_TRUE(stream.synchronize().ok());
  }
  std::vector<float> read() {
    std::vector<float> values(kCount);
    EXPECT_TRUE(kernels::copy_bytes(stream, {values.data(), device.data(), device.bytes()}).ok());
    EXPECT_TRUE(stream.synchronize().ok());
    return values;
  }
  // Returns runs of random lengths, including empty ones, in random order.
  std::vector<parallel::ValueRun> runs(Random& random, std::vector<float>& values) const {
    std::vector<parallel::ValueRun> some;
    for (uint64_t n = random.below(8); n-- > 0;) {
      const auto begin = static_cast<int64_t>(random.below(kCount));
      const auto count = static_cast<int64_t>(random.below(2) * random.below(kCount - begin + 1));
      some.push_back({device.f32() + begin, count});
      values.insert(values.end(), host.begin() + begin, host.begin() + begin + count);
    }
    return some;
  }
};

// Two page-locked buffers of a HostTransfer.
struct Pieces {
  kernels::PinnedBuffer memory;
  parallel::HostTransfer::Buffers buffers;

  explicit Pieces(size_t piece_bytes)
      : memory(kernels::PinnedBuffer::allocate(kCuda, 2 * piece_bytes).value()) {
    auto* begin = static_cast<std::byte*>(memory.data());
    buffers = {kernels::Workspace{begin, piece_bytes},
               kernels::Workspace{begin + piece_bytes, piece_bytes}};
  }
};

TEST(HostTransfer, ReadsAllRunsInOrderThroughBuffersOfAnySize) {
  Numbers numbers;
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    const size_t piece_bytes = (1 + random.below(round % 2 == 0 ? 5 : 1500)) * sizeof(float);
    const Pieces pieces(piece_bytes);
    parallel::HostTransfer transfer(numbers.stream, pieces.buffers);
    std::vector<float> expected;
    const std::vector<parallel::ValueRun> runs = numbers.runs(random, expected);
    const MemoryUse before = memory_use();
    std::vector<float> found;
    ASSERT_TRUE(transfer
                    .read(runs,
                          [&](std::span<const float> values) {
                            EXPECT_LE(values.size_bytes(), piece_bytes);
                            found.insert(found.end(), values.begin(), values.end());
                            return Status();
                          })
                    .ok());
    ASSERT_EQ(found, expected) << "round " << round;
    EXPECT_EQ(memory_use().pinned_bytes, before.pinned_bytes);
    EXPECT_EQ(memory_use().to_host_bytes - before.to_host_bytes, expected.size() * sizeof(float));
  }
}

TEST(HostTransfer, WritesAllRunsThroughBuffersOfAnySize) {
  Random random(4);
  for (const size_t floats : {1, 3, 64, 2000}) {
    Numbers numbers;
    const Pieces pieces(floats * sizeof(float));
    parallel::HostTransfer transfer(numbers.stream, pieces.buffers);
    const std::vector<parallel::ValueRun> runs{{numbers.device.f32() + 10, 500},
                                               {numbers.device.f32() + 600, 0},
                                               {numbers.device.f32() + 700, 1}};
    ASSERT_TRUE(transfer
                    .write(runs,
                           [&](size_t run, int64_t first, std::span<float> to) {
                             for (size_t i = 0; i < to.size(); ++i) {
                               to[i] = static_cast<float>(-1000 * static_cast<int64_t>(run) -
                                                          first - static_cast<int64_t>(i));
                             }
                             return Status();
                           })
                    .ok());
    const std::vector<float> found = numbers.read();
    for (int64_t i = 0; i < Numbers::kCount; ++i) {
      float expected = numbers.host[static_cast<size_t>(i)];
      if (i >= 10 && i < 510) expected = static_cast<float>(10 - i);
      if (i == 700) expected = -2000;
      ASSERT_EQ(found[static_cast<size_t>(i)], expected) << i << " with " << floats;
    }
  }
}

TEST(HostTransfer, EndsWithTheErrorOfTheHostsPartAndCanBeUsedAgain) {
  Numbers numbers;
  const Pieces pieces(64);
  parallel::HostTransfer transfer(numbers.stream, pieces.buffers);
  const parallel::ValueRun all{numbers.device.f32(), Numbers::kCount};
  int calls = 0;
  const auto fails = [&](auto&&...) { return ++calls == 3 ? Status(corrupt("third")) : Status(); };
  EXPECT_EQ(transfer.read({&all, 1}, fails).error().message, "third");
  EXPECT_EQ(calls, 3);
  calls = 0;
  EXPECT_EQ(transfer.write({&all, 1}, fails).error().message, "third");
  EXPECT_EQ(calls, 3);
  size_t seen = 0;
  ASSERT_TRUE(transfer
                  .read({&all, 1},
                        [&](std::span<const float> values) {
                          seen += values.size();
                          return Status();
                        })
                  .ok());
  EXPECT_EQ(seen, static_cast<size_t>(Numbers::kCount));
}

WholeState state_of(Training& training, parallel::HostTransfer& transfer) {
  const parallel::DeviceState state = training.model().state();
  std::vector<float*> kinds{state.parameters};
  for (const optim::OptimizerState& each : state.optimizer) kinds.push_back(each.values);
  return {training.options().design, std::move(kinds), transfer};
}

uint64_t parameter_bytes(const ModelConfig& config) {
  return static_cast<uint64_t>(parameter_count(config)) * sizeof(float);
}

uint64_t angle_bytes(const ModelConfig& config) {
  if (!config.design().has_rotary()) return 0;
  return static_cast<uint64_t>(kContext * config.head_dim()) * sizeof(float);
}

// Moments that are zero are not copied to the device, and nothing is read back. The device also
// needs the angles of a rotary embedding.
TEST(DeviceState, BeginsWithTheParametersOfTheCpuAndNothingElseIsCopied) {
  for (const ModelConfig& config : {kConfig, kLlama, kBert}) {
    Training cpu({.device = {}, .design = config});
    emulated_cuda::reset_memory_use();
    Training gpu({.device = kCuda, .design = config});
    const MemoryUse use = memory_use();
    EXPECT_EQ(use.to_host_bytes, 0u);
    EXPECT_EQ(use.to_device_bytes, parameter_bytes(config) + angle_bytes(config));
    EXPECT_EQ(gpu.state(), cpu.state());
  }
}

// Saving and loading copy exactly the stored bytes, through two buffers, whatever the model's size.
TEST(DeviceState, IsSavedAndLoadedThroughTwoBuffers) {
  const TrainingSetup setup{.device = kCuda};
  Training gpu(setup);
  gpu.train(kFewSteps);
  Training cpu({.device = {}});
  cpu.set_state(gpu.state());

  TemporaryFolder place;
  const Manifest manifest{.position = {.step = 2}, .files = {}};
  const uint64_t pinned = memory_use().pinned_bytes;
  emulated_cuda::reset_memory_use();
  kernels::Stream stream = kernels::Stream::create(kCuda).value();
  const Pieces pieces(512);
  parallel::HostTransfer transfer(stream, pieces.buffers);
  ASSERT_TRUE(state_of(gpu, transfer).save(place.file("gpu"), manifest).ok());
  EXPECT_EQ(memory_use().to_host_bytes, 3 * parameter_bytes(kConfig));
  EXPECT_EQ(memory_use().to_device_bytes, 0u);
  EXPECT_EQ(memory_use().pinned_bytes_max - pinned, 2 * 512u);

  ASSERT_TRUE(state_of(cpu, cpu.model().transfer()).save(place.file("cpu"), manifest).ok());
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
    const std::string name = std::string("/step-00000002/") + file;
    EXPECT_TRUE(read_file(place.file("gpu") + name) == read_file(place.file("cpu") + name)) << file;
  }

  Training next(setup);
  emulated_cuda::reset_memory_use();
  ASSERT_TRUE(state_of(next, transfer).load_checkpoint(place.file("gpu") + "/step-00000002").ok());
  EXPECT_EQ(memory_use().to_device_bytes, 3 * parameter_bytes(kConfig));
  EXPECT_EQ(memory_use().to_host_bytes, 0u);
  EXPECT_EQ(next.state(), gpu.state());
}

// In pieces that end within rows, with matrices that are transposed in the file.
TEST(DeviceState, BeginsWithImportedWeightsAsTheCpuDoes) {
  const std::string file = LOCKSTEP_SOURCE_DIR "/tests/golden/hugging_face_gpt2.safetensors";
  const WeightFiles files = WeightFiles::open(file).value();
  ModelConfig config = dimensions_of(files.header()).value();
  config.heads =
      std::stoll(files.file_of(files.header().tensors.front()).header().metadata.at("heads"));
  const ParameterArena arena = parameter_arena(config, whole_model(config));
  const auto count = static_cast<size_t>(arena.count);
  std::vector<float> expected(count);
  parallel::HostTransfer host;
  ASSERT_TRUE(WholeState(config, {expected.data()}, host).import(file).ok());
  kernels::Stream stream = kernels::Stream::create(kCuda).value();
  for (const size_t piece_bytes : {size_t{52}, size_t{1} << 20}) {
    kernels::Buffer device = kernels::Buffer::allocate(kCuda, count * sizeof(float)).value();
    const Pieces pieces(piece_bytes);
    parallel::HostTransfer transfer(stream, pieces.buffers);
    ASSERT_TRUE(WholeState(config, {device.f32()}, transfer).import(file).ok());
    std::vector<float> found;
    const parallel::ValueRun all{device.f32(), arena.count};
    ASSERT_TRUE(transfer
                    .read({&all, 1},
                          [&](std::span<const float> values) {
                            found.insert(found.end(), values.begin(), values.end());
                            return Status();
                          })
                    .ok());
    EXPECT_EQ(found, expected) << piece_bytes;
  }
}

// Rebuilt copies for products have the same random rounding as after the last step, on every
// device.
TEST(DeviceState, HasTheSameStochasticallyRoundedCopiesWhenTheyAreMadeAnew) {
  const TrainingSetup setup{
      .device = kCuda, .precision = kernels::Precision::kBf16, .rounding_seed = 12};
  Training gpu(setup);
  gpu.train(kFewSteps);
  const std::vector<uint16_t> drawn = gpu.copies();
  ASSERT_TRUE(gpu.model().broadcast_state(kFewSteps).ok());
  EXPECT_EQ(gpu.copies(), drawn);
  Training cpu({.device = {}, .precision = kernels::Precision::kBf16, .rounding_seed = 12});
  cpu.set_state(gpu.state());
  ASSERT_TRUE(cpu.model().broadcast_state(kFewSteps).ok());
  EXPECT_EQ(cpu.copies(), drawn);

  ASSERT_TRUE(cpu.model().broadcast_state(kFewSteps + 1).ok());
  EXPECT_NE(cpu.copies(), drawn) << "of another step";
  Training nearest({.device = {}, .precision = kernels::Precision::kBf16});
  nearest.set_state(gpu.state());
  ASSERT_TRUE(nearest.model().broadcast_state(kFewSteps).ok());
  EXPECT_NE(nearest.copies(), drawn);
}

TEST(DeviceState, RoundedStochasticallyGoesOnToTheSameBits) {
  for (const kernels::Device device : {kernels::Device{}, kCuda}) {
    const TrainingSetup setup{
        .device = device, .precision = kernels::Precision::kBf16, .rounding_seed = 5};
    Training whole(setup);
    whole.train(2);
    Training first(setup);
    first.train(1);
    TrainingSetup later = setup;
    later.begin_step = 1;
    Training second(later);
    second.set_state(first.state());
    ASSERT_TRUE(second.model().broadcast_state(1).ok());
    second.train(1);
    EXPECT_EQ(second.state(), whole.state());

    TrainingSetup other = setup;
    other.rounding_seed = 6;
    Training differs(other);
    differs.train(2);
    EXPECT_NE(differs.state(), whole.state());
  }
}

}  // namespace
}  // namespace lockstep::train
