// The controller's reads and writes: rows 1, 13, 14, 16 to 20, 22, 30 and 31.
#include <algorithm>
#include <atomic>

#include "tests/semantics/replica.h"

namespace lockstep::semantics {
namespace {

using conformance::is_code;
using conformance::kApplyPatch;
using conformance::meta;
using conformance::server;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kThree[] = "j-worker-0-1 j-worker-1-1 j-worker-2-1";

class Control : public Jobs {
 protected:
  // Runs until all pods of a job of three nodes exist.
  bool makes_three(Loop& loop, const Json& made) {
    return loop.run_until([&] { return pods_of(made) == kThree; });
  }
  static bool is_write(const RecordedRequest& request) { return request.method != "GET"; }
  // Patches through the proxy, so that its faults apply.
  conformance::Reply patch_by_proxy(const std::string& target, const Json& change) const {
    const Result<conformance::Reply> reply =
        conformance::exchange(*conformance::parse_url(proxy.url()),
                              {.method = "PATCH",
                               .target = target,
                               .headers = {{"Content-Type", conformance::kMergePatch}},
                               .body = dump_json(change)});
    return reply.ok() ? *reply : conformance::Reply{};
  }
  static size_t with_status(const std::vector<RecordedRequest>& all, int status) {
    return static_cast<size_t>(
        std::count_if(all.begin(), all.end(),
                      [status](const RecordedRequest& one) { return one.status == status; }));
  }
};

TEST_F(Control, ListsFromTheQuorumWheneverItStarts) {
  const Json made = make_job("j", 3);
  for (int start = 0; start < 2; ++start) {
    Loop loop(20);
    Replica replica(loop, proxy, options());
    replica.start();
    ASSERT_TRUE(makes_three(loop, made));
    ASSERT_TRUE(loop.run_until([&] { return replica.controller.synced(); }));
    run_until_quiet(loop);
  }
  for (const RecordedRequest& list : proxy.seen("list")) {
    EXPECT_FALSE(list.query.contains("resourceVersion"));
    EXPECT_TRUE(list.query.contains("limit"));
  }
  EXPECT_EQ(proxy.count("create", "pods"), 3u);
  EXPECT_EQ(proxy.count("delete"), 0u);
}

TEST_F(Control, AConflictIsReadAgainAndOvercome) {
  const Json made = make_job("j", 3);
  int changes = 0;
  // Another client writes first, three times, so that the server itself returns Conflict.
  proxy.on({.verb = "update",
            .resource = "trainingjobs/status",
            .fault =
                [&](Exchange& exchange) {
                  const Json label = {
                      {"metadata", {{"labels", {{"changes", std::to_string(++changes)}}}}}};
                  EXPECT_TRUE(is_code(patch(jobs() + "/j", label), 200));
                  exchange.pass();
                },
            .times = 3});
  Loop loop(20);
  Replica replica(loop, proxy, options());
  replica.start();
  ASSERT_TRUE(makes_three(loop, made));
  run_until_quiet(loop);
  EXPECT_EQ(with_status(proxy.seen("update", "trainingjobs/status"), 409), 3u);
  EXPECT_EQ(proxy.count("create", "pods"), 3u);
  EXPECT_EQ(job("j")["metadata"]["labels"]["changes"], "3");
}

TEST_F(Control, AConflictForEverIsTriedMoreAndMoreRarely) {
  make_job("j", 3);
  proxy.on({.verb = "update", .resource = "trainingjobs/status", .fault = failed(409, "Conflict")});
  Loop loop(20);
  Replica replica(loop, proxy, options());
  replica.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("update", "trainingjobs/status") == 1; }));
  loop.run_for(seconds(60));
  // The delay doubles from 5 ms to at most 30 s: fourteen attempts in a minute.
  EXPECT_LE(proxy.count("update", "trainingjobs/status"), 16u);
  EXPECT_EQ(proxy.count("create", "pods"), 0u);
}

TEST_F(Control, AStrangersPodUnderAChildsNameIsLeftAlone) {
  Json stranger = conformance::Case::pod("j-worker-1-1");
  stranger = make(pods(), stranger);
  const Json made = make_job("j", 3);
  Loop loop(20);
  Replica replica(loop, proxy, options());
  replica.start();
  ASSERT_TRUE(
      loop.run_until([&] { return condition_reason(job("j"), "PodsScheduled") == "NameTaken"; }));
  run_until_quiet(loop);
  EXPECT_EQ(pod("j-worker-1-1"), stranger);
  EXPECT_EQ(proxy.count("delete"), 0u);
  // Once the stranger's pod is gone, the controller uses the name.
  EXPECT_TRUE(is_code(ask("DELETE", pods() + "/j-worker-1-1?gracePeriodSeconds=0"), 200));
  EXPECT_TRUE(makes_three(loop, made));
}

