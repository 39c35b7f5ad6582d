// attention.cu on the emulated device against double precision: both dtypes, the tensor core
// kernels and the plain ones, grouped queries, sequences that do not fill a tile, and attention
// that is not causal. Also the graphs for cuDNN, computed by the fake.
#include <gtest/gtest.h>

#include "kernels/ops/attention_geometry.h"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dnn/dnn.h"
#include "tests/kernels/device_values.h"
#include "tests/support/emulated_cuda/devices.h"

namespace lockstep::kernels {

namespace {

using test::DeviceValues;
using test::random_doubles;

constexpr Device kDevice{DeviceType::kCuda, 0};

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

struct Case {
  AttentionShape shape;
  DType dtype = DType::kF32;
  AttentionBy by = AttentionBy::kOwn;
};

std::string name_of(const Case& c) {
  const AttentionShape& s = c.shape;
  return std::string(c.by == AttentionBy::kOwn ? "own " : "cuDNN ") +
         (c.dtype == DType::kF32 ? "f32" : "bf16") + " B=" + std::to_string(s.batch) +
         " T=" + std::to_string(s.sequence) + " NH=" + std::to_string(s.heads) +
         " KVH=" + std::to_string(s.kv_heads) + " HD=" + std::to_string(s.head_dim) +
         (s.causal ? "" : " bidirectional");
}

AttentionShape shape(int64_t batch, int64_t sequence, int64_t heads, int64_t kv_heads,
                     int64_t head_dim) {
  return {.batch = batch,
          .sequence = sequence,
          .heads = heads,
          .head_dim = head_dim,
          .kv_heads = kv_heads};
}

std::vector<Case> test_cases() {
  std::vector<Case> cases;
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t sequence : {1, 2, 15, 16, 63, 64, 65, 129}) {
      cases.push_back({shape(1, sequence, 1, 1, head_dim), DType::kBf16});
    }
    cases.push_back({shape(2, 67, 4, 2, head_dim), DType::kBf16});
    cases.push_back({shape(1, 40, 3, 1, head_dim), DType::kBf16});
  }
  cases.push_back({shape(1, 199, 2, 2, 64), DType::kBf16});
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const int64_t head_dim : {1, 8, 40, 96, 256}) {
      cases.push_back({shape(2, 13, 4, 2, head_dim), dtype});
      cases.push_back({shape(1, 1, 1, 1, head_dim), dtype});
    }
    cases.push_back({shape(1, 35, 2, 1, 32), dtype});
  }
  cases.push_back({shape(1, 33, 2, 2, 64), DType::kF32});
  const size_t causal = cases.size();
  for (size_t i = 0; i < causal; ++i) {
    cases.push_back(cases[i]);
    cases.back().shape.causal = false;
  }
  return cases;
}

std::vector<Case> cudnn_cases() {
  std::vector<Case> cases;
  for (const AttentionShape& s :
       {shape(1, 2, 1, 1, 64), shape(1, 65, 1, 1, 128), shape(2, 67, 4, 2, 64),
        shape(3, 16, 4, 4, 64), shape(1, 40, 3, 1, 128), shape(2, 9, 6, 2, 64)}) {
    cases.push_back({s, DType::kBf16, AttentionBy::kCudnn});
  }
  return cases;
}

// Returns the workspace bytes.
Result<size_t> prepare(const Case& c) {
  if (c.by == AttentionBy::kCudnn) return dnn::prepare_attention(kDevice, c.shape);
  return attention_workspace(c.shape, DeviceType::kCuda);
}

// One head of one sample in double precision, computed from the stored tensors.
class Head {
 public:
  Head(const AttentionShape& s, int64_t sample, int64_t head, const std::vector<double>& qkv)
      : s_(s), qkv_(qkv), sample_(sample), head_(head) {
    const int64_t t = s.sequence;
    p_.assign(at(t * t), 0.0);
    for (int64_t i = 0; i < t; ++i) {
      double sum = 0.0;
      for (int64_t j = 0; j < keys_of(i); ++j) sum += p_[at(i * t + j)] = std::exp(score(i, j));
      for (int64_t j = 0; j < keys_of(i); ++j) p_[at(i * t + j)] /= sum;
      lse_.push_back(std::log(sum));
    }
  }

  int64_t q_at(int64_t t, int64_t d) const { return row(t) + head_ * s_.head_dim + d; }
  int64_t k_at(int64_t t, int64_t d) const {
    return row(t) + s_.width() + head_ / (s_.heads / s_.kv_heads) * s_.head_dim + d;
  }
  int64_t v_at(int64_t t, int64_t d) const { return k_at(t, d) + s_.kv_width(); }
  int64_t out_at(int64_t t, int64_t d) const {
    return (sample_ * s_.sequence + t) * s_.width() + head_ * s_.head_dim + d;
  }
  int64_t lse_at(int64_t t) const { return (sample_ * s_.heads + head_) * s_.sequence + t; }
  double lse(int64_t t) const { return lse_[at(t)]; }
  double p(int64_t i, int64_t j) const { return p_[at(i * s_.sequence + j)]; }
  double v(int64_t t, int64_t d) const { return qkv_[at(v_at(t, d))]; }

