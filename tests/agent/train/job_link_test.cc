// Workers agree at servers that die and join.
#include "agent/train/servers/job_link.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "agent/train/servers/job_desk.h"
#include "tests/agent/rpc/support.h"

namespace lockstep::train {
namespace {

constexpr uint32_t kWorkers = 2;

comm::Identity identity(uint32_t rank) {
  comm::Identity identity = test::rpc_identity(rank);
  identity.size = 16;
  return identity;
}

ServersView view_from(const std::string& text) {
  const auto view = servers_view_from_text(text);
  EXPECT_TRUE(view.ok()) << text;
  return view.ok() ? *view : ServersView();
}

// A server without parameters.
class DeskServer {
 public:
  DeskServer(uint32_t rank, int listen_fd) : desk_(kWorkers) {
    auto made = rpc::Server::create(
        {.self = identity(rank), .listen_fd = listen_fd, .limits = test::quick_limits()});
    EXPECT_TRUE(made.ok());
    server_ = *std::move(made);
    desk_.add_methods(*server_);
    EXPECT_TRUE(server_->start().ok());
  }
  ~DeskServer() {
    desk_.close();
    server_.reset();
  }
  JobDesk& desk() { return desk_; }

 private:
  JobDesk desk_;
  std::unique_ptr<rpc::Server> server_;
};

class JobLinkTest : public testing::Test {
 protected:
  static constexpr size_t kServers = 3;

  JobLinkTest() {
    for (size_t i = 0; i < kServers; ++i) {
      const test::Listener listener = test::listen_here();
      addresses_.push_back({.rank = rank_of(i), .address = {"127.0.0.1", listener.port}});
      servers_.push_back(std::make_unique<DeskServer>(rank_of(i), listener.fd));
    }
    for (uint32_t rank = 0; rank < kWorkers; ++rank) links_.push_back(make_link(rank));
  }

  static uint32_t rank_of(size_t server) { return kWorkers + static_cast<uint32_t>(server); }

  std::unique_ptr<JobLink> make_link(uint32_t rank, const std::string& view = "1:1,1,1") const {
    auto link = JobLink::create({.self = identity(rank),
                                 .workers = kWorkers,
                                 .servers = addresses_,
                                 .standing = view_from(view),
                                 .view_patience = std::chrono::seconds(60)});
    EXPECT_TRUE(link.ok());
    return *std::move(link);
  }
  void install(const std::string& view) {
    for (const auto& link : links_) link->install(view_from(view));
  }
  std::future<Result<JobLink::Values>> meet(uint32_t rank, double value) {
    return std::async(std::launch::async,
                      [this, rank, value] { return links_[rank]->meet(JobLink::Values{value}); });
  }
  std::future<Result<StepNews>> report(uint32_t rank, const StepReport& report) {
    return std::async(std::launch::async,
                      [this, rank, report] { return links_[rank]->report(report); });
  }
  void wait_for(size_t server, const std::string& operation) {
    EXPECT_TRUE(test::eventually([&] {
      const auto awaited = servers_[server]->desk().awaited();
      return awaited && awaited->operation == operation;
    }));
  }

