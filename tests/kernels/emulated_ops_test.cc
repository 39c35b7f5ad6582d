// The CUDA kernels on the emulated device: tests their indices, barriers and sums without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "common/base/random.h"
#include "tests/kernels/op_checks.h"
#include "tests/support/emulated_cuda/devices.h"
#include "tests/support/emulated_cuda/emulator.h"

namespace lockstep::kernels::op_cases {

namespace {

constexpr Device kDevice{DeviceType::kCuda, 0};

const OpTable& cuda() {
  const Result<const OpTable*> ops = device_ops(DeviceType::kCuda);
  CHECK(ops.ok());
  return **ops;
}

void expect_ok(const Status& status) {
  ASSERT_TRUE(status.ok()) << status.error().message;
}

Tensors run(const OpCase& c, DType dtype, uint64_t seed) {
  emulated_cuda::set_seed(seed);
  Result<Tensors> tensors = run_case(c, cuda(), {.device = kDevice, .dtype = dtype});
  EXPECT_TRUE(tensors.ok()) << tensors.error().message;
  return tensors.ok() ? std::move(tensors).value() : Tensors();
}

class EmulatedOps : public testing::TestWithParam<DType> {};

TEST_P(EmulatedOps, AgreeWithDoublePrecision) {
  for (const OpCase& c : cuda_cases()) expect_ok(check_forward(c, run(c, GetParam(), 1)));
}

TEST_P(EmulatedOps, HaveTheGradientsOfFiniteDifferences) {
  for (const OpCase& c : cuda_cases()) expect_ok(check_gradients(c, run(c, GetParam(), 2)));
}

TEST_P(EmulatedOps, GiveTheSameBitsInWhateverOrderThreadsRun) {
  for (const OpCase& c : cuda_cases()) {
    expect_ok(check_same_bits(c, run(c, GetParam(), 3), run(c, GetParam(), 4)));
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, EmulatedOps, testing::Values(DType::kF32, DType::kBf16),
                         [](const auto& info) {
                           return info.param == DType::kF32 ? "f32" : "bf16";
                         });

// Tests for what the op cases do not cover.

void copy_now(const CopyArgs& args) {
  Result<Stream> stream = Stream::create(kDevice);
  CHECK(stream.ok() && copy_bytes(*stream, args).ok() && stream->synchronize().ok());
}

// Values of any type in device memory.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::vector<T> values) : values_(std::move(values)) {
    Result<Buffer> buffer = Buffer::allocate(kDevice, values_.size() * sizeof(T));
    CHECK(buffer.ok());
    buffer_ = std::move(buffer).value();
    copy_now({data(), values_.data(), buffer_.bytes()});
  }
  T* data() { return static_cast<T*>(buffer_.data()); }
  const std::vector<T>& get() {
    copy_now({values_.data(), data(), buffer_.bytes()});
    return values_;
  }

