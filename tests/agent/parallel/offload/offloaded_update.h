// Updates of tensors in far arrays, compared with the same updates on the device.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "agent/parallel/offload/offloaded_tensors.h"
#include "common/base/random.h"
#include "kernels/ops/op_table.h"
#include "tests/agent/parallel/offload/far_values.h"

namespace lockstep::parallel {

enum class UpdateRule : uint8_t { kAdamW, kSgd, kMomentum, kAdagrad };

struct UpdateCase {
  UpdateRule rule = UpdateRule::kAdamW;
  bool far_parameters = false;
  bool in_file = true;  // otherwise in page-locked memory
  int64_t room = 64;    // floats of each array in a piece
  uint64_t rounding_seed = 0;

  size_t states() const {
    return rule == UpdateRule::kAdamW ? 2 : rule == UpdateRule::kSgd ? 0 : 1;
  }
};

// Elements of all arrays, padding included.
inline constexpr int64_t kUpdatedCount = 4096;
inline constexpr float kUpdatePadding = 42;

// Arrays on a device. Copies are synchronous.
class DeviceArray {
 public:
  DeviceArray(kernels::Stream& stream, size_t bytes)
      : stream_(stream), buffer_(kernels::Buffer::allocate(stream.device(), bytes).value()) {}
  void* data() const { return buffer_.data(); }
  float* f32() const { return buffer_.f32(); }
  void set(const std::vector<float>& values) {
    copy({.to = data(), .from = values.data(), .bytes = values.size() * sizeof(float)});
  }
  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> bytes(buffer_.bytes());
    copy({.to = bytes.data(), .from = data(), .bytes = bytes.size()});
    return bytes;
  }

 private:
  void copy(const kernels::CopyArgs& args) const {
    EXPECT_TRUE(kernels::copy_bytes(stream_, args).ok());
    EXPECT_TRUE(stream_.synchronize().ok());
  }

  kernels::Stream& stream_;
  kernels::Buffer buffer_;
};

inline std::vector<float> random_values(uint64_t seed) {
  Random random(seed);
  std::vector<float> values(kUpdatedCount);
  for (float& value : values) value = random.normal();
  return values;
}

