// The choice of a job's convolutions.
#include "agent/train/convolution_choice.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/comm/make_communicator.h"

namespace lockstep::train {
namespace {

using kernels::Conv2dBy;
using Prepared = Result<model::ConvolutionChoice>;

Prepared lacking() {
  return unavailable("[cudnn] this build has no cuDNN support");
}

std::vector<Conv2dBy> choose(const std::vector<Prepared>& prepared,
                             std::optional<Conv2dBy> kept = {}) {
  const auto world = comm::make_thread_world(static_cast<int>(prepared.size())).value();
  std::vector<Conv2dBy> found(prepared.size());
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < prepared.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const std::optional<Conv2dBy> own = rank == 0 ? kept : std::nullopt;
        found[rank] = choose_convolutions(*world[rank], prepared[rank], own).value();
      });
    }
  }
  return found;
}

constexpr Conv2dBy kOwn = Conv2dBy::kOwn, kCudnn = Conv2dBy::kCudnn;
const Prepared kPrepared = model::ConvolutionChoice();

TEST(ConvolutionChoice, IsCudnnsWhereEveryRankHasThem) {
  EXPECT_EQ(choose({kPrepared}), std::vector<Conv2dBy>{kCudnn});
  EXPECT_EQ(choose({kPrepared, kPrepared}), (std::vector<Conv2dBy>{kCudnn, kCudnn}));
}

TEST(ConvolutionChoice, IsOurOwnForAllWhereOneRankLacksThem) {
  EXPECT_EQ(choose({lacking()}), std::vector<Conv2dBy>{kOwn});
  EXPECT_EQ(choose({kPrepared, lacking()}), (std::vector<Conv2dBy>{kOwn, kOwn}));
  EXPECT_EQ(choose({lacking(), kPrepared}), (std::vector<Conv2dBy>{kOwn, kOwn}));
}

TEST(ConvolutionChoice, StaysWhatWasKept) {
  EXPECT_EQ(choose({kPrepared, kPrepared}, kOwn), (std::vector<Conv2dBy>{kOwn, kOwn}));
  EXPECT_EQ(choose({kPrepared, kPrepared}, kCudnn), (std::vector<Conv2dBy>{kCudnn, kCudnn}));
  EXPECT_EQ(choose({kPrepared, lacking()}, kCudnn), (std::vector<Conv2dBy>{kOwn, kOwn}));
}

// Returns what a call logs.
template <class Call>
std::string log_of(const Call& call) {
  testing::internal::CaptureStderr();
  call();
  return testing::internal::GetCapturedStderr();
}

TEST(ConvolutionChoice, WarnsWhereARunThatBeganWithCudnnGoesOnWithoutIt) {
  const auto log = [](std::optional<Conv2dBy> kept, const Prepared& second) {
    return log_of([&] { choose({kPrepared, second}, kept); });
  };
  constexpr char kWarning[] = "this run began with cuDNN";
  EXPECT_NE(log(kCudnn, lacking()).find(kWarning), std::string::npos);
  EXPECT_EQ(log(kCudnn, kPrepared).find(kWarning), std::string::npos);
  EXPECT_EQ(log(kOwn, lacking()).find(kWarning), std::string::npos);
  EXPECT_EQ(log({}, lacking()).find(kWarning), std::string::npos);
}

TEST(ConvolutionChoice, SaysWhichPassesAreOwnOnEveryRankThatHasSome) {
  const Prepared refused = model::ConvolutionChoice{.own_passes = 2, .reason = "no kernel"};
  const Prepared dropped = model::ConvolutionChoice{.dropped_passes = 3};
  std::string log = log_of([&] { choose({kPrepared, refused, dropped}); });
  EXPECT_NE(log.find("passes=2 reason=\"no kernel\" passesWithoutWorkspace=0"), std::string::npos)
      << log;
  EXPECT_NE(log.find("passes=0 reason=\"\" passesWithoutWorkspace=3"), std::string::npos) << log;
  log = log_of([&] { choose({kPrepared, refused}, kOwn); });
  EXPECT_EQ(log.find("passes="), std::string::npos) << log;
}

TEST(ConvolutionChoice, IsReadAsItIsWritten) {
  for (const Conv2dBy by : {kOwn, kCudnn}) {
    EXPECT_EQ(convolutions_named(name_of(by)), by);
  }
  EXPECT_EQ(convolutions_named("neither"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::train
