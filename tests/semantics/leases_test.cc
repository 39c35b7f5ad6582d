// Two replicas and a Lease: row 23.
#include <thread>

#include "tests/semantics/replica.h"

namespace lockstep::semantics {
namespace {

using conformance::is_code;
using conformance::meta;
using conformance::server;
using std::chrono::seconds;

constexpr double kSpeed = 8;
constexpr Duration kSkew = std::chrono::minutes(10);
constexpr double kSlowSpeed = 3;  // for times that a second matters to

class Leases : public Jobs {
 protected:
  loop::ControllerOptions replica_options(const std::string& identity) const {
    loop::ControllerOptions made = options();
    made.identity = identity;
    made.lease = {.namespace_ = namespace_, .identity = identity};
    return made;
  }
  std::string holder() {
    const Json lease = get(path("coordination.k8s.io/v1", "leases") + "/lockstep-controller").body;
    return lease.contains("spec") ? string_or(lease["spec"], "holderIdentity", "") : "";
  }
};

TEST_F(Leases, WhatAFrozenLeaderStillSendsTakesNoEffect) {
  FaultProxy second_proxy(server().target());
  Loop first_loop(kSpeed, kSkew);
  Loop second_loop(kSpeed, -kSkew);
  Replica first(first_loop, proxy, replica_options("first"));
  Replica second(second_loop, second_proxy, replica_options("second"));
  first.start();
  ASSERT_TRUE(first_loop.run_until([&] { return first.controller.is_leading(); }));
  second.start();
  // The first replica has decided on a job. Its status write hangs in the network when it freezes.
  proxy.on({.verb = "update",
            .resource = "trainingjobs/status",
            .fault = held_until("late"),
            .times = 1});
  const Json made = make_job("j", 2);
  ASSERT_TRUE(run_until({&first_loop, &second_loop},
                        [&] { return proxy.count("update", "trainingjobs/status") == 1; }));
  const TimePoint frozen = second_loop.timers.now();
  ASSERT_TRUE(second_loop.run_until([&] { return second.controller.is_leading(); }));
  EXPECT_GE(second_loop.timers.now() - frozen, seconds(5));
  ASSERT_TRUE(second_loop.run_until([&] { return pods_of(made) == "j-worker-0-1 j-worker-1-1"; }));
  second_loop.run_for(seconds(10));
  const std::string status = dump_json(job("j")["status"]);
  const size_t before = proxy.writes().size();
  // The first replica wakes up: its write arrives, and it continues where it was.
  proxy.open_gate("late");
  ASSERT_TRUE(run_until({&first_loop, &second_loop}, [&] {
    return first.is_lost && proxy.seen("update", "trainingjobs/status")[0].status != 0;
  }));
  for (const RecordedRequest& one : proxy.seen("update", "trainingjobs/status"))
    EXPECT_EQ(one.status, 409);
  const std::vector<RecordedRequest> writes = proxy.writes();
  for (size_t i = before; i < writes.size(); ++i)
    EXPECT_EQ(writes[i].resource, "leases") << writes[i].method << " " << writes[i].path;
  EXPECT_EQ(dump_json(job("j")["status"]), status);
  EXPECT_EQ(holder(), "second");
  EXPECT_FALSE(second.is_lost);
}

TEST_F(Leases, AreKeptThroughRenewalsThatTakeNineSeconds) {
  Loop loop(kSlowSpeed);
  proxy.on({.verb = "update", .resource = "leases", .fault = [](Exchange& exchange) {
              std::this_thread::sleep_for(seconds(9) / kSlowSpeed);
              exchange.pass();
            }});
  Replica replica(loop, proxy, replica_options("first"));
  replica.start();
  ASSERT_TRUE(loop.run_until([&] { return replica.controller.is_leading(); }));
  ASSERT_TRUE(
      loop.run_until([&] { return replica.is_lost || proxy.count("update", "leases") == 3; }));
  EXPECT_FALSE(replica.is_lost);
  EXPECT_EQ(holder(), "first");
}

TEST_F(Leases, AreGivenBackSoThatTheNextOneLeadsAtOnce) {
  Loop loop(kSpeed);
  Replica first(loop, proxy, replica_options("first"));
  Replica second(loop, proxy, replica_options("second"));
  first.start();
  ASSERT_TRUE(loop.run_until([&] { return first.controller.is_leading(); }));
  second.start();
  bool is_given_back = false;
  first.controller.stop([&] { is_given_back = true; });
  ASSERT_TRUE(loop.run_until([&] { return is_given_back; }));
  EXPECT_NE(holder(), "first");  // the second one may be that quick
  const TimePoint given_back = loop.timers.now();
  ASSERT_TRUE(loop.run_until([&] { return second.controller.is_leading(); }));
  EXPECT_LT(loop.timers.now() - given_back, seconds(15));
  EXPECT_FALSE(first.is_lost);
}

}  // namespace
}  // namespace lockstep::semantics