 private:
  std::vector<T> values_;
  Buffer buffer_;
};

Stream device_stream() {
  Result<Stream> stream = Stream::create(kDevice);
  CHECK(stream.ok());
  return std::move(stream).value();
}

std::vector<float> random_floats(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = 8.0f * random.uniform() - 4.0f;
  return values;
}

struct Sampling {
  int64_t vocabulary = 0;
  float temperature = 1.0f;
  int64_t top_k = 0;
  bool with_equals = false;  // logits are integers, so some are equal
};

TEST(EmulatedSample, DrawsWhatTheCpuDraws) {
  constexpr int64_t kRows = 40;
  for (const Sampling& s :
       {Sampling{1}, Sampling{3, 0.0f}, Sampling{257, 0.0f, 0, true}, Sampling{257, 0.7f},
        Sampling{1000, 1.0f, 5}, Sampling{300, 1.3f, 40, true}, Sampling{50, 1.0f, 50}}) {
    const int64_t stride = s.vocabulary + 3;
    std::vector<float> logits = random_floats(static_cast<size_t>(kRows * stride), 5);
    if (s.with_equals) {
      for (float& logit : logits) logit = std::round(logit);
    }
    std::vector<float> uniforms(kRows);
    for (size_t i = 0; i < uniforms.size(); ++i) {
      uniforms[i] = static_cast<float>(i) / static_cast<float>(kRows);
    }
    std::vector<int32_t> want(kRows, -1);
    std::vector<float> scratch(static_cast<size_t>(s.vocabulary));
    Sample args{.logits = logits.data(),
                .uniforms = uniforms.data(),
                .tokens = want.data(),
                .rows = kRows,
                .vocabulary = s.vocabulary,
                .stride = stride,
                .temperature = s.temperature,
                .top_k = s.top_k,
                .workspace = {scratch.data(), sample_workspace(s.vocabulary)}};
    Stream cpu;
    cpu_ops().sample(cpu, args);
    OnDevice<float> device_logits(logits), device_uniforms(uniforms);
    OnDevice<int32_t> tokens(std::vector<int32_t>(kRows, -1));
    args.logits = device_logits.data();
    args.uniforms = device_uniforms.data();
    args.tokens = tokens.data();
    Stream stream = device_stream();
    cuda().sample(stream, args);
    expect_ok(stream.synchronize());
    EXPECT_EQ(tokens.get(), want) << s.vocabulary << " " << s.temperature << " " << s.top_k;
  }
}

struct Update {
  std::vector<float> parameter, m;
  std::vector<Bf16> copy;
};

Update updated(DeviceType type, float device_scale, uint64_t seed) {
  constexpr size_t kCount = 3000;
  const Device device{type, 0};
  Result<const OpTable*> ops = device_ops(type);
  Result<Stream> stream = Stream::create(device);
  Result<Buffer> memory = Buffer::allocate(device, 5 * kCount * sizeof(float));
  CHECK(ops.ok() && stream.ok() && memory.ok());
  std::vector<float> host = random_floats(5 * kCount, 9);
  for (size_t i = 3 * kCount; i < 4 * kCount; ++i) host[i] = std::abs(host[i]);
  host[4 * kCount] = device_scale;
  CHECK(copy_bytes(*stream, {memory->data(), host.data(), memory->bytes()}).ok());
  float* at = memory->f32();
  Bf16* copy = reinterpret_cast<Bf16*>(at + 4 * kCount + 4);
  const UpdatedTensor tensor{.parameter = at,
                             .gradient = at + kCount,
                             .states = {at + 2 * kCount, at + 3 * kCount},
                             .copy = copy,
                             .count = kCount};
  (*ops)->adamw(*stream, {.tensors = {&tensor, 1},
                          .learning_rate = 0.01f,
                          .device_scale = at + 4 * kCount,
                          .rounding_seed = seed});
  CHECK(copy_bytes(*stream, {host.data(), memory->data(), memory->bytes()}).ok());
  expect_ok(stream->synchronize());
  Update result;
  result.parameter.assign(host.begin(), host.begin() + kCount);
  result.m.assign(host.begin() + 2 * kCount, host.begin() + 3 * kCount);
  result.copy.resize(kCount);
  std::memcpy(static_cast<void*>(result.copy.data()), host.data() + 4 * kCount + 4,
              kCount * sizeof(Bf16));
  return result;
}

TEST(EmulatedAdamW, RoundsAsTheCpuDoesFromTheSameSeed) {
  const Update cpu = updated(DeviceType::kCpu, 0.5f, 7), gpu = updated(DeviceType::kCuda, 0.5f, 7);
  size_t same_parameters = 0, nearest = 0;
  for (size_t i = 0; i < cpu.copy.size(); ++i) {
    if (cpu.parameter[i] != gpu.parameter[i])
      continue;  // the compilers fused operations
                 // differently
    ++same_parameters;
    EXPECT_EQ(cpu.copy[i].bits, gpu.copy[i].bits) << i;
    const auto truncated = static_cast<uint16_t>(std::bit_cast<uint32_t>(gpu.parameter[i]) >> 16);
    nearest += gpu.copy[i].bits == truncated ? 1 : 0;
  }
  EXPECT_GT(same_parameters, cpu.copy.size() / 2);
  // About half of the values are rounded away from zero.
  EXPECT_GT(nearest, same_parameters / 3);
  EXPECT_LT(nearest, same_parameters * 2 / 3);
  EXPECT_NE(updated(DeviceType::kCuda, 0.5f, 8).copy, gpu.copy);
}

TEST(EmulatedAdamW, WritesNothingWhereTheScaleIsNotFinite) {
  for (const DeviceType type : {DeviceType::kCpu, DeviceType::kCuda}) {
    const std::vector<float> before = random_floats(5 * 3000, 9);
    for (const float scale : {std::nanf(""), HUGE_VALF}) {
      const Update after = updated(type, scale, 7);
      EXPECT_TRUE(std::equal(after.parameter.begin(), after.parameter.end(), before.begin()));
      EXPECT_TRUE(std::equal(after.m.begin(), after.m.end(), before.begin() + 6000));
    }
  }
}

TEST(EmulatedSquaredNorm, HasTheBitsOfTheCpu) {
  for (const size_t count : {5, 16'384, 50'003}) {
    std::vector<float> values = random_floats(count, 3);
    for (size_t i = 0; i < count; i += 7)
      values[i] *= std::ldexp(1.0f, static_cast<int>(i % 90) - 45);
    Stream stream = device_stream(), host;
    SquareSum expected;
    const FlatTensor on_host{values.data(), static_cast<int64_t>(count)};
    cpu_ops().squared_norm(host, {.tensors = {&on_host, 1}, .sum = &expected});
    OnDevice<float> on_device(values);
    OnDevice<SquareSum> sum({SquareSum()});
    // One element after the other part, so that parts are not aligned.
    const FlatTensor parts[] = {{on_device.data() + 1, on_host.count - 1}, {on_device.data(), 1}};
    cuda().squared_norm(stream, {.tensors = parts, .sum = sum.data()});
    expect_ok(stream.synchronize());
    EXPECT_EQ(value_of(sum.get().front()), value_of(expected)) << count;
  }
}

TEST(EmulatedOps, NothingHappensForNoElements) {
  Stream stream = device_stream();
  cuda().embedding_forward(stream, {});
  cuda().embedding_backward(stream, {});
  cuda().layernorm_forward(stream, {});
  cuda().layernorm_backward(stream, {});
  cuda().rmsnorm_forward(stream, {});
  cuda().rmsnorm_backward(stream, {});
  cuda().gelu_forward(stream, {});
  cuda().pointwise_forward(stream, {});
  cuda().pointwise_backward(stream, {});
  cuda().swiglu_forward(stream, {});
  cuda().rotary(stream, {});
  cuda().classifier(stream, {});
  cuda().classifier_hits(stream, {});
  cuda().squared_error(stream, {});
  cuda().adamw(stream, {});
  cuda().sgd(stream, {});
  cuda().adagrad(stream, {});
  cuda().ftrl(stream, {});
  cuda().add(stream, {});
  cuda().dropout(stream, {});
  cuda().sample(stream, {});
  OnDevice<SquareSum> sum({SquareSum()});
  cuda().squared_norm(stream, {.sum = sum.data()});
  expect_ok(stream.synchronize());
  EXPECT_EQ(value_of(sum.get().front()), 0.0);
}

struct Lookups {
  std::vector<int32_t> tokens;
  int64_t vocabulary = 0;
  int64_t width = 1;
  int64_t vocabulary_begin = 0;
};

// Returns the table's gradient, added to 0.5. Without `rounds` the values are integers, whose sums
// are exact; with it the sums depend on their order.
std::vector<float> embedding_gradient(const Lookups& l, uint64_t seed, bool rounds) {
  const auto rows = static_cast<int64_t>(l.tokens.size());
  const size_t bytes =
      embedding_backward_workspace({rows, l.vocabulary}, l.width, DeviceType::kCuda);
  OnDevice<int32_t> tokens(l.tokens);
  OnDevice<char> workspace(std::vector<char>(bytes, -1));
  std::vector<float> values = random_floats(l.tokens.size() * static_cast<size_t>(l.width), 11);
  if (!rounds)
    std::ranges::transform(values, values.begin(), [](float x) { return std::round(x); });
  OnDevice<float> dout(values);
  OnDevice<float> dtable(std::vector<float>(static_cast<size_t>(l.vocabulary * l.width), 0.5f));
  Stream stream = device_stream();
  emulated_cuda::set_seed(seed);
  cuda().embedding_backward(stream, {.tokens = tokens.data(),
                                     .dout = dout.data(),
                                     .dtoken_table = dtable.data(),
                                     .batch = 1,
                                     .sequence = rows,
                                     .width = l.width,
                                     .vocabulary = l.vocabulary,
                                     .vocabulary_begin = l.vocabulary_begin,
                                     .workspace = {workspace.data(), bytes}});
  expect_ok(stream.synchronize());
  return dtable.get();
}

std::vector<float> expected_gradient(const Lookups& l) {
  const std::vector<float> dout = random_floats(l.tokens.size() * static_cast<size_t>(l.width), 11);
  std::vector<float> table(static_cast<size_t>(l.vocabulary * l.width), 0.5f);
  for (size_t i = 0; i < dout.size(); ++i) {
    const int64_t token = l.tokens[i / static_cast<size_t>(l.width)] - l.vocabulary_begin;
    if (token < 0 || token >= l.vocabulary) continue;
    table[static_cast<size_t>(token * l.width) + i % static_cast<size_t>(l.width)] +=
        std::round(dout[i]);
  }
  return table;
}

constexpr BatchTokens kAllBatches[] = {BatchTokens::kAny, BatchTokens::kOne, BatchTokens::kBytes};

// Covers one, two and three digits, and rows that are less than a part, whole parts, and several
// blocks of the sort.
TEST(EmulatedEmbedding, AddsEveryRowOfAnyBatchToItsToken) {
  for (const int64_t vocabulary : {1, 511, 512, 300000}) {
    for (const int64_t rows : {1, 32, 33, 64, 1025, 2500}) {
      for (const BatchTokens batch : kAllBatches) {
        const Lookups l{.tokens = tokens_of_batch(batch, rows, vocabulary),
                        .vocabulary = vocabulary};
        ASSERT_EQ(embedding_gradient(l, 1, false), expected_gradient(l))
            << vocabulary << " tokens, " << rows << " rows, batch " << static_cast<int>(batch);
      }
    }
  }
}

TEST(EmulatedEmbedding, LeavesOutTheTokensOfOtherShards) {
  for (const BatchTokens batch : kAllBatches) {
    const Lookups l{.tokens = tokens_of_batch(batch, 300, 60),
                    .vocabulary = 20,
                    .width = 5,
                    .vocabulary_begin = 20};
    EXPECT_EQ(embedding_gradient(l, 1, false), expected_gradient(l));
  }
}

TEST(EmulatedEmbedding, AddsTheRowsOfATokenInTheSameOrderEveryTime) {
  for (const BatchTokens batch : kAllBatches) {
    const Lookups l{.tokens = tokens_of_batch(batch, 1200, 300), .vocabulary = 300, .width = 4};
    const std::vector<float> first = embedding_gradient(l, 1, true);
    for (uint64_t seed = 2; seed <= 4; ++seed) EXPECT_EQ(embedding_gradient(l, seed, true), first);
  }
}

// Counts the wide accesses of all threads to rows and tables, but not the reads of the given
// tokens. Two passes of the sort access a row 4 times; then each lane reads it and its values. Most
// of the accesses are lookups by the 256 threads that join each 32 rows.
TEST(EmulatedEmbedding, WorksAsMuchWhateverTheTokensAre) {
  constexpr int64_t kRows = 4000;
  for (const BatchTokens batch : kAllBatches) {
    const Lookups l{.tokens = tokens_of_batch(batch, kRows, 1000), .vocabulary = 1000, .width = 4};
    const uint64_t before = emulated_cuda::wide_accesses();
    embedding_gradient(l, 1, true);
    const uint64_t accesses = emulated_cuda::wide_accesses() - before;
    EXPECT_GE(accesses, 6 * kRows);
    EXPECT_LE(accesses, 100 * kRows) << static_cast<int>(batch);
  }
}

// Covers the unaligned path of kernels that otherwise get whole packs.
TEST(EmulatedOps, TakeRowsThatBeginAnywhere) {
  constexpr int64_t kCount = 67;
  const std::vector<float> values = random_floats(kCount + 2, 3);
  OnDevice<float> x(values), out(std::vector<float>(kCount + 2, 0.0f));
  Stream stream = device_stream();
  cuda().scale(stream, {.x = x.data() + 1, .out = out.data() + 1, .count = kCount, .factor = 2.0f});
  expect_ok(stream.synchronize());
  EXPECT_EQ(out.get().front(), 0.0f);
  EXPECT_EQ(out.get().back(), 0.0f);
  for (size_t i = 1; i <= kCount; ++i) EXPECT_EQ(out.get()[i], 2.0f * values[i]);
}

// In-place, as the headers allow.
TEST(EmulatedOps, NormsWorkInPlace) {
  constexpr int64_t kRows = 9, kWidth = 40;
  const OpCase fused = layernorm({.rows = kRows, .width = kWidth, .residual = true});
  Tensors apart = run(fused, DType::kF32, 1), in_place = run(fused, DType::kF32, 1);
  Stream stream = device_stream();
  for (Tensors* t : {&apart, &in_place}) {
    const bool inside = t == &in_place;
    cuda().layernorm_forward(stream,
                             {.x = t->at("x"),
                              .residual = t->at("residual"),
                              .residual_out = inside ? t->at("residual") : t->at("residual_out"),
                              .weight = t->at("weight"),
                              .bias = t->at("bias"),
                              .y = inside ? t->at("x") : t->at("y"),
                              .mean = t->at("mean"),
                              .rstd = t->at("rstd"),
                              .rows = kRows,
                              .width = kWidth});
    cuda().layernorm_backward(stream, {.dy = t->at("dy"),
                                       .h = inside ? t->at("residual") : t->at("residual_out"),
                                       .weight = t->at("weight"),
                                       .mean = t->at("mean"),
                                       .rstd = t->at("rstd"),
                                       .dresidual = t->at("dresidual_out"),
                                       .dx = inside ? t->at("dy") : t->at("dx"),
                                       .dweight = t->at("dweight"),
                                       .dbias = t->at("dbias"),
                                       .rows = kRows,
                                       .width = kWidth,
                                       .workspace = t->workspace.workspace()});
  }
  expect_ok(stream.synchronize());
  EXPECT_EQ(in_place.get("residual"), apart.get("residual_out"));
  EXPECT_EQ(in_place.get("x"), apart.get("y"));
  EXPECT_EQ(in_place.get("dy"), apart.get("dx"));
  EXPECT_EQ(in_place.get("dweight"), apart.get("dweight"));
}

}  // namespace

}  // namespace lockstep::kernels::op_cases