  void add_out(std::vector<double>& out) const {
    for (int64_t i = 0; i < s_.sequence; ++i) {
      for (int64_t d = 0; d < s_.head_dim; ++d) {
        for (int64_t j = 0; j < keys_of(i); ++j) out[at(out_at(i, d))] += p(i, j) * v(j, d);
      }
    }
  }
  // Applies the chain rule directly, with delta from the exact out.
  void add_gradients(const std::vector<double>& dout, std::vector<double>& dqkv) const {
    const double scale = 1.0 / std::sqrt(static_cast<double>(s_.head_dim));
    for (int64_t i = 0; i < s_.sequence; ++i) {
      std::vector<double> dp(at(keys_of(i)));
      double mean = 0.0;
      for (int64_t j = 0; j < keys_of(i); ++j) {
        for (int64_t d = 0; d < s_.head_dim; ++d) dp[at(j)] += dout[at(out_at(i, d))] * v(j, d);
        mean += p(i, j) * dp[at(j)];
      }
      for (int64_t j = 0; j < keys_of(i); ++j) {
        const double ds = p(i, j) * (dp[at(j)] - mean) * scale;
        for (int64_t d = 0; d < s_.head_dim; ++d) {
          dqkv[at(q_at(i, d))] += ds * qkv_[at(k_at(j, d))];
          dqkv[at(k_at(j, d))] += ds * qkv_[at(q_at(i, d))];
          dqkv[at(v_at(j, d))] += p(i, j) * dout[at(out_at(i, d))];
        }
      }
    }
  }

 private:
  int64_t keys_of(int64_t t) const { return s_.causal ? t + 1 : s_.sequence; }
  int64_t row(int64_t t) const { return (sample_ * s_.sequence + t) * s_.qkv_width(); }
  double score(int64_t i, int64_t j) const {
    double sum = 0.0;
    for (int64_t d = 0; d < s_.head_dim; ++d) sum += qkv_[at(q_at(i, d))] * qkv_[at(k_at(j, d))];
    return sum / std::sqrt(static_cast<double>(s_.head_dim));
  }

  AttentionShape s_;
  const std::vector<double>& qkv_;
  int64_t sample_, head_;
  std::vector<double> p_, lse_;
};

template <class Body>
void for_heads(const AttentionShape& s, const std::vector<double>& qkv, Body body) {
  for (int64_t i = 0; i < s.batch * s.heads; ++i) body(Head(s, i / s.heads, i % s.heads, qkv));
}

double largest(const std::vector<double>& values) {
  double result = 0.1;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

// bf16 rounds results, probabilities and their gradients to 8 bits.
double bound_of(DType dtype) {
  return dtype == DType::kF32 ? 1e-5 : 1.0 / 64.0;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double bound,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const double limit = bound * largest(want);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], limit) << what << " [" << i << "]";
  }
}

struct Values {
  std::vector<double> qkv, dout, out, lse, dqkv;
};

// Runs forward and backward with poisoned outputs; the seed sets the order of threads.
void run(const Case& c, uint64_t seed, Values& result) {
  emulated_cuda::set_seed(seed);
  const AttentionShape& s = c.shape;
  Result<Stream> made = Stream::create(kDevice);
  ASSERT_TRUE(made.ok());
  Stream stream = std::move(made).value();
  const int64_t rows = s.batch * s.sequence;
  Random random(5);
  const DeviceValues qkv(stream, c.dtype, random_doubles(rows * s.qkv_width(), 2.0, random));
  const DeviceValues dout(stream, c.dtype, random_doubles(rows * s.width(), 1.0, random));
  const DeviceValues out = DeviceValues::poisoned(stream, c.dtype, rows * s.width());
  const DeviceValues lse =
      DeviceValues::poisoned(stream, DType::kF32, s.batch * s.heads * s.sequence);
  const DeviceValues dqkv = DeviceValues::poisoned(stream, c.dtype, rows * s.qkv_width());
  const Result<size_t> bytes = prepare(c);
  ASSERT_TRUE(bytes.ok()) << name_of(c) << ": " << bytes.error().message;
  Result<Buffer> buffer = Buffer::allocate(kDevice, *bytes);
  ASSERT_TRUE(buffer.ok());
  cuda::attention_forward(stream, {.qkv = qkv.view(),
                                   .out = out.view(),
                                   .lse = lse.f32(),
                                   .shape = s,
                                   .workspace = buffer->workspace(),
                                   .by = c.by});
  cuda::attention_backward(stream, {.dout = dout.view(),
                                    .qkv = qkv.view(),
                                    .out = out.view(),
                                    .lse = lse.f32(),
                                    .dqkv = dqkv.view(),
                                    .shape = s,
                                    .workspace = buffer->workspace(),
                                    .by = c.by});
  const Status status = stream.synchronize();
  ASSERT_TRUE(status.ok()) << name_of(c) << ": " << status.error().message;
  result = {qkv.read(), dout.read(), out.read(), lse.read(), dqkv.read()};
}

