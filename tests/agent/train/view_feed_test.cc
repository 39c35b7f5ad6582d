#include "agent/train/servers/view_feed.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/api/round_channel.h"
#include "tests/agent/rpc/support.h"

namespace lockstep::train {
namespace {

class ViewFeedTest : public testing::Test {
 protected:
  ViewFeedTest() : ends_(*make_round_channel()) {}
  ~ViewFeedTest() override {
    for (const int fd : ends_) {
      if (fd >= 0) close(fd);
    }
  }

  ViewFeed::Options options() {
    return {
        .fd = ends_[1], .now = first_servers_view(2), .handler = [this](const ServersView& view) {
          const std::lock_guard lock(mutex_);
          taken_.push_back(text_of(view));
        }};
  }
  void give(const std::string& text) { EXPECT_TRUE(send_view(ends_[0], text).ok()); }
  std::vector<std::string> taken() {
    const std::lock_guard lock(mutex_);
    return taken_;
  }

  std::array<int, 2> ends_;
  std::mutex mutex_;
  std::vector<std::string> taken_;
};

TEST_F(ViewFeedTest, HandsOnLaterViewsOnly) {
  const ViewFeed feed(options());
  for (const char* text :
       {"1:1,1", "3:-2,1", "2:-2,1", "nonsense", "4:-2,1,1", "5:+5,1", "5:+5,1"}) {
    give(text);
  }
  give("6:6,1");
  EXPECT_TRUE(test::eventually([&] { return taken().size() >= 3; }));
  EXPECT_EQ(taken(), (std::vector<std::string>{"3:-2,1", "5:+5,1", "6:6,1"}));
}

TEST_F(ViewFeedTest, EndsAlthoughNothingComes) {
  {
    const ViewFeed waits(options());
    const ViewFeed without({.fd = -1, .now = first_servers_view(2), .handler = nullptr});
  }
  EXPECT_TRUE(taken().empty());
}

TEST_F(ViewFeedTest, EndsWhenTheAgentHasClosedTheSocket) {
  give("2:-2,1");
  close(std::exchange(ends_[0], -1));
  const ViewFeed feed(options());
  EXPECT_TRUE(test::eventually([&] { return !taken().empty(); }));
}

}  // namespace
}  // namespace lockstep::train
