#include "agent/model/passes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/agent/model/allocation_count.h"
#include "tests/agent/model/tiny_gpt.h"

namespace lockstep::model {
namespace {

using test::ArenaSink;
using test::ArenaStore;
using test::Text;
using test::TinyGpt;

const ModelConfig kTiny{2, 16, 2, 8, 17};
const ModelConfig kTinyLlama{.layers = 2,
                             .width = 16,
                             .heads = 4,
                             .context = 8,
                             .vocabulary = 17,
                             .family = Family::kLlama,
                             .hidden = 24,
                             .kv_heads = 2};
const ModelConfig kTinyBert{.layers = 2,
                            .width = 16,
                            .heads = 2,
                            .context = 8,
                            .vocabulary = 17,
                            .family = Family::kBert,
                            .hidden = 24,
                            .norm_epsilon = 1e-12};

// Operations that do nothing, so that only the model's own work remains.
template <class Args>
void nothing(kernels::Stream&, const Args&) {}

kernels::OpTable idle_ops() {
  kernels::OpTable ops = kernels::cpu_ops();
  ops.embedding_forward = nothing<kernels::EmbeddingForward>;
  ops.embedding_backward = nothing<kernels::EmbeddingBackward>;
  ops.layernorm_forward = nothing<kernels::LayerNormForward>;
  ops.layernorm_backward = nothing<kernels::LayerNormBackward>;
  ops.rmsnorm_forward = nothing<kernels::RmsNormForward>;
  ops.rmsnorm_backward = nothing<kernels::RmsNormBackward>;
  ops.matmul_forward = nothing<kernels::MatmulForward>;
  ops.matmul_backward = nothing<kernels::MatmulBackward>;
  ops.swiglu_forward = nothing<kernels::SwigluForward>;
  ops.swiglu_backward = nothing<kernels::SwigluBackward>;
  ops.rotary = nothing<kernels::Rotary>;
  ops.attention_forward = nothing<kernels::AttentionForward>;
  ops.attention_backward = nothing<kernels::AttentionBackward>;
  ops.classifier = nothing<kernels::Classifier>;
  return ops;
}

// Holds prepared views of all blocks.
class PreparedStore final : public ParamStore {
 public:
  explicit PreparedStore(const ModelConfig& config) {
    for (int64_t block = 0; block < block_count(config); ++block) {
      views_.emplace_back(block_parameters(config, block).size());
    }
  }
  void prefetch(const BlockUse&) override {}
  Result<std::span<const ParamView>> get(const BlockUse& use) override {
    return std::span<const ParamView>(views_[static_cast<size_t>(use.block)]);
  }
  void release(const BlockUse&) override {}