void expect_right(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    Values got;
    ASSERT_NO_FATAL_FAILURE(run(c, 1, got));
    std::vector<double> out(got.out.size()), lse(got.lse.size()), dqkv(got.dqkv.size());
    for_heads(c.shape, got.qkv, [&](const Head& head) {
      head.add_out(out);
      head.add_gradients(got.dout, dqkv);
      for (int64_t t = 0; t < c.shape.sequence; ++t) lse[at(head.lse_at(t))] = head.lse(t);
    });
    expect_near(got.out, out, bound_of(c.dtype), name_of(c) + ", out");
    expect_near(got.lse, lse, 1e-5, name_of(c) + ", lse");
    expect_near(got.dqkv, dqkv, bound_of(c.dtype), name_of(c) + ", dqkv");
  }
}

TEST(EmulatedAttention, AgreesWithDoublePrecisionForwardAndBackward) {
  expect_right(test_cases());
}

TEST(EmulatedAttention, IsTheSameFunctionByCudnnsGraphs) {
  if (const Status status = dnn::available(); !status.ok()) GTEST_SKIP() << status.error().message;
  expect_right(cudnn_cases());
}

TEST(EmulatedAttention, IsRefusedByCudnnUnlessItIsCausal) {
  if (const Status status = dnn::available(); !status.ok()) GTEST_SKIP() << status.error().message;
  AttentionShape bidirectional = shape(1, 16, 1, 1, 64);
  bidirectional.causal = false;
  const Result<size_t> refused = dnn::prepare_attention(kDevice, bidirectional);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_NE(refused.error().message.find("not in this version"), std::string::npos);
}

TEST(EmulatedAttention, GivesTheSameBitsInAnyOrderOfThreads) {
  for (const Case& c :
       {Case{shape(1, 70, 2, 1, 64), DType::kBf16}, Case{shape(1, 70, 1, 1, 128), DType::kBf16},
        Case{shape(1, 9, 2, 2, 40), DType::kF32}}) {
    Values one, two;
    ASSERT_NO_FATAL_FAILURE(run(c, 1, one));
    ASSERT_NO_FATAL_FAILURE(run(c, 2, two));
    EXPECT_EQ(one.out, two.out) << name_of(c);
    EXPECT_EQ(one.lse, two.lse) << name_of(c);
    EXPECT_EQ(one.dqkv, two.dqkv) << name_of(c);
  }
}

TEST(EmulatedAttention, KeepsNoLogSumExpThatIsNotWanted) {
  Result<Stream> made = Stream::create(kDevice);
  ASSERT_TRUE(made.ok());
  Stream stream = std::move(made).value();
  for (const Case& c :
       {Case{shape(1, 5, 1, 1, 64), DType::kBf16}, Case{shape(1, 5, 1, 1, 64), DType::kF32}}) {
    Random random(5);
    const DeviceValues qkv(stream, c.dtype, random_doubles(5 * 192, 1.0, random));
    const DeviceValues out = DeviceValues::poisoned(stream, c.dtype, 5 * 64);
    cuda::attention_forward(stream, {.qkv = qkv.view(), .out = out.view(), .shape = c.shape});
    const Status status = stream.synchronize();
    ASSERT_TRUE(status.ok()) << status.error().message;
    for (const double value : out.read()) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(AttentionGeometry, IsLaunchableUpToLongSequences) {
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t sequence : {1, 64, 1000, 131072}) {
      const AttentionShape s = shape(64, sequence, 64, 8, head_dim);
      EXPECT_TRUE(attention_has_tiles(s, DType::kBf16));
      EXPECT_FALSE(attention_has_tiles(s, DType::kF32));
      for (const LaunchShape& launch :
           {attention_forward_shape(s), attention_dq_shape(s), attention_dkv_shape(s),
            attention_plain_shape(s, s.heads, "plain")}) {
        EXPECT_TRUE(is_launchable(launch)) << launch.name;
      }
      EXPECT_EQ(attention_dkv_shape(s).blocks.y, 8);
      const int64_t rows = head_dim == 64 ? 128 : 64;
      EXPECT_EQ(attention_forward_shape(s).blocks.x, (sequence + rows - 1) / rows);
      EXPECT_EQ(attention_dq_shape(s).blocks.x, (sequence + 63) / 64);
    }
  }
  EXPECT_EQ(attention_workspace(shape(2, 10, 3, 1, 64), DeviceType::kCuda), 2u * 10 * 3 * 4);
}

}  // namespace

}  // namespace lockstep::kernels