// The places of some tensors, with padding between them and indices of several kinds.
inline std::vector<kernels::UpdatedTensor> updated_tensors(float* parameters,
                                                           const float* gradients,
                                                           kernels::Bf16* copies) {
  struct Place {
    int64_t first, count;
    kernels::ElementIndex index;
  };
  const Place places[] = {{0, 1000, {.first = 17}},
                          {1008, 5, {.first = 100'000}},
                          {1024, 1537, {.first = 5000, .columns = 100, .stride = 333}},
                          {2576, 16, {.first = 9000, .columns = 3, .stride = 8}},
                          {2592, 1500, {.first = 300'000}}};
  std::vector<kernels::UpdatedTensor> tensors;
  for (const Place& place : places) {
    tensors.push_back({.parameter = parameters + place.first,
                       .gradient = gradients + place.first,
                       .copy = copies + place.first,
                       .count = place.count,
                       .weight_decay = place.count > 10 ? 0.1f : 0.0f,
                       .index = place.index});
  }
  return tensors;
}

inline void run_op(const kernels::OpTable& ops, kernels::Stream& stream, const UpdateCase& wanted,
                   int64_t step, std::span<const kernels::UpdatedTensor> tensors) {
  const auto with = [&](auto args) {
    args.tensors = tensors;
    args.learning_rate = 0.01f;
    args.gradient_scale = 0.5f;
    args.step = step;
    args.rounding_seed = wanted.rounding_seed;
    return args;
  };
  switch (wanted.rule) {
    case UpdateRule::kAdamW:
      return ops.adamw(stream, with(kernels::AdamW()));
    case UpdateRule::kSgd:
      return ops.sgd(stream, with(kernels::Sgd()));
    case UpdateRule::kMomentum:
      return ops.sgd(stream, with(kernels::Sgd{.momentum = 0.9f, .nesterov = true}));
    case UpdateRule::kAdagrad:
      return ops.adagrad(stream, with(kernels::Adagrad()));
  }
}

// One optimizer's memory, with the states and the parameters far or on the device.
class UpdatedMemory {
 public:
  UpdatedMemory(kernels::Stream& stream, const UpdateCase& wanted, bool is_far)
      : stream_(stream),
        gradients_(stream, kUpdatedCount * sizeof(float)),
        copies_(stream, kUpdatedCount * sizeof(kernels::Bf16)) {
    add(wanted, is_far && wanted.far_parameters);
    for (size_t k = 0; k < wanted.states(); ++k) add(wanted, is_far);
    set(0, random_values(1));
    tensors_ =
        updated_tensors(values(0), gradients_.f32(), static_cast<kernels::Bf16*>(copies_.data()));
    for (size_t k = 0; k < wanted.states(); ++k) {
      set(k + 1, std::vector<float>(kUpdatedCount, kUpdatePadding));
      for (kernels::UpdatedTensor& tensor : tensors_) {
        const int64_t first = tensor.parameter - values(0);
        tensor.states[k] = values(k + 1) + first;
      }
    }
  }

  void set_gradients(const std::vector<float>& gradients) { gradients_.set(gradients); }
  std::span<const kernels::UpdatedTensor> tensors() const { return tensors_; }
  FarArrays far() const {
    FarArrays far{.parameters = far_[0].get()};
    for (size_t k = 1; k < far_.size(); ++k) far.states[k - 1] = far_[k].get();
    return far;
  }
  // Parameters, states and copies.
  std::vector<std::vector<uint8_t>> bytes() const {
    std::vector<std::vector<uint8_t>> all{copies_.bytes()};
    for (size_t i = 0; i < far_.size(); ++i) {
      if (far_[i] == nullptr) {
        all.push_back(near_[i]->bytes());
      } else {
        const std::vector<float> values = values_of(*far_[i]);
        const auto* begin = reinterpret_cast<const uint8_t*>(values.data());
        all.emplace_back(begin, begin + values.size() * sizeof(float));
      }
    }
    return all;
  }

 private:
  void add(const UpdateCase& wanted, bool is_far) {
    constexpr size_t kBytes = kUpdatedCount * sizeof(float);
    far_.emplace_back();
    near_.emplace_back();
    if (!is_far) {
      near_.back() = std::make_unique<DeviceArray>(stream_, kBytes);
    } else if (wanted.in_file) {
      far_.back() = std::make_unique<FarMemory>(far_file(kUpdatedCount));
    } else {
      locked_.push_back(kernels::PinnedBuffer::allocate(stream_.device(), kBytes).value());
      far_.back() = std::make_unique<FarMemory>(kernels::Workspace{locked_.back().data(), kBytes});
    }
  }
  float* values(size_t i) const { return far_[i] == nullptr ? near_[i]->f32() : far_[i]->data(); }
  void set(size_t i, const std::vector<float>& values) {
    if (far_[i] == nullptr) return near_[i]->set(values);
    EXPECT_TRUE(far_[i]->write(0, values).ok());
  }

  kernels::Stream& stream_;
  DeviceArray gradients_;
  DeviceArray copies_;
  // Each array, the parameters and then the states, is in one of the two.
  std::vector<std::unique_ptr<FarMemory>> far_;
  std::vector<std::unique_ptr<DeviceArray>> near_;
  std::vector<kernels::PinnedBuffer> locked_;
  std::vector<kernels::UpdatedTensor> tensors_;
};

// Buffers for pieces of a case on a device.
struct PieceBuffers {
  std::array<kernels::Buffer, 2> device;
  std::array<kernels::PinnedBuffer, 2> pinned;
  PieceMemory memory;

  PieceBuffers(kernels::Device on, const UpdateCase& wanted, size_t arrays) {
    const size_t bytes = arrays * static_cast<size_t>(wanted.room) * sizeof(float);
    const bool is_staged = wanted.in_file && on.type == kernels::DeviceType::kCuda;
    for (size_t i = 0; i < 2; ++i) {
      device[i] = kernels::Buffer::allocate(on, bytes).value();
      memory.device[i] = device[i].workspace();
      if (!is_staged) continue;
      pinned[i] = kernels::PinnedBuffer::allocate(on, bytes).value();
      memory.pinned[i] = {pinned[i].data(), bytes};
    }
  }
};

inline void expect_same_bits_as_on_the_device(kernels::Device device, const UpdateCase& wanted) {
  SCOPED_TRACE("rule " + std::to_string(static_cast<int>(wanted.rule)) + ", room " +
               std::to_string(wanted.room) + (wanted.far_parameters ? ", far parameters" : "") +
               (wanted.in_file ? ", file" : ", page-locked"));
  auto stream = kernels::Stream::create(device).value();
  const kernels::OpTable& ops = *kernels::device_ops(device.type).value();
  UpdatedMemory whole(stream, wanted, /*is_far=*/false);
  UpdatedMemory pieces(stream, wanted, /*is_far=*/true);
  const FarArrays far = pieces.far();
  const SystemClock clock;
  const PieceBuffers buffers(device, wanted, far.size());
  auto offloaded =
      OffloadedTensors::create(stream, far, pieces.tensors(), buffers.memory, clock).value();
  for (int64_t step = 1; step <= 3; ++step) {
    const std::vector<float> gradients = random_values(10 + static_cast<uint64_t>(step));
    whole.set_gradients(gradients);
    pieces.set_gradients(gradients);
    run_op(ops, stream, wanted, step, whole.tensors());
    int64_t count = 0;
    ASSERT_TRUE(offloaded
                    .visit([&](std::span<const kernels::UpdatedTensor> tensors) {
                      for (const kernels::UpdatedTensor& tensor : tensors) count += tensor.count;
                      run_op(ops, stream, wanted, step, tensors);
                      return Status();
                    })
                    .ok());
    EXPECT_EQ(count, 4058);
  }
  ASSERT_TRUE(stream.synchronize().ok());
  EXPECT_EQ(pieces.bytes(), whole.bytes());
  EXPECT_EQ(offloaded.counts().bytes_read, offloaded.counts().bytes_written);
  EXPECT_GE(offloaded.counts().bytes_read, 3 * far.size() * 4058 * sizeof(float));
  EXPECT_LE(offloaded.counts().bytes_read, 3 * far.size() * kUpdatedCount * sizeof(float));
}

}  // namespace lockstep::parallel