 private:
  std::vector<std::vector<ParamView>> views_;
};

TEST(Passes, AllocateNothing) {
  for (const ModelConfig& config : {kTiny, kTinyLlama, kTinyBert}) {
    const int64_t at_first = test::allocation_count();
    const kernels::OpTable ops = idle_ops();
    kernels::Stream stream;
    WholeTensor whole;
    Gpt model = Gpt::create({config, whole_model(config)}, ops, stream, whole).value();
    GptBatch batch = model.make_micro_batch({4, 8}).value();
    PreparedStore store(config);
    ArenaSink sink(model.parameters());
    const Text text(config, 4, 8, 5);
    const int64_t before = test::allocation_count();
    ASSERT_GT(before, at_first) << "the count does not count";
    ASSERT_TRUE(batch.begin(text.input()).ok());
    ASSERT_TRUE(forward_pass(model, store, batch).ok());
    ASSERT_TRUE(backward_pass(model, store, batch, sink).ok());
    EXPECT_EQ(test::allocation_count(), before);
  }
}

// The head's operations and its observer's calls, in order. Operations are plain functions, so the
// record is global.
std::vector<std::string> head_record;

constexpr int64_t kHeadColumns = 17;  // the vocabulary; no other product has as many

// The CPU's operations; those of the head are recorded.
kernels::OpTable recorded_ops() {
  kernels::OpTable ops = kernels::cpu_ops();
  ops.matmul_forward = [](kernels::Stream& stream, const kernels::MatmulForward& args) {
    if (args.n == kHeadColumns) head_record.emplace_back("logits");
    kernels::cpu_ops().matmul_forward(stream, args);
  };
  ops.classifier = [](kernels::Stream& stream, const kernels::Classifier& args) {
    head_record.emplace_back("losses");
    kernels::cpu_ops().classifier(stream, args);
  };
  ops.matmul_backward = [](kernels::Stream& stream, const kernels::MatmulBackward& args) {
    if (args.n == kHeadColumns) head_record.emplace_back("gradients");
    kernels::cpu_ops().matmul_backward(stream, args);
  };
  return ops;
}

class RecordingObserver final : public PassObserver {
 public:
  void head_forward_issued() override { head_record.emplace_back("was forward"); }
  void head_backward_issued() override { head_record.emplace_back("was backward"); }
};

// Returns the gradients of one micro-batch, whose head has four chunks.
std::vector<float> gradients_with(PassObserver* observer) {
  kernels::Stream stream;
  WholeTensor whole;
  const kernels::OpTable ops = recorded_ops();
  const GptOptions options{
      .config = kTiny, .stage = whole_model(kTiny), .head_logits_max = 8 * kHeadColumns};
  Gpt model = Gpt::create(options, ops, stream, whole).value();
  ArenaStore store(kTiny, options.stage);
  store.initialise({}, 1);
  ArenaSink sink(store.arena());
  GptBatch batch = model.make_micro_batch({4, 8}).value();
  const Text text(kTiny, 4, 8, 5);
  GptInput input = text.input();
  input.observer = observer;
  EXPECT_TRUE(batch.begin(input).ok());
  EXPECT_TRUE(forward_pass(model, store, batch).ok());
  EXPECT_EQ(head_record, std::vector<std::string>{}) << "the head's forward waits for backward";
  EXPECT_TRUE(backward_pass(model, store, batch, sink).ok());
  return sink.gradients();
}

TEST(Passes, ReportTheHeadsForwardApartFromItsGradientsChunkByChunk) {
  ASSERT_EQ(padded_vocabulary(kTiny, 1), kHeadColumns);
  head_record.clear();
  RecordingObserver observer;
  const std::vector<float> observed = gradients_with(&observer);
  std::vector<std::string> expected;
  for (int chunk = 0; chunk < 4; ++chunk) {
    expected.insert(expected.end(),
                    {"logits", "losses", "was forward", "gradients", "was backward"});
  }
  EXPECT_EQ(head_record, expected);
  head_record.clear();
  EXPECT_EQ(gradients_with(nullptr), observed);
}

// Has the parameters of every block but one.
class BrokenStore final : public ParamStore {
 public:
  BrokenStore(ArenaStore& store, int64_t missing) : store_(store), missing_(missing) {}
  void prefetch(const BlockUse& use) override { store_.prefetch(use); }
  Result<std::span<const ParamView>> get(const BlockUse& use) override {
    if (use.block == missing_) return timed_out("[test] block " + std::to_string(use.block));
    return store_.get(use);
  }
  void release(const BlockUse& use) override { store_.release(use); }

 private:
  ArenaStore& store_;
  int64_t missing_;
};

TEST(Passes, HandOnAStoresFailureAndReleaseWhatTheyHold) {
  TinyGpt gpt(kTiny, {4, 8});
  const Text text(kTiny, 4, 8, 5);
  gpt.forward(text.input());
  for (int64_t block = 0; block < block_count(kTiny); ++block) {
    BrokenStore store(gpt.store, block);
    const Status back = backward_pass(gpt.model, store, gpt.batch, gpt.sink);
    ASSERT_FALSE(back.ok());
    EXPECT_EQ(back.error().message, "[test] block " + std::to_string(block));
    ASSERT_TRUE(gpt.batch.begin(text.input()).ok());
    const Status forth = forward_pass(gpt.model, store, gpt.batch);
    ASSERT_FALSE(forth.ok());
    EXPECT_EQ(forth.error().code, Code::kTimeout);
    EXPECT_EQ(gpt.store.held(), 0);
    gpt.forward(text.input());
  }
}

// Accepts `limit` calls of ready() and fails the next one, like a sink whose peer has left.
class BrokenSink final : public GradSink {
 public:
  BrokenSink(ArenaSink& sink, int limit) : sink_(sink), limit_(limit) {}
  float* buffer(int64_t id) override { return sink_.buffer(id); }
  Status ready(int64_t) override {
    if (++calls_ > limit_) return unavailable("[test] peer 1 left");
    return {};
  }
  Status end_micro_batch() override {
    ended_ = true;
    return {};
  }
  int calls() const { return calls_; }
  bool ended() const { return ended_; }