TEST_F(Control, APodWhoseAnswerWasLostIsFoundAndNotMadeTwice) {
  const Json made = make_job("j", 3);
  // One reply is lost and another is cut in half, but both pods exist.
  proxy.on({.verb = "create", .resource = "pods", .fault = reply_lost(), .times = 1});
  proxy.on({.verb = "create",
            .resource = "pods",
            .fault =
                [](Exchange& exchange) {
                  const conformance::Reply reply = exchange.ask();
                  exchange.answer(reply.code, reply.text.substr(0, reply.text.size() / 2));
                },
            .skip = 1,
            .times = 1});
  // The watch doesn't report them either.
  proxy.on({.verb = "watch", .resource = "pods", .fault = filtered([](const std::string&) {
                                                   return std::vector<std::string>();
                                                 })});
  Loop loop(20);
  Replica replica(loop, proxy, options());
  replica.start();
  ASSERT_TRUE(makes_three(loop, made));
  ASSERT_TRUE(loop.run_until([&] { return replica.controller.pods().objects().size() == 3; }));
  run_until_quiet(loop);
  const std::vector<RecordedRequest> creates = proxy.seen("create", "pods");
  EXPECT_EQ(with_status(creates, 409), 2u);
  EXPECT_EQ(pods_of(made), kThree);
  EXPECT_EQ(proxy.count("delete"), 0u);
}

