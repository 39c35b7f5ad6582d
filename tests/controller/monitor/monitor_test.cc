#include <gtest/gtest.h>

#include <thread>

#include "controller/kube/mailbox.h"
#include "controller/monitor/metrics.h"
#include "controller/monitor/probes.h"
#include "controller/monitor/readiness.h"
#include "tests/controller/sim/connection.h"
#include "tests/support/raw_http.h"

namespace lockstep::monitor {
namespace {

using sim::Connection;
using sim::World;
using test::http_call;
using test::HttpReply;

// A controller in an in-memory World, with its thread, and its probes on their own port.
struct Watched : ::testing::Test {
  ManualClock clock;
  World world{clock, 1};
  Connection connection{world};
  loop::Timers timers{clock};
  Random random{1};
  loop::Controller controller{connection, connection, timers, random, {.key = "secret"}, [] {}};
  kube::RequestMetrics requests;
  kube::Mailbox mailbox;
  Probes probes{{.readiness = [this] { return readiness_of(controller); },
                 .metrics =
                     [this] {
                       return render_metrics({.controller = controller,
                                              .requests = requests,
                                              .requests_waiting = 2,
                                              .api_host = "10.0.0.1:443",
                                              .version = "1.2.3",
                                              .wall_now = clock.wall_now()});
                     },
                 .post = [this](std::function<void()> call) { mailbox.post(std::move(call)); }}};
  std::unique_ptr<http::Server> server =
      std::move(serve_probes({.ip = "127.0.0.1"}, probes)).value();

  void pass(Duration time) {
    const TimePoint end = clock.now() + time;
    while (clock.now() < end) {
      clock.advance(std::chrono::milliseconds(100));
      world.chance.timers.run_due();
      timers.run_due();
    }
  }
  HttpReply get(const std::string& path) {
    HttpReply reply;
    bool is_done = false;
    std::jthread caller([&] {
      reply = http_call(server->port(), {.target = path});
      mailbox.post([&is_done] { is_done = true; });
    });
    while (!is_done) {
      mailbox.wait(std::nullopt);
      mailbox.run();
    }
    return reply;
  }
};

TEST_F(Watched, IsReadyOnceItsCachesAreFilledAndHealthyAllTheTime) {
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_EQ(get("/readyz").body, "not listed yet: trainingjobs pods\n");
  EXPECT_EQ(get("/healthz").status, 200);
  controller.start();
  pass(std::chrono::seconds(5));
  EXPECT_EQ(get("/readyz").status, 200);
  EXPECT_EQ(get("/secrets").status, 404);
}

// Passes requests on, but for those about leases while it refuses them.
class Guard final : public loop::ApiClient {
 public:
  Guard(loop::ApiClient& api, loop::Timers& timers) : api_(api), timers_(timers) {}
  void send(loop::ApiRequest request, Done done) override {
    if (!is_refusing || request.type.plural != loop::kLeases.plural)
      return api_.send(std::move(request), std::move(done));
    timers_.after(std::chrono::milliseconds(1), [done = std::move(done)] {
      done({.outcome = loop::ApiOutcome::kForbidden, .message = "no access to leases"});
    });
  }
  std::unique_ptr<loop::WatchHandle> watch(loop::WatchRequest request,
                                           loop::WatchHandler handler) override {
    return api_.watch(std::move(request), std::move(handler));
  }
  bool is_refusing = true;

 private:
  loop::ApiClient& api_;
  loop::Timers& timers_;
};

TEST_F(Watched, AReplicaThatCannotReadTheLeaseIsNotReady) {
  Guard guard(connection, timers);
  loop::ControllerOptions options{.key = "secret"};
  options.lease = loop::LeaseOptions{.identity = "me"};
  loop::Controller replica{guard, connection, timers, random, options, [] {}};
  replica.start();
  pass(std::chrono::seconds(5));
  ASSERT_TRUE(replica.synced());
  EXPECT_FALSE(readiness_of(replica).is_ready);
  EXPECT_EQ(readiness_of(replica).why_not,
            "could not read the lease default/lockstep-controller: Forbidden: no access to leases");
  guard.is_refusing = false;
  pass(std::chrono::seconds(5));
  EXPECT_TRUE(readiness_of(replica).is_ready) << readiness_of(replica).why_not;
}

TEST_F(Watched, SaysUnderTheStandardNamesWhatItDid) {
  controller.start();
  const std::string key =
      world.users.add_job({.name = "mnist", .nodes = 2, .steps = 5, .max_restarts = 3});
  world.users.add_job({.name = "long", .nodes = 2, .steps = 1'000'000, .max_restarts = 3});
  pass(std::chrono::minutes(2));
  ASSERT_EQ(string_or(world.status_of(key), "state", ""), "Complete");
  requests.count("GET", 200);
  requests.count("LIST", 0);
  requests.took("GET", 0.25);
  const std::string text = get("/metrics").body;
  for (const char* line :
       {"controller_runtime_reconcile_total{controller=\"trainingjob\",result=\"success\"} ",
        "controller_runtime_reconcile_errors_total{controller=\"trainingjob\"} 0\n",
        "workqueue_depth{name=\"trainingjob\"} 0\n",
        "workqueue_queue_duration_seconds_count{name=\"trainingjob\"} ",
        "rest_client_requests_total{code=\"200\",method=\"GET\",host=\"10.0.0.1:443\"} 1\n",
        "rest_client_requests_total{code=\"<error>\",method=\"LIST\",host=\"10.0.0.1:443\"} 1\n",
        "rest_client_request_duration_seconds_sum{verb=\"GET\",host=\"10.0.0.1:443\"} 0.25\n",
        "leader_election_master_status{name=\"lockstep-controller\"} 1\n",
        "lockstep_controller_requests_waiting 2\n", "lockstep_time_to_ready_seconds_count 2\n",
        "lockstep_recovery_seconds_count{part=\"restore\"} 0\n",
        "lockstep_recovery_seconds_count{part=\"recompute\"} 0\n",
        "lockstep_downtime_seconds_count 0\n",
        "lockstep_goodput_ratio{namespace=\"default\",job=\"long\"} 1\n",
        "lockstep_job_restarts{namespace=\"default\",job=\"long\"} 0\n", "state=\"Complete\"} 1\n",
        "lockstep_build_info{version=\"1.2.3\"} 1\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "is not in\n" << text;
  }
  EXPECT_EQ(text.find("job=\"mnist\""), std::string::npos) << "a job that is over has series still";
}

TEST(Probes, AnAddressIsReadOrRefusedWithWords) {
  EXPECT_EQ(listen_address(":8080")->ip, "");
  EXPECT_EQ(listen_address(":8080")->port, 8080);
  EXPECT_EQ(listen_address("127.0.0.1:0")->ip, "127.0.0.1");
  EXPECT_EQ(listen_address("[::1]:80")->ip, "::1");
  for (const char* text : {"", "8080", ":", ":x", ":70000", "1.2.3.4:-1"}) {
    const Result<ListenAddress> address = listen_address(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_NE(address.error().message.find("expected"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::monitor