 private:
  ArenaSink& sink_;
  int limit_;
  int calls_ = 0;
  bool ended_ = false;
};

TEST(Passes, StopAtASinksFirstFailure) {
  TinyGpt gpt(kTiny, {4, 8});
  const Text text(kTiny, 4, 8, 5);
  const auto parameters = static_cast<int>(parameter_table(kTiny).size());
  for (int limit = 0; limit < parameters; ++limit) {
    gpt.forward(text.input());
    BrokenSink sink(gpt.sink, limit);
    const Status status = backward_pass(gpt.model, gpt.store, gpt.batch, sink);
    ASSERT_FALSE(status.ok()) << limit;
    EXPECT_EQ(status.error().message, "[test] peer 1 left");
    EXPECT_EQ(sink.calls(), limit + 1);
    EXPECT_FALSE(sink.ended());
    EXPECT_EQ(gpt.store.held(), 0);
  }
}

// One of two shards; its peer leaves before call number `limit`.
class BrokenRegion final : public TpRegion {
 public:
  BrokenRegion(int limit, Overlap overlap) : limit_(limit), overlap_(overlap) {}
  TensorShard shard() const override { return {0, 2}; }
  Overlap overlap() const override { return overlap_; }
  Status gather_rows(const RegionRows& rows, Pass) override {
    return rows.parts == 1 ? Status() : call();
  }
  Status sum_rows(const RegionRows&, Pass) override { return call(); }
  void start_sum_rows(const RegionRows&) override { started_ = call(); }
  Status finish(Pass) override { return std::exchange(started_, {}); }
  Status max(float*, int64_t) override { return call(); }
  Status sum(float*, int64_t) override { return call(); }
  Status gather(kernels::ConstView, kernels::View, int64_t) override { return call(); }

 private:
  Status call() {
    if (calls_++ == limit_) return unavailable("[test] peer 1 left");
    return {};
  }

  int limit_;
  Overlap overlap_;
  int calls_ = 0;
  Status started_;
};

Status run_with(BrokenRegion& region, bool sequence_parallel) {
  kernels::Stream stream;
  const GptOptions options{
      .config = kTiny, .stage = whole_model(kTiny), .sequence_parallel = sequence_parallel};
  Gpt model = Gpt::create(options, kernels::cpu_ops(), stream, region).value();
  ArenaStore store(kTiny, whole_model(kTiny), region.shard());
  store.initialise(region.shard(), 1);
  ArenaSink sink(store.arena());
  GptBatch batch = model.make_micro_batch({4, 8}).value();
  const Text text(kTiny, 4, 8, 5);
  TRY(batch.begin(text.input()));
  TRY(forward_pass(model, store, batch));
  return backward_pass(model, store, batch, sink);
}

void expect_each_failure(int calls, bool sequence_parallel) {
  for (const Overlap overlap : {Overlap::kNone, Overlap::kWeights}) {
    for (int limit = 0; limit < calls; ++limit) {
      BrokenRegion region(limit, overlap);
      const Status status = run_with(region, sequence_parallel);
      ASSERT_FALSE(status.ok()) << limit;
      EXPECT_EQ(status.error().code, Code::kUnavailable);
    }
    BrokenRegion patient(calls, overlap);
    EXPECT_TRUE(run_with(patient, sequence_parallel).ok());
  }
}

TEST(Passes, StopAtARegionsFirstFailure) {
  // Forward: the embedding, two per layer. Backward: three in the loss, the head, two per layer.
  expect_each_failure(1 + 2 * 2 + 3 + 1 + 2 * 2, false);
}

TEST(Passes, StopAtTheFirstFailureOfARegionThatSplitsRows) {
  // Forward: the embedding, four per layer. Backward: three in the loss, two in the head, six per
  // layer, the embedding.
  expect_each_failure(1 + 4 * 2 + 3 + 2 + 6 * 2 + 1, true);
}

}  // namespace
}  // namespace lockstep::model