// Makes the job deeper or larger than the client reads, as any user who may create jobs could.
Json deeper_or_larger(Json job) {
  const std::string name = meta(job, "name");
  Json inner = 0;
  for (int i = 0; name == "deep" && i < 70; ++i) inner = {{"a", std::move(inner)}};
  if (name == "large") inner = Json::array_t(250'000, 0);
  if (inner != 0) job["spec"]["podTemplate"] = {{"x", std::move(inner)}};
  return job;
}

TEST_F(Control, AJobThatIsTooDeepOrTooLargeIsInvalidAndHarmsNoOther) {
  const auto in_answer = [](Exchange& exchange) {
    const conformance::Reply reply = exchange.ask();
    Json body = reply.body;
    if (body.contains("items")) {
      for (Json& item : body["items"]) item = deeper_or_larger(std::move(item));
    } else if (body.contains("spec")) {
      body = deeper_or_larger(std::move(body));
    }
    exchange.answer(reply.code, dump_json(body));
  };
  for (const char* verb : {"list", "get"})
    proxy.on({.verb = verb, .resource = "trainingjobs", .fault = in_answer});
  proxy.on({.verb = "update", .resource = "trainingjobs/status", .fault = in_answer});
  proxy.on({.verb = "watch",
            .resource = "trainingjobs",
            .fault = filtered([](const std::string& line) {
              Json event = *parse_json(line);
              event["object"] = deeper_or_larger(std::move(event["object"]));
              return std::vector<std::string>{dump_json(event)};
            })});
  const auto is_invalid = [&](const char* name) {
    return condition_reason(job(name), "Valid") == "InvalidSpec";
  };
  const Json before = make_job("large", 2);
  const Json made = make_job("j", 3);
  std::string wanted = kThree;
  for (int start = 0; start < 2; ++start) {
    Loop loop(20);
    Replica replica(loop, proxy, options());
    replica.start();
    ASSERT_TRUE(loop.run_until([&] { return pods_of(made) == wanted && is_invalid("large"); }));
    // Now the job arrives as a watch event.
    if (start == 0) make_job("deep", 2);
    EXPECT_TRUE(is_code(patch(jobs() + "/j", {{"spec", {{"nodes", 4 + start}}}}), 200));
    wanted += " j-worker-" + std::to_string(3 + start) + "-1";
    ASSERT_TRUE(loop.run_until([&] { return pods_of(made) == wanted && is_invalid("deep"); }));
    run_until_quiet(loop);
  }
  EXPECT_EQ(pods_of(before), "");
  EXPECT_EQ(pods_of(job("deep")), "");
  const std::string stored = dump_json(job("deep")["status"]["conditions"]);
  EXPECT_NE(stored.find("spec.podTemplate: found a value nested deeper than 64 levels"),
            std::string::npos)
      << stored;
  EXPECT_EQ(proxy.count("list"), 4u);
  // A write of the status has the whole spec or none: a server compares it with the schema.
  for (const RecordedRequest& write : proxy.seen("update", "trainingjobs/status"))
    EXPECT_EQ(parse_json(write.body)->contains("spec"), write.name == "j") << write.name;
}

TEST_F(Control, ATokenThatIsRefusedIsNoRefusalOfPods) {
  const Json made = make_job("j", 3);
  proxy.on(
      {.verb = "create", .resource = "pods", .fault = failed(401, "Unauthorized"), .times = 3});
  Loop loop(20);
  Replica replica(loop, proxy, options());
  replica.start();
  bool is_blamed = false;
  ASSERT_TRUE(loop.run_until([&] {
    is_blamed |= condition_reason(job("j"), "PodsScheduled") == "PodForbidden";
    return pods_of(made) == kThree;
  }));
  EXPECT_FALSE(is_blamed);
}

TEST_F(Control, ANamesakeInheritsNothingOfAJobWhoseDeletionWasNotHeardOf) {
  const Json first = make_job("j", 3);
  proxy.on({.verb = "create", .resource = "pods", .fault = failed(403, "Forbidden"), .times = 1});
  proxy.on({.verb = "watch",
            .resource = "trainingjobs",
            .fault = filtered([](const std::string& line) {
              const bool is_swallowed = line.find("\"DELETED\"") != std::string::npos;
              return is_swallowed ? std::vector<std::string>() : std::vector<std::string>{line};
            })});
  loop::ControllerOptions patient = options();
  patient.refusal_first = patient.refusal_max = std::chrono::hours(10);
  Loop loop(20);
  Replica replica(loop, proxy, patient);
  replica.start();
  ASSERT_TRUE(loop.run_until(
      [&] { return condition_reason(job("j"), "PodsScheduled") == "PodForbidden"; }));
  run_until_quiet(loop);
  EXPECT_EQ(pods_of(first), "");
  EXPECT_TRUE(is_code(ask("DELETE", jobs() + "/j?propagationPolicy=Background"), 200));
  const Json second = make_job("j", 3);
  EXPECT_NE(meta(first, "uid"), meta(second, "uid"));
  EXPECT_TRUE(makes_three(loop, second));
}

TEST_F(Control, AServerThatIsBusyGetsItsTime) {
  const Json made = make_job("j", 3);
  proxy.on({.verb = "create",
            .resource = "pods",
            .fault = failed(429, "TooManyRequests", "Retry-After: 5\r\n"),
            .times = 2});
  // As measured on a real server. This clock runs 20 times as fast.
  proxy.on({.fault = slow(milliseconds(48)), .only = is_write});
  Loop loop(20);
  Replica replica(loop, proxy, options());
  replica.start();
  // Changes the job while the server asks for time, each change causing a plan. Not more often: a
  // job that changes before the status is written has a new version, and the plan begins again.
  size_t changes = 0;
  ASSERT_TRUE(loop.run_until([&] {
    const size_t refused = std::min<size_t>(proxy.count("create", "pods"), 2);
    if (changes == 2 * refused) return pods_of(made) == kThree;
    const Json label = {{"metadata", {{"labels", {{"change", std::to_string(++changes)}}}}}};
    EXPECT_TRUE(is_code(patch_by_proxy(jobs() + "/j", label), 200));
    return false;
  }));
  EXPECT_EQ(changes, 4u);
  const std::vector<RecordedRequest> creates = proxy.seen("create", "pods");
  for (size_t i = 0; i < 2; ++i)
    EXPECT_GE(to_seconds(creates[i + 1].at - creates[i].at) * loop.clock.speed(), 5.0);
  EXPECT_EQ(creates.size(), 5u);
}

TEST_F(Control, AnotherManagersLabelsStay) {
  const Json made = make_job("j", 3);
  Loop loop(20);
  Replica replica(loop, proxy, options());
  replica.start();
  ASSERT_TRUE(makes_three(loop, made));
  const auto apply = [&](const std::string& target, const std::string& version,
                         const std::string& kind, const std::string& name) {
    const Json labelled = {{"apiVersion", version},
                           {"kind", kind},
                           {"metadata", {{"name", name}, {"labels", {{"team", "a"}}}}}};
    return ask("PATCH", target + "/" + name + "?fieldManager=somebody", labelled, kApplyPatch);
  };
  EXPECT_TRUE(is_code(apply(jobs(), "lockstep.dev/v1alpha1", "TrainingJob", "j"), 200));
  EXPECT_TRUE(is_code(apply(pods(), "v1", "Pod", "j-worker-0-1"), 200));
  // Gives the controller something to do, for the job and in its status.
  EXPECT_TRUE(is_code(patch(jobs() + "/j", {{"spec", {{"nodes", 4}}}}), 200));
  ASSERT_TRUE(
      loop.run_until([&] { return pods_of(made) == std::string(kThree) + " j-worker-3-1"; }));
  run_until_quiet(loop);
  EXPECT_EQ(job("j")["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(pod("j-worker-0-1")["metadata"]["labels"]["team"], "a");
  // A label that its owner withdraws is removed.
  const Json nothing = {{"apiVersion", "lockstep.dev/v1alpha1"},
                        {"kind", "TrainingJob"},
                        {"metadata", {{"name", "j"}}}};
  EXPECT_TRUE(
      is_code(ask("PATCH", jobs() + "/j?fieldManager=somebody", nothing, kApplyPatch), 200));
  run_until_quiet(loop);
  EXPECT_FALSE(job("j")["metadata"].contains("labels"));
}

TEST_F(Control, StatusWritesMoveNoGenerationAndThenThereIsSilence) {
  const Json made = make_job("j", 3);
  Loop loop(20);
  Replica replica(loop, proxy, options());
  replica.start();
  ASSERT_TRUE(makes_three(loop, made));
  run_until_quiet(loop);
  EXPECT_GE(proxy.count("update", "trainingjobs/status"), 1u);
  EXPECT_EQ(job("j")["metadata"]["generation"], 1);
  EXPECT_EQ(job("j")["status"]["observedGeneration"], 1);
  const size_t writes = proxy.writes().size();
  const size_t all = proxy.count();
  loop.run_for(seconds(60));
  EXPECT_EQ(proxy.writes().size(), writes);
  EXPECT_EQ(proxy.count(), all);
  EXPECT_TRUE(is_code(patch(jobs() + "/j", {{"spec", {{"nodes", 2}}}}), 200));
  ASSERT_TRUE(loop.run_until([&] { return job("j")["status"]["observedGeneration"] == 2; }));
  EXPECT_EQ(job("j")["metadata"]["generation"], 2);
}

TEST_F(Control, ChildrenNameTheirOwnerAndANamesakeDoesNotAdoptThem) {
  const Json first = make_job("j", 3);
  Loop loop(20);
  Replica replica(loop, proxy, options());
  replica.start();
  ASSERT_TRUE(makes_three(loop, first));
  const Json expected = {{"apiVersion", "lockstep.dev/v1alpha1"},
                         {"kind", "TrainingJob"},
                         {"name", "j"},
                         {"uid", meta(first, "uid")},
                         {"controller", true},
                         {"blockOwnerDeletion", true}};
  for (const char* name : {"j-worker-0-1", "j-worker-1-1", "j-worker-2-1"})
    EXPECT_EQ(pod(name)["metadata"]["ownerReferences"], Json::array({expected}));
  // A finalizer holds one pod of the first job when the second job is created.
  const Json held = {{"metadata", {{"finalizers", Json::array({"lockstep.test/held"})}}}};
  EXPECT_TRUE(is_code(patch(pods() + "/j-worker-0-1", held), 200));
  const std::string old_uid = meta(pod("j-worker-0-1"), "uid");
  const size_t deletions = proxy.count("delete");
  EXPECT_TRUE(is_code(ask("DELETE", jobs() + "/j?propagationPolicy=Background"), 200));
  const Json second = make_job("j", 3);
  ASSERT_NE(meta(first, "uid"), meta(second, "uid"));
  ASSERT_TRUE(
      loop.run_until([&] { return condition_reason(job("j"), "PodsScheduled") == "NameTaken"; }));
  EXPECT_EQ(meta(pod("j-worker-0-1"), "uid"), old_uid);
  EXPECT_EQ(plan::controller_uid(pod("j-worker-0-1")), meta(first, "uid"));
  EXPECT_EQ(proxy.count("delete"), deletions);
  // Does the work of the garbage collector in case the server has none.
  for (const char* name : {"j-worker-0-1", "j-worker-1-1", "j-worker-2-1"}) {
    if (plan::controller_uid(pod(name)) != meta(first, "uid")) continue;
    (void)ask("DELETE", pods() + "/" + name + "?gracePeriodSeconds=0");
  }
  (void)patch(pods() + "/j-worker-0-1", {{"metadata", {{"finalizers", nullptr}}}});
  EXPECT_TRUE(makes_three(loop, second));
}

TEST_F(Control, AJobThatSomebodysFinalizerHoldsLosesItsPodsAndIsLeftAlone) {
  const Json made = make_job("j", 3);
  const Json held = {{"metadata", {{"finalizers", Json::array({"lockstep.test/held"})}}}};
  EXPECT_TRUE(is_code(patch(jobs() + "/j", held), 200));
  Loop loop(20);
  Replica replica(loop, proxy, options());
  replica.start();
  ASSERT_TRUE(makes_three(loop, made));
  EXPECT_FALSE(pod("j-worker-0-1")["metadata"].contains("finalizers"));
  EXPECT_TRUE(is_code(ask("DELETE", jobs() + "/j"), 200));
  ASSERT_TRUE(loop.run_until([&] { return pods_of(made).empty(); }));
  run_until_quiet(loop);
  EXPECT_EQ(job("j")["metadata"]["finalizers"], held["metadata"]["finalizers"]);
  const size_t writes = proxy.writes().size();
  loop.run_for(seconds(60));
  EXPECT_EQ(proxy.writes().size(), writes);
  EXPECT_TRUE(is_code(patch(jobs() + "/j", {{"metadata", {{"finalizers", nullptr}}}}), 200));
  EXPECT_TRUE(is_code(get(jobs() + "/j"), 404));
  ASSERT_TRUE(loop.run_until([&] { return replica.controller.jobs().objects().empty(); }));
}

TEST_F(Control, AnEventThatWasNotHeardIsMadeUpForWithoutAResync) {
  const Json made = make_job("j", 3);
  // The job's first change, to four nodes, is never delivered. The flag is shared because the watch
  // outlives the test's body.
  const auto is_swallowing = std::make_shared<std::atomic<bool>>(false);
  proxy.on({.verb = "watch",
            .resource = "trainingjobs",
            .fault = filtered([is_swallowing](const std::string& line) {
              return *is_swallowing ? std::vector<std::string>() : std::vector<std::string>{line};
            })});
  Loop loop(20);
  Replica replica(loop, proxy, options());
  replica.start();
  ASSERT_TRUE(makes_three(loop, made));
  run_until_quiet(loop);
  *is_swallowing = true;
  EXPECT_TRUE(is_code(patch(jobs() + "/j", {{"spec", {{"nodes", 4}}}}), 200));
  loop.run_for(seconds(5));
  *is_swallowing = false;
  // The job's next event carries the whole job.
  EXPECT_TRUE(is_code(patch(jobs() + "/j", {{"metadata", {{"labels", {{"a", "b"}}}}}}), 200));
  ASSERT_TRUE(
      loop.run_until([&] { return pods_of(made) == std::string(kThree) + " j-worker-3-1"; }));
  EXPECT_EQ(proxy.count("list"), 2u);
}

TEST_F(Control, AWatchThatLagsMakesNoPodTwice) {
  const Json made = make_job("j", 3);
  proxy.on({.verb = "watch", .resource = "pods", .fault = [](Exchange& exchange) {
              if (!exchange.open_watch()) return;
              exchange.begin_stream();
              while (std::optional<std::string> event = exchange.next_event()) {
                exchange.wait("deliver pods");
                exchange.line(*event);
              }
            }});
  Loop loop(20);
  Replica replica(loop, proxy, options());
  replica.start();
  ASSERT_TRUE(makes_three(loop, made));
  for (int i = 0; i < 100; ++i) {
    const Json label = {{"metadata", {{"labels", {{"change", std::to_string(i)}}}}}};
    EXPECT_TRUE(is_code(patch(jobs() + "/j", label), 200));
  }
  loop.run_for(seconds(30));
  EXPECT_EQ(proxy.count("create", "pods"), 3u);
  proxy.open_gate("deliver pods");
  run_until_quiet(loop);
  EXPECT_EQ(proxy.count("create", "pods"), 3u);
  EXPECT_EQ(pods_of(made), kThree);
}

TEST_F(Control, PodsThatCanNotBeListedAreNotNone) {
  const Json made = make_job("j", 3);
  proxy.on({.verb = "list", .resource = "pods", .fault = failed(403, "Forbidden"), .times = 4});
  Loop loop(20);
  Replica replica(loop, proxy, options());
  replica.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("list", "pods") == 4; }));
  EXPECT_TRUE(replica.controller.jobs().synced());
  EXPECT_FALSE(replica.controller.synced());
  EXPECT_TRUE(proxy.writes().empty());
  ASSERT_TRUE(makes_three(loop, made));
}

}  // namespace
}  // namespace lockstep::semantics