  std::vector<rpc::Client::ServerAddress> addresses_;
  std::vector<std::unique_ptr<DeskServer>> servers_;
  std::vector<std::unique_ptr<JobLink>> links_;
};

TEST_F(JobLinkTest, MeetsThoughAServerDies) {
  auto first = meet(0, 1);
  for (size_t server = 0; server < kServers; ++server) wait_for(server, "meeting");
  servers_[0].reset();
  servers_[2].reset();
  auto second = meet(1, 10);
  for (auto* const each : {&first, &second}) {
    const Result<JobLink::Values> sums = each->get();
    ASSERT_TRUE(sums.ok()) << sums.error().message;
    EXPECT_EQ((*sums)[0], 11);
  }
}

TEST_F(JobLinkTest, WaitsForAViewIfNoServerCanAnswer) {
  install("3:-2,1,-3");
  auto first = meet(0, 1);
  wait_for(1, "meeting");
  servers_[1].reset();
  install("5:5,-4,-3");
  wait_for(0, "meeting");
  const Result<JobLink::Values> sums = meet(1, 10).get();
  ASSERT_TRUE(sums.ok()) << sums.error().message;
  EXPECT_EQ((*sums)[0], 11);
  EXPECT_TRUE(first.get().ok());
}

// Worker 1 has not got the answer when the servers that have given it are gone.
TEST_F(JobLinkTest, LetsOthersPassAMeetingThatItHasPassed) {
  install("2:1,1,-2");
  {
    const std::unique_ptr<JobLink> lost = make_link(1, "2:1,1,-2");
    auto first = meet(0, 1);
    ASSERT_TRUE(lost->meet(JobLink::Values{10}).ok());
    ASSERT_TRUE(first.get().ok());
  }
  auto ahead = meet(0, 2);  // the next one
  wait_for(0, "meeting");
  install("3:1,1,+3");
  install("6:-6,-5,4");
  servers_[0].reset();
  servers_[1].reset();
  for (const double sum : {11.0, 12.0}) {
    const Result<JobLink::Values> sums = meet(1, 10).get();
    ASSERT_TRUE(sums.ok()) << sums.error().message;
    EXPECT_EQ((*sums)[0], sum);
  }
  EXPECT_TRUE(ahead.get().ok());
  EXPECT_FALSE(servers_[2]->desk().awaited());
}

TEST_F(JobLinkTest, ReportsToTheServerThatIsWholeForTheLongest) {
  auto first = report(0, {.step = 1, .waits = 1, .rows = 2, .loss_sum = 3});
  wait_for(0, "step");
  EXPECT_FALSE(servers_[1]->desk().awaited()) << "it answers at once";
  servers_[0].reset();
  install("2:-2,1,1");
  wait_for(1, "step");
  install("5:-2,-4,1");
  wait_for(2, "step");
  auto second = report(1, {.step = 1, .waits = 1, .rows = 4, .loss_sum = 5});
  for (auto* const each : {&first, &second}) {
    const Result<StepNews> news = each->get();
    ASSERT_TRUE(news.ok()) << news.error().message;
    EXPECT_EQ(news->step, 1u);
    EXPECT_EQ(news->rows, 6u);
    EXPECT_EQ(news->loss_sum, 8);
  }
}

// The server lacks a report that its worker has made elsewhere.
TEST_F(JobLinkTest, IsAnsweredOnceAllHaveReportedTheStepOrALaterOne) {
  auto first = report(0, {.step = 1, .waits = 1});
  wait_for(0, "step");
  auto second = report(1, {.step = 2});
  EXPECT_TRUE(second.get().ok());
  const Result<StepNews> news = first.get();
  ASSERT_TRUE(news.ok()) << news.error().message;
  EXPECT_EQ(news->slowest_step, 1u);
}

TEST_F(JobLinkTest, RemembersWhereToStopAtEveryServer) {
  ASSERT_TRUE(report(0, {.step = 7}).get().ok());
  const Result<StepNews> decided = report(1, {.step = 3, .stops = 1}).get();
  ASSERT_TRUE(decided.ok()) << decided.error().message;
  EXPECT_EQ(decided->stop_at, 8u) << "worker 0 may have begun step 8";
  servers_[0].reset();
  install("2:-2,1,1");
  servers_[1].reset();
  install("3:-2,-3,1");
  for (const uint32_t rank : {0u, 1u}) {
    const Result<StepNews> news = report(rank, {.step = 8}).get();
    ASSERT_TRUE(news.ok()) << news.error().message;
    EXPECT_EQ(news->stop_at, 8u);
  }
}

// The server that decided told one worker, and died before that could tell the others.
TEST_F(JobLinkTest, StopsLaterIfAWorkerHasPassedTheStep) {
  install("2:-2,1,1");
  ASSERT_TRUE(report(0, {.step = 5}).get().ok());
  const Result<StepNews> news = report(1, {.step = 2, .stops = 1}).get();
  ASSERT_TRUE(news.ok());
  EXPECT_EQ(news->stop_at, 6u);
  const Result<StepNews> others = report(0, {.step = 6}).get();
  ASSERT_TRUE(others.ok());
  EXPECT_EQ(others->stop_at, 6u);
}

TEST_F(JobLinkTest, LeavesServersThatLive) {
  servers_[1].reset();
  install("2:1,-2,1");
  for (const auto& link : links_) {
    const Status left = link->leave(false);
    EXPECT_TRUE(left.ok()) << left.error().message;
  }
  EXPECT_TRUE(servers_[0]->desk().all_have_left());
  EXPECT_TRUE(servers_[2]->desk().all_have_left());
}

TEST_F(JobLinkTest, BlamesNoServerThatIsGone) {
  servers_[1].reset();
  EXPECT_EQ(links_[0]->culprit(), rank_of(1));
  install("2:1,-2,1");
  EXPECT_EQ(links_[0]->culprit(), -1);
}

// A worker that has passed a meeting elsewhere cancels its call, so nobody is late here.
TEST_F(JobLinkTest, IsNotWaitedForByCallsThatWereGivenUp) {
  {
    const std::unique_ptr<rpc::Client> client = *rpc::Client::create({.self = identity(0)});
    const MeetCall head{.number = 0};
    const StepReport step{.step = 4, .waits = 1};
    const rpc::Peer peer = client->add_server(addresses_[0]);
    rpc::Call call = peer.call(kReportStep, {.head = head_bytes(step)});
    wait_for(0, "step");
    rpc::Call meeting = peer.call(kMeet, {.head = head_bytes(head)});
    wait_for(0, "meeting");
    meeting.cancel();
    wait_for(0, "step");
  }
  EXPECT_TRUE(test::eventually([&] { return !servers_[0]->desk().awaited(); }));
}

}  // namespace
}  // namespace lockstep::train
