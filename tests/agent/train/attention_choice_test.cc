// The choice of a job's attention, on a CUDA device with cuDNN emulated on the CPU.
#include "agent/train/attention_choice.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "common/api/worker_config.h"
#include "kernels/ops/dnn/dnn.h"
#include "tests/support/emulated_cuda/fake_cudnn.h"

namespace lockstep::train {
namespace {

using test::fake_cudnn;

constexpr kernels::Device kCuda{kernels::DeviceType::kCuda, 0};

// A clock that is read before and after a run of each implementation, in turn; it reports the given
// durations.
class TurnsClock final : public Clock {
 public:
  TurnsClock(double own_seconds, double cudnn_seconds) : seconds_{own_seconds, cudnn_seconds} {}
  TimePoint now() const override {
    const size_t look = looks_++ % 4;
    if (look % 2 == 1) now_ += from_seconds(seconds_[look / 2]);
    return now_;
  }
  WallTime wall_now() const override { return {}; }

 private:
  std::array<double, 2> seconds_;
  mutable size_t looks_ = 0;
  mutable TimePoint now_;
};

class AttentionChoiceTest : public testing::Test {
 protected:
  void SetUp() override { fake_cudnn().reset(); }
  void TearDown() override { fake_cudnn().reset(); }

  // Uses a new shape each time, because prepared shapes are kept until the process ends.
  AttentionWish wish(const std::string& setting) {
    static int64_t sequence = 2;
    return {
        .setting = setting,
        .shape = {.batch = 1, .sequence = ++sequence, .heads = 1, .head_dim = 64, .kv_heads = 1},
        .device = kCuda,
        .precision = kernels::Precision::kBf16};
  }
  Result<kernels::AttentionBy> choose(const AttentionWish& wish,
                                      const TurnsClock& clock = {1.0, 2.0}) {
    return choose_attention(*world_.front(), wish, clock);
  }

  std::vector<std::unique_ptr<comm::Communicator>> world_ = comm::make_thread_world(1).value();
};

TEST_F(AttentionChoiceTest, IsTheSettingWithoutMeasuring) {
  EXPECT_EQ(choose(wish("own")).value(), kernels::AttentionBy::kOwn);
  EXPECT_EQ(fake_cudnn().calls, 0) << "nothing is loaded for nothing";
  EXPECT_EQ(choose(wish("cudnn")).value(), kernels::AttentionBy::kCudnn);
  EXPECT_EQ(fake_cudnn().executions, 0);
}

TEST_F(AttentionChoiceTest, ByAutoIsWhatIsMeasuredToBeFaster) {
  EXPECT_EQ(choose(wish("auto"), {3.0, 2.0}).value(), kernels::AttentionBy::kCudnn);
  EXPECT_EQ(choose(wish("auto"), {2.0, 3.0}).value(), kernels::AttentionBy::kOwn);
  EXPECT_EQ(choose(wish("auto"), {2.0, 2.0}).value(), kernels::AttentionBy::kOwn);
  EXPECT_GT(fake_cudnn().executions, 0);
}

TEST_F(AttentionChoiceTest, ByAutoIsOurOwnWhereTheMeasurementFails) {
  const AttentionWish asked = wish("auto");
  AttentionWish named = asked;
  named.setting = "cudnn";
  ASSERT_TRUE(choose(named).ok());
  fake_cudnn().reset();
  fake_cudnn().fail_at = 1;
  EXPECT_EQ(choose(asked, {3.0, 2.0}).value(), kernels::AttentionBy::kOwn);
}

TEST_F(AttentionChoiceTest, MeasuresBothInTurnOnTheSameShape) {
  const AttentionWish asked = wish("auto");
  ASSERT_EQ(choose({.setting = "cudnn",
                    .shape = asked.shape,
                    .device = kCuda,
                    .precision = kernels::Precision::kBf16})
                .value(),
            kernels::AttentionBy::kCudnn);
  kernels::Stream stream = kernels::Stream::create(kCuda).value();
  const TurnsClock clock(4.0, 1.0);
  const Result<AttentionTimes> times =
      time_attention(*kernels::device_ops(kCuda.type).value(), stream, asked.shape, 4096,
                     {.rounds = 3, .times = 2}, clock);
  ASSERT_TRUE(times.ok()) << times.error().message;
  EXPECT_NEAR(times->own, 2.0, 1e-6);
  EXPECT_NEAR(times->cudnn, 0.5, 1e-6);
  EXPECT_EQ(fake_cudnn().executions, 16) << "4 rounds of 2 times both passes";
}

TEST_F(AttentionChoiceTest, ByAutoStaysWhatWasKept) {
  AttentionWish asked = wish("auto");
  asked.kept = kernels::AttentionBy::kCudnn;
  EXPECT_EQ(choose(asked).value(), kernels::AttentionBy::kCudnn);
  asked.kept = kernels::AttentionBy::kOwn;
  EXPECT_EQ(choose(asked).value(), kernels::AttentionBy::kOwn);
  EXPECT_EQ(fake_cudnn().executions, 0);
}

TEST(AttentionNames, AreReadAsTheyAreWritten) {
  for (const kernels::AttentionBy by : {kernels::AttentionBy::kOwn, kernels::AttentionBy::kCudnn}) {
    EXPECT_EQ(attention_named(name_of(by)), by);
    EXPECT_EQ(attention_named(std::string(name_of(by)) + "\n"), std::nullopt);
  }
  for (const char* other : {"", " ", "auto", "cudnn own", "cudn"}) {
    EXPECT_EQ(attention_named(other), std::nullopt) << other;
  }
}

TEST_F(AttentionChoiceTest, ByAutoIsOurOwnWhereThereIsNoRoomForTheOther) {
  AttentionWish asked = wish("auto");
  size_t bytes = 0;
  asked.room = [&](size_t workspace) {
    bytes = workspace;
    return Status(unavailable("[memory] too little"));
  };
  EXPECT_EQ(choose(asked, {3.0, 2.0}).value(), kernels::AttentionBy::kOwn);
  EXPECT_EQ(bytes, kernels::dnn::prepare_attention(kCuda, asked.shape).value());
  asked.kept = kernels::AttentionBy::kCudnn;
  EXPECT_EQ(choose(asked).value(), kernels::AttentionBy::kOwn) << "also where it was kept";
  EXPECT_EQ(fake_cudnn().executions, 0) << "not measured";
  asked.room = [](size_t) { return Status(); };
  EXPECT_EQ(choose(asked).value(), kernels::AttentionBy::kCudnn);
}

TEST_F(AttentionChoiceTest, ByAutoIsOurOwnWhereCudnnCanNot) {
  fake_cudnn().engines = 0;
  AttentionWish kept = wish("auto");
  kept.kept = kernels::AttentionBy::kCudnn;
  EXPECT_EQ(choose(kept).value(), kernels::AttentionBy::kOwn) << "no engine";
  fake_cudnn().reset();
  AttentionWish asked = wish("auto");
  asked.precision = kernels::Precision::kF32;
  EXPECT_EQ(choose(asked).value(), kernels::AttentionBy::kOwn);
  asked = wish("auto");
  asked.device = {};
  EXPECT_EQ(choose(asked).value(), kernels::AttentionBy::kOwn);
  asked = wish("auto");
  asked.shape.head_dim = 80;
  EXPECT_EQ(choose(asked).value(), kernels::AttentionBy::kOwn);
}

TEST_F(AttentionChoiceTest, ThatIsAskedForByNameIsRefusedWhereARankCanNot) {
  AttentionWish asked = wish("cudnn");
  asked.shape.head_dim = 80;
  const Result<kernels::AttentionBy> by = choose(asked);
  ASSERT_FALSE(by.ok());
  EXPECT_EQ(by.error().code, Code::kInvalid);
  EXPECT_NE(
      by.error().message.find("spec.train.attention: cudnn must work on every rank, but rank 0"),
      std::string::npos)
      << by.error().message;
  EXPECT_EQ(by.error().blame, Blame::kConfig);
}

TEST_F(AttentionChoiceTest, IsRankZerosForAllRanks) {
  std::vector<std::unique_ptr<comm::Communicator>> world = comm::make_thread_world(2).value();
  AttentionWish first = wish("auto"), second = first;
  first.kept = kernels::AttentionBy::kCudnn;
  second.kept = kernels::AttentionBy::kOwn;
  Result<kernels::AttentionBy> other = kernels::AttentionBy::kOwn;
  const TurnsClock clock(1.0, 2.0);
  std::jthread thread([&] { other = choose_attention(*world[1], second, clock); });
  const Result<kernels::AttentionBy> mine = choose_attention(*world[0], first, clock);
  thread.join();
  EXPECT_EQ(mine.value(), kernels::AttentionBy::kCudnn);
  EXPECT_EQ(other.value(), kernels::AttentionBy::kCudnn);
}

TEST_F(AttentionChoiceTest, IsOurOwnForAllWhereOneRankCanNot) {
  std::vector<std::unique_ptr<comm::Communicator>> world = comm::make_thread_world(2).value();
  const AttentionWish first = wish("auto");
  AttentionWish second = first;
  second.precision = kernels::Precision::kF32;
  Result<kernels::AttentionBy> other = kernels::AttentionBy::kCudnn;
  const TurnsClock clock(1.0, 2.0);
  std::jthread thread([&] { other = choose_attention(*world[1], second, clock); });
  const Result<kernels::AttentionBy> mine = choose_attention(*world[0], first, clock);
  thread.join();
  EXPECT_EQ(mine.value(), kernels::AttentionBy::kOwn);
  EXPECT_EQ(other.value(), kernels::AttentionBy::kOwn);
}

}  // namespace
}  // namespace lockstep::train
