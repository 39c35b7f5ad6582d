#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "controller/loop/agent_watchers.h"
#include "controller/loop/informer.h"
#include "controller/loop/progress_budget.h"
#include "controller/loop/resource_version.h"
#include "tests/controller/support/fake_api.h"

namespace lockstep::loop {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

Json pod(const std::string& name, const std::string& version, const std::string& uid = "u") {
  return {{"metadata",
           {{"namespace", "ns"}, {"name", name}, {"resourceVersion", version}, {"uid", uid}}}};
}

ApiReply page(Json items, const std::string& version, const std::string& next = "") {
  Json metadata = {{"resourceVersion", version}};
  if (!next.empty()) metadata["continue"] = next;
  return {.outcome = ApiOutcome::kOk, .body = {{"metadata", metadata}, {"items", items}}};
}

struct InformerTest : ::testing::Test {
  ManualClock clock;
  Timers timers{clock};
  Random random{1};
  plan::FakeApi api;
  std::vector<std::string> changes;  // "+a", "~a", "-a"
  int synced = 0;
  InformerOptions options{.type = kPods};
  Informer informer{api,
                    timers,
                    random,
                    options,
                    [this](const std::string& key, const Json* before, const Json* after) {
                      const char sign = before == nullptr ? '+' : after == nullptr ? '-' : '~';
                      changes.push_back(sign + key.substr(3));
                    },
                    [this] { ++synced; }};

  void pass(Duration time) {
    clock.advance(time);
    timers.run_due();
  }
  void listed(Json items, const std::string& version) {
    informer.start();
    api.answer(page(std::move(items), version));
  }
  void event(WatchEventType type, Json object) {
    api.watches.back()->handler.on_events({{.type = type, .object = std::move(object)}});
  }
  void end_watch(ApiOutcome outcome) {
    api.watches.back()->handler.on_end({.outcome = outcome});
    timers.run_due();
  }
  // Lets that number of watches fail in a row, and waits for the next one each time.
  void fail_watches(int times) {
    for (int i = 0; i < times; ++i) {
      const size_t before = api.watches.size();
      end_watch(ApiOutcome::kUnavailable);
      pass(minutes(1));
      ASSERT_EQ(api.watches.size(), before + 1);
      ASSERT_TRUE(api.watches.back()->is_open);
    }
  }
  const std::string& watched_version() {
    return api.watches.back()->request.query.at("resourceVersion");
  }
};

TEST_F(InformerTest, ListsInPagesThenWatchesFromTheListsVersion) {
  informer.start();
  EXPECT_EQ(api.asked[0].request.query.at("limit"), "500");
  api.answer(page({pod("a", "3")}, "10", "more"));
  EXPECT_FALSE(informer.synced());
  EXPECT_EQ(api.asked[0].request.query.at("continue"), "more");
  api.answer(page({pod("b", "4")}, "10"));
  EXPECT_TRUE(informer.synced());
  EXPECT_EQ(synced, 1);
  EXPECT_EQ(changes, (std::vector<std::string>{"+a", "+b"}));
  EXPECT_EQ(watched_version(), "10");
  EXPECT_EQ(api.watches.back()->request.query.at("allowWatchBookmarks"), "true");
}

TEST_F(InformerTest, KeepsOfAnObjectWhatItIsToldTo) {
  InformerOptions trimming = options;
  trimming.trim = [](const Json& object) { return Json{{"metadata", object["metadata"]}}; };
  std::vector<Json> seen;
  Informer trimmed(
      api, timers, random, trimming,
      [&](const std::string&, const Json*, const Json* after) { seen.push_back(*after); }, [] {});
  const auto with_spec = [](Json object) {
    object["spec"] = "much";
    return object;
  };
  trimmed.start();
  api.answer(page(Json::array({with_spec(pod("a", "5"))}), "5"));
  event(WatchEventType::kModified, with_spec(pod("a", "6")));
  event(WatchEventType::kAdded, with_spec(pod("b", "7")));
  trimmed.learn_read(with_spec(pod("b", "8")));
  const std::vector<Json> expected = {pod("a", "5"), pod("a", "6"), pod("b", "7"), pod("b", "8")};
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(*trimmed.find("ns/a")->json(), pod("a", "6"));
}

TEST_F(InformerTest, ListsAnewWhenAskedAndIsNotSyncedUntilThen) {
  informer.start();
  informer.relist();
  api.answer(page({pod("a", "3")}, "10"));
  EXPECT_FALSE(informer.synced());
  api.answer(page({pod("a", "3")}, "10"));
  EXPECT_TRUE(informer.synced());
  informer.relist();
  EXPECT_FALSE(informer.synced());
  EXPECT_FALSE(api.watches.back()->is_open);
  api.answer(page({pod("a", "12")}, "20"));
  EXPECT_TRUE(informer.synced());
  EXPECT_EQ(watched_version(), "20");
  EXPECT_EQ(changes, (std::vector<std::string>{"+a", "~a"}));
}

TEST_F(InformerTest, AnExpiredPageMeansTheWholeListAgain) {
  informer.start();
  api.answer(page({pod("a", "3")}, "10", "more"));
  api.answer({.outcome = ApiOutcome::kExpired});
  ASSERT_EQ(api.asked.size(), 1u);
  EXPECT_FALSE(api.asked[0].request.query.contains("continue"));
  api.answer(page({pod("a", "3")}, "10", "more"));
  api.answer({.outcome = ApiOutcome::kExpired});
  EXPECT_TRUE(api.asked.empty());  // the second time, the retry comes later
  pass(seconds(2));
  ASSERT_EQ(api.asked.size(), 1u);
}

TEST_F(InformerTest, BookmarksMoveTheVersionAndNothingElse) {
  listed({pod("a", "3")}, "10");
  changes.clear();
  event(WatchEventType::kBookmark, {{"metadata", {{"resourceVersion", "50"}}}});
  EXPECT_TRUE(changes.empty());
  EXPECT_EQ(informer.objects().size(), 1u);
  end_watch(ApiOutcome::kOk);
  EXPECT_EQ(watched_version(), "50");
}

TEST_F(InformerTest, ACleanEndIsFollowedByAWatchAndNoList) {
  listed({}, "10");
  for (int i = 0; i < 100; ++i) {
    pass(seconds(250));
    end_watch(ApiOutcome::kOk);
  }
  EXPECT_EQ(api.watches.size(), 101u);
  EXPECT_TRUE(api.asked.empty());
}

TEST_F(InformerTest, AnExpiredWatchMeansAListThatFindsWhatVanished) {
  listed({pod("a", "3"), pod("b", "4")}, "10");
  changes.clear();
  end_watch(ApiOutcome::kExpired);
  pass(seconds(2));
  api.answer(page({pod("b", "12"), pod("c", "13")}, "20"));
  EXPECT_EQ(changes, (std::vector<std::string>{"-a", "~b", "+c"}));
  EXPECT_EQ(synced, 1);
  EXPECT_EQ(watched_version(), "20");
}

TEST_F(InformerTest, WatchesThatEndAtOnceAreTriedMoreAndMoreRarely) {
  listed({}, "10");
  const TimePoint begin = timers.now();
  while (timers.now() - begin < minutes(10)) {
    if (api.watches.back()->is_open) end_watch(ApiOutcome::kOk);
    ASSERT_TRUE(timers.next());
    clock.advance(*timers.next() - timers.now());
    timers.run_due();
  }
  EXPECT_LT(api.watches.size(), 30u);
  EXPECT_GT(api.watches.size(), 8u);
}

TEST_F(InformerTest, TooManyRequestsNeverMeansAList) {
  listed({}, "10");
  api.watches.back()->handler.on_end(
      {.outcome = ApiOutcome::kThrottled, .retry_after = seconds(20)});
  pass(seconds(19));
  EXPECT_EQ(api.watches.size(), 1u);
  pass(seconds(2));
  EXPECT_EQ(api.watches.size(), 2u);
  EXPECT_TRUE(api.asked.empty());
}

TEST_F(InformerTest, AnExpiredWatchIsFollowedByAListAtOnce) {
  listed({pod("a", "3")}, "10");
  fail_watches(8);
  end_watch(ApiOutcome::kExpired);
  ASSERT_EQ(api.asked.size(), 1u);
  api.answer(page({pod("a", "12")}, "20"));
  EXPECT_EQ(watched_version(), "20");
}

TEST_F(InformerTest, AServerWhereEveryWatchExpiresIsAskedMoreAndMoreRarely) {
  listed({}, "10");
  const TimePoint begin = timers.now();
  int lists = 0;
  while (timers.now() - begin < minutes(10)) {
    if (api.watches.back()->is_open) end_watch(ApiOutcome::kExpired);
    for (; !api.asked.empty(); ++lists) api.answer(page({}, "10"));
    if (api.watches.back()->is_open) continue;
    ASSERT_TRUE(timers.next());
    clock.advance(*timers.next() - timers.now());
    timers.run_due();
  }
  EXPECT_LT(lists, 60);
  EXPECT_GT(lists, 8);
}

TEST_F(InformerTest, AHealthyWatchEndsTheBackOff) {
  for (const bool has_event : {true, false}) {
    SCOPED_TRACE(has_event);
    informer.relist();
    api.answer(page({}, "10"));
    fail_watches(8);
    if (has_event) event(WatchEventType::kBookmark, pod("", "11"));
    pass(has_event ? seconds(1) : seconds(61));
    const size_t before = api.watches.size();
    end_watch(ApiOutcome::kUnavailable);
    pass(seconds(2));
    EXPECT_EQ(api.watches.size(), before + 1);
  }
}

TEST_F(InformerTest, AServerThatSaysHowLongToWaitIsAskedThen) {
  listed({}, "10");
  fail_watches(8);
  const size_t before = api.watches.size();
  for (size_t i = 0; i < 10; ++i) {
    api.watches.back()->handler.on_end(
        {.outcome = ApiOutcome::kThrottled, .retry_after = seconds(1)});
    pass(milliseconds(900));
    ASSERT_EQ(api.watches.size(), before + i);
    pass(seconds(1));
    ASSERT_EQ(api.watches.size(), before + i + 1);
  }
  // It asks for ever: the client's own delay counts too.
  api.watches.back()->handler.on_end(
      {.outcome = ApiOutcome::kThrottled, .retry_after = seconds(1)});
  pass(seconds(2));
  EXPECT_EQ(api.watches.size(), before + 10);
}

// A server acts like this after the definition of a kind was changed, here after a time of
// failures.
TEST_F(InformerTest, AChangeOfTheDefinitionMakesItBlindForSeconds) {
  listed({pod("a", "3")}, "10");
  fail_watches(8);
  pass(seconds(61));
  const TimePoint begin = timers.now();
  const ApiReply busy = {.outcome = ApiOutcome::kThrottled, .retry_after = seconds(1)};
  end_watch(ApiOutcome::kOk);
  for (int i = 0; i < 2; ++i) {
    api.watches.back()->handler.on_end(busy);
    pass(seconds(2));
  }
  end_watch(ApiOutcome::kExpired);
  ASSERT_EQ(api.asked.size(), 1u);
  api.answer(busy);
  pass(seconds(2));
  ASSERT_EQ(api.asked.size(), 1u);
  api.answer(page({pod("a", "12")}, "20"));
  EXPECT_EQ(watched_version(), "20");
  EXPECT_LE(to_seconds(timers.now() - begin), 6.0);
}

TEST_F(InformerTest, APageThatIsTooLargeIsAskedForAgainWithFewerObjects) {
  options.page_size = 8;
  Informer paged(
      api, timers, random, options, [](const std::string&, const Json*, const Json*) {}, [] {});
  paged.start();
  const ApiReply too_large{.outcome = ApiOutcome::kUnreadable};
  const auto limit = [&] { return api.asked.at(0).request.query.at("limit"); };
  api.answer(too_large);
  EXPECT_EQ(limit(), "4");
  api.answer(page({pod("a", "3")}, "10", "more"));
  EXPECT_EQ(limit(), "8");
  api.answer(too_large);
  api.answer(too_large);
  EXPECT_EQ(limit(), "2");
  EXPECT_EQ(api.asked[0].request.query.at("continue"), "more");
  EXPECT_FALSE(timers.next().has_value());
  api.answer(too_large);
  api.answer(too_large);
  EXPECT_TRUE(api.asked.empty()) << "one unreadable event makes the informer retry later";
  pass(seconds(2));
  EXPECT_EQ(limit(), "1");
  EXPECT_FALSE(api.asked[0].request.query.contains("continue"));
  api.answer(page({pod("a", "3")}, "10", "more"));
  api.answer(page({pod("b", "4")}, "10"));
  EXPECT_EQ(paged.objects().size(), 2u);
}

TEST_F(InformerTest, AnEventThatCanNotBeReadTwiceIsPassedByWithAList) {
  listed({pod("a", "3")}, "10");
  end_watch(ApiOutcome::kUnreadable);
  pass(seconds(2));
  EXPECT_EQ(api.watches.size(), 2u);
  EXPECT_EQ(watched_version(), "10");
  event(WatchEventType::kModified, pod("a", "11"));
  end_watch(ApiOutcome::kUnreadable);  // a second event that can't be read
  pass(seconds(4));
  EXPECT_EQ(api.watches.size(), 3u);
  end_watch(ApiOutcome::kUnavailable);  // a network error does not count
  pass(seconds(8));
  EXPECT_EQ(api.watches.size(), 4u);
  end_watch(ApiOutcome::kUnreadable);
  pass(seconds(16));
  EXPECT_EQ(api.watches.size(), 5u);
  EXPECT_TRUE(api.asked.empty());
  end_watch(ApiOutcome::kUnreadable);
  pass(seconds(40));
  ASSERT_EQ(api.asked.size(), 1u);
  api.answer(page({pod("a", "12"), pod("b", "13")}, "20"));
  EXPECT_EQ(watched_version(), "20");
  EXPECT_EQ(changes, (std::vector<std::string>{"+a", "~a", "~a", "+b"}));
}

// As after etcd is restored from a backup: versions are reused for other contents.
TEST_F(InformerTest, WhenVersionsHaveSteppedBackTheListIsAllThereIs) {
  for (const ApiOutcome how : {ApiOutcome::kTooLarge, ApiOutcome::kExpired}) {
    SCOPED_TRACE(outcome_name(how));
    changes.clear();
    informer.relist();
    api.asked.clear();
    informer.relist();
    api.answer(page({pod("a", "900"), pod("b", "950"), pod("same", "200")}, "1000"));
    event(WatchEventType::kAdded, pod("ghost", "1001"));
    changes.clear();
    end_watch(how);
    pass(seconds(40));
    api.answer(page({pod("a", "500"), pod("b", "510", "another"), pod("same", "200")}, "600"));
    EXPECT_EQ(changes, (std::vector<std::string>{"-ghost", "~a", "-b", "+b"}));
    EXPECT_EQ(informer.find("ns/a")->version(), "500");
    EXPECT_EQ(watched_version(), "600");
    informer.learn_written(pod("a", "601"));
    EXPECT_EQ(informer.find("ns/a")->version(), "601");
    pass(minutes(10));
  }
}

TEST_F(InformerTest, AVersionFromTheFutureAloneTakesTheListForTheTruth) {
  listed({pod("a", "900")}, "1000");
  changes.clear();
  end_watch(ApiOutcome::kTooLarge);
  pass(seconds(2));
  api.answer(page({pod("a", "850")}, "1200"));  // the server's version has moved on
  EXPECT_EQ(changes, (std::vector<std::string>{"~a"}));
}

TEST_F(InformerTest, EventsThatRepeatOrComeLateAreDropped) {
  listed({}, "10");
  event(WatchEventType::kAdded, pod("a", "11"));
  event(WatchEventType::kModified, pod("a", "13"));
  event(WatchEventType::kAdded, pod("a", "11"));
  event(WatchEventType::kModified, pod("a", "13"));
  EXPECT_EQ(changes, (std::vector<std::string>{"+a", "~a"}));
  end_watch(ApiOutcome::kUnavailable);
  pass(seconds(2));
  EXPECT_EQ(watched_version(), "13");
}

TEST_F(InformerTest, ANamesakeWithAnotherUidIsAnotherObject) {
  listed({pod("a", "3", "old")}, "10");
  changes.clear();
  event(WatchEventType::kAdded, pod("a", "12", "new"));
  EXPECT_EQ(changes, (std::vector<std::string>{"-a", "+a"}));
  changes.clear();
  event(WatchEventType::kDeleted, pod("a", "11", "old"));
  EXPECT_TRUE(changes.empty());
}

TEST_F(InformerTest, RepliesOfWritesAreLearntUnlessTheWatchIsAlreadyPastThem) {
  listed({}, "10");
  informer.learn_written(pod("a", "12"));
  EXPECT_EQ(changes, (std::vector<std::string>{"+a"}));
  event(WatchEventType::kDeleted, pod("a", "15"));
  informer.learn_written(pod("a", "13"));
  EXPECT_EQ(changes, (std::vector<std::string>{"+a", "-a"}));
  informer.learn_read(pod("b", "9"));
  EXPECT_NE(informer.find("ns/b"), nullptr);
  informer.learn_absent("ns/b", "another");
  EXPECT_NE(informer.find("ns/b"), nullptr);
  informer.learn_absent("ns/b", "u");
  EXPECT_EQ(informer.find("ns/b"), nullptr);
}

// Otherwise the job would wait for a pod that is gone.
TEST_F(InformerTest, AReadThatIsAnsweredAfterTheNewsOfALaterEndIsDropped) {
  for (const Duration late : {Duration(seconds(1)), Duration(minutes(5))}) {
    changes.clear();
    listed({}, "10");
    event(WatchEventType::kAdded, pod("a", "12"));
    event(WatchEventType::kDeleted, pod("a", "15"));
    event(WatchEventType::kDeleted, pod("a", "13"));
    pass(late);
    event(WatchEventType::kDeleted, pod("other", "20"));
    informer.learn_read(pod("a", "14"));
    EXPECT_EQ(changes, (std::vector<std::string>{"+a", "-a"}));
    // It had only lost its labels, or another one has its name.
    informer.learn_read(pod("a", "16"));
    EXPECT_EQ(changes.back(), "+a");
    informer.learn_absent("ns/a", "u");
  }
}

TEST(ResourceVersion, NumbersOfAnyLengthAreOrderedAndOtherTextIsNot) {
  EXPECT_EQ(compare_versions("9", "10"), std::strong_ordering::less);
  EXPECT_EQ(compare_versions("18446744073709551617", "9"), std::strong_ordering::greater);
  EXPECT_EQ(compare_versions("7", "7"), std::strong_ordering::equal);
  for (const char* text : {"", "0", "01", "x", "1x", "-1"}) {
    EXPECT_FALSE(compare_versions(text, "1").has_value()) << text;
    EXPECT_FALSE(compare_versions("1", text).has_value()) << text;
  }
}

TEST(ProgressBudget, IsSharedFairlyAndNoJobWritesTooOften) {
  ProgressBudget budget({.per_second = 5, .interval_min = seconds(1)});
  const TimePoint now(std::chrono::hours(1));
  EXPECT_LE(budget.next("a", 1, now), now + milliseconds(200));
  budget.spend("a", now);
  EXPECT_EQ(budget.next("a", 1, now), now + seconds(1));
  EXPECT_EQ(budget.next("a", 100, now), now + seconds(20));
  EXPECT_LE(budget.next("b", 100, now), now + seconds(20)) << "a job that has written nothing yet";
  budget.note_write("b", now + seconds(25));
  EXPECT_EQ(budget.next("b", 100, now), now + seconds(26))
      << "other status writes do not use up the budget";
  budget.note_write("a", now + seconds(30));
  EXPECT_EQ(budget.next("a", 100, now), now + seconds(31));
}

TEST(ProgressBudget, SpreadsTheFirstWritesOfManyJobs) {
  constexpr int kJobs = 2000, kPerSecond = 5, kSlices = 10;
  ProgressBudget budget({.per_second = kPerSecond, .interval_min = seconds(1)});
  const TimePoint now(std::chrono::hours(1));
  std::array<int, kSlices> writes{};
  for (int i = 0; i < kJobs; ++i) {
    const TimePoint at = budget.next("uid-" + std::to_string(i), kJobs, now);
    ASSERT_GE(at, now);
    ASSERT_LT(at, now + seconds(kJobs / kPerSecond));
    ++writes.at(static_cast<size_t>((at - now) / (seconds(kJobs / kPerSecond) / kSlices)));
    EXPECT_EQ(budget.next("uid-" + std::to_string(i), kJobs, now + seconds(3)), at);
  }
  for (const int count : writes) EXPECT_NEAR(count, kJobs / kSlices, kJobs / kSlices / 2);
}

// Agents that answer when the test calls answer().
class FakeAgents final : public AgentClient {
 public:
  void put_assignment(const AgentAddress&, const std::shared_ptr<const Assignment>&, int64_t,
                      Done) override {}
  void poll_state(const AgentAddress& agent, const StatePoll& poll, Done done) override {
    polls[agent.ip] = {poll.since, std::move(done)};
    last_wait = poll.wait;
    progress_waits.push_back(poll.progress_after);
    ++count;
  }
  void forget(const AgentAddress& agent) override { polls.erase(agent.ip); }
  void answer(const std::string& ip, Result<AgentState> state) {
    const Done done = polls.at(ip).second;
    polls.erase(ip);
    done(std::move(state));
  }
  std::map<std::string, std::pair<int64_t, Done>> polls;
  Duration last_wait{};
  std::vector<Duration> progress_waits;
  int count = 0;
};

struct WatchersTest : ::testing::Test {
  ManualClock clock;
  Timers timers{clock};
  Random random{1};
  FakeAgents agents;
  std::vector<std::string> changed;
  std::vector<Urgency> urgencies;
  AgentWatchers watchers{agents, timers, random, {}, [this](const std::string& job, Urgency how) {
                           changed.push_back(job);
                           urgencies.push_back(how);
                         }};

  static plan::AgentTarget target(const std::string& name) {
    return {.pod_uid = name + "-uid", .pod_name = name, .ip = name};
  }
  static AgentState state(int64_t sequence) {
    AgentState state;
    state.boot_id = "boot";
    state.sequence = sequence;
    return state;
  }
  void pass(Duration time) {
    const TimePoint end = clock.now() + time;
    while (clock.now() < end) {
      clock.advance(std::min<Duration>(seconds(1), end - clock.now()));
      timers.run_due();
    }
  }
};

TEST_F(WatchersTest, PollFromTheLastSequenceAndTellOnlyWhatIsNew) {
  watchers.set_targets("job", {"token"}, {target("x")});
  EXPECT_EQ(agents.polls.at("x").first, 0);
  agents.answer("x", state(4));
  EXPECT_EQ(changed, std::vector<std::string>{"job"});
  pass(seconds(1));
  EXPECT_EQ(agents.polls.at("x").first, 4);
  agents.answer("x", state(4));
  EXPECT_EQ(changed.size(), 1u);
  watchers.learn("job", "x-uid", state(3));  // an outdated report
  EXPECT_EQ(watchers.views("job").at("x-uid").state->sequence, 4);
  watchers.learn("job", "x-uid", state(9));
  EXPECT_EQ(watchers.views("job").at("x-uid").state->sequence, 9);
  EXPECT_EQ(changed.size(), 2u);
}

TEST_F(WatchersTest, LendTheirViewsAndGoOnWithThem) {
  watchers.set_targets("job", {"token"}, {target("x"), target("y")});
  agents.answer("x", state(1));
  AgentWatchers::Views views;
  watchers.swap_views("job", views);
  EXPECT_EQ(views.size(), 2u);
  EXPECT_TRUE(watchers.views("job").empty());
  watchers.swap_views("job", views);
  EXPECT_TRUE(views.empty());
  watchers.learn("job", "x-uid", state(2));
  EXPECT_EQ(watchers.views("job").at("x-uid").state->sequence, 2);
}

TEST_F(WatchersTest, ForgetAnyOfThemWithoutMixingUpTheOthers) {
  const std::vector<std::string> names = {"x", "y", "z"};
  for (const std::string& gone : names) {
    SCOPED_TRACE(gone);
    std::vector<plan::AgentTarget> all, rest;
    for (const std::string& name : names) {
      all.push_back(target(name));
      if (name != gone) rest.push_back(target(name));
    }
    watchers.set_targets("job", {"token"}, all);
    watchers.set_targets("job", {"token"}, rest);
    EXPECT_EQ(watchers.agents(), 2u);
    const TimePoint before = timers.now();
    pass(seconds(1));
    const std::string heard = rest.back().pod_name;
    watchers.learn("job", heard + "-uid", state(1));
    for (const auto& [uid, view] : watchers.views("job")) {
      EXPECT_EQ(view.last_heard, uid == heard + "-uid" ? timers.now() : before) << uid;
    }
    watchers.set_targets("job", {"token"}, {});
    EXPECT_EQ(watchers.agents(), 0u);
  }
}

TEST_F(WatchersTest, SayWhetherThereIsMoreThanProgress) {
  watchers.set_targets("job", {"token"}, {target("x")});
  AgentState said = state(1);
  said.workers.resize(1);
  const auto hear = [&] {
    ++said.sequence;
    agents.answer("x", said);
    pass(seconds(1));
    return urgencies.back();
  };
  EXPECT_EQ(hear(), Urgency::kRoutine) << "the first report";
  said.workers[0].step = 7;
  said.progress.emplace().step = 7;
  EXPECT_EQ(hear(), Urgency::kProgress);
  said.workers[0].phase = WorkerPhase::kSaving;
  EXPECT_EQ(hear(), Urgency::kRoutine);
  said.failed_seconds_ago = 0.1;
  EXPECT_EQ(hear(), Urgency::kUrgent);
}

TEST_F(WatchersTest, AnAgentThatCountedWronglyIsHeardAgain) {
  watchers.set_targets("job", {"token"}, {target("x")});
  agents.answer("x", state(int64_t{1} << 53));
  pass(seconds(1));
  AgentState failed = state(5);
  failed.phase = "Failed";
  watchers.learn("job", "x-uid", failed);
  EXPECT_EQ(changed.size(), 1u) << "the answer to a request that was open before may be old";
  agents.answer("x", failed);
  EXPECT_EQ(changed.size(), 2u);
  EXPECT_EQ(watchers.views("job").at("x-uid").state->phase, "Failed");
  pass(seconds(1));
  EXPECT_EQ(agents.polls.at("x").first, 5);
  AgentState next = state(4);
  next.round = 2;
  watchers.learn("job", "x-uid", next);
  EXPECT_EQ(watchers.views("job").at("x-uid").state->round, 2);
}

TEST_F(WatchersTest, SilenceCountsFromTheMomentOfListening) {
  const TimePoint begin = timers.now();
  watchers.set_targets("job", {"token"}, {target("x")});
  agents.answer("x", unavailable("refused"));
  EXPECT_EQ(watchers.views("job").at("x-uid").last_heard, begin);
  const int before = agents.count;
  for (int i = 0; i < 600; ++i) {
    pass(milliseconds(100));
    if (agents.polls.contains("x")) agents.answer("x", unavailable("refused"));
  }
  EXPECT_EQ(watchers.views("job").at("x-uid").last_heard, begin);
  EXPECT_LT(agents.count - before, 75);  // in a minute: the delays grow to one second
}

TEST_F(WatchersTest, WhoDidNotAnswerIsAskedForAnAnswerAtOnce) {
  watchers.set_targets("job", {"token"}, {target("x")});
  EXPECT_EQ(agents.last_wait, seconds(0)) << "an agent that was never heard has something to say";
  agents.answer("x", state(1));
  pass(seconds(1));
  EXPECT_EQ(agents.last_wait, seconds(3));
  agents.answer("x", unavailable("no answer in time"));
  pass(seconds(1));
  EXPECT_EQ(agents.last_wait, seconds(0)) << "a second long poll would end too late";
  agents.answer("x", state(1));
  pass(seconds(1));
  EXPECT_EQ(agents.last_wait, seconds(3));
}

TEST_F(WatchersTest, ProgressOfManyAgentsComesLessOftenAndNotTogether) {
  std::vector<plan::AgentTarget> targets;
  for (int i = 0; i < 2000; ++i) targets.push_back(target("x" + std::to_string(i)));
  watchers.set_targets("job", {"token"}, targets);
  for (const plan::AgentTarget& each : targets) agents.answer(each.ip, state(1));
  agents.progress_waits.clear();
  pass(seconds(1));
  ASSERT_EQ(agents.progress_waits.size(), 2000u);
  const auto [least, most] = std::ranges::minmax(agents.progress_waits);
  EXPECT_GE(least, seconds(1)) << "half of the time that 2,000 agents wait";
  EXPECT_LT(least, milliseconds(1100));
  EXPECT_GT(most, milliseconds(1900));
  EXPECT_LE(most, seconds(2));
}

TEST_F(WatchersTest, WhyAnAgentWasNotHeardIsKept) {
  const TimePoint begin = timers.now();
  watchers.set_targets("job", {"token"}, {target("x")});
  agents.answer("x", unavailable("connection refused" + std::string(1000, '.')));
  plan::AgentView view = watchers.views("job").at("x-uid");
  EXPECT_EQ(view.error.substr(0, 18), "connection refused");
  EXPECT_EQ(view.error.size(), 256u);
  pass(seconds(1));
  agents.answer("x", not_found("HTTP 401"));
  view = watchers.views("job").at("x-uid");
  EXPECT_TRUE(view.refuses_token);
  EXPECT_GT(view.last_heard, begin) << "the agent is alive";
  EXPECT_EQ(changed.size(), 2u) << "once that it was not heard, once what status must show";
  pass(seconds(6));
  agents.answer("x", state(1));
  view = watchers.views("job").at("x-uid");
  EXPECT_FALSE(view.refuses_token);
  EXPECT_EQ(view.error, "");
  EXPECT_GT(changed.size(), 2u);
}

// An agent keeps its token, so somebody else answers in its place.
TEST_F(WatchersTest, AnAgentThatHasAnsweredIsSilentForWhoeverRefusesTheTokenAtItsAddress) {
  watchers.set_targets("job", {"token"}, {target("x")});
  agents.answer("x", state(1));
  const TimePoint heard = watchers.views("job").at("x-uid").last_heard;
  pass(seconds(1));
  agents.answer("x", not_found("HTTP 401"));
  const plan::AgentView view = watchers.views("job").at("x-uid");
  EXPECT_FALSE(view.refuses_token);
  EXPECT_EQ(view.last_heard, heard);
  EXPECT_EQ(view.error, "HTTP 401");
}

TEST_F(WatchersTest, AnAgentOfAnUnknownVersionIsHeardAndAskedLessAndLess) {
  watchers.set_targets("job", {"token"}, {target("x")});
  const AgentState foreign{.protocol = kProtocolNewest + 1};
  const int before = agents.count;
  for (int i = 0; i < 60; ++i) {
    if (agents.polls.contains("x")) agents.answer("x", foreign);
    pass(seconds(1));
  }
  EXPECT_LT(agents.count - before, 25);
  const plan::AgentView view = watchers.views("job").at("x-uid");
  EXPECT_TRUE(view.has_unsupported_protocol());
  EXPECT_LT(timers.now() - view.last_heard, seconds(30)) << "the agent is alive";
  EXPECT_EQ(changed.size(), 1u) << "the job is queued once";
}

TEST_F(WatchersTest, SuspectTheControllerOnlyWhenMostAreSilent) {
  watchers.set_targets("one", {"token"}, {target("x"), target("y")});
  watchers.set_targets("two", {"token"}, {target("z")});
  watchers.set_targets("three", {"token"}, {target("v"), target("w")});
  pass(seconds(16));
  EXPECT_TRUE(watchers.suspect_own_network());
  agents.answer("x", state(1));
  agents.answer("v", state(1));
  EXPECT_TRUE(watchers.suspect_own_network());
  agents.answer("y", state(1));
  EXPECT_TRUE(watchers.suspect_own_network()) << "the other agents have not been polled again yet";
  const auto most_answer_for = [this](int seconds_more) {
    for (int i = 0; i < seconds_more; ++i) {
      pass(seconds(1));
      for (const char* name : {"x", "y", "v"}) {
        if (agents.polls.contains(name)) agents.answer(name, state(1));
      }
    }
  };
  most_answer_for(14);
  EXPECT_TRUE(watchers.suspect_own_network());
  most_answer_for(2);
  EXPECT_FALSE(watchers.suspect_own_network()) << "only the silent agents are silent now";
}

TEST_F(WatchersTest, WhatWasNotHeardWhileTheControllerStoodStillIsNoSilence) {
  watchers.set_targets("job", {"token"}, {target("x")});
  pass(seconds(4));
  const TimePoint heard = watchers.views("job").at("x-uid").last_heard;
  EXPECT_EQ(timers.now() - heard, seconds(4));
  clock.advance(seconds(100));
  timers.run_due();
  const Duration silent = timers.now() - watchers.views("job").at("x-uid").last_heard;
  EXPECT_GE(silent, seconds(4));
  EXPECT_LE(silent, seconds(7));
}

TEST_F(WatchersTest, TheSilenceOfAFewSaysNothingOfTheController) {
  watchers.set_targets("one", {"token"}, {target("x"), target("y")});
  pass(seconds(600));
  EXPECT_FALSE(watchers.suspect_own_network()) << "their pods are given up as usual";
}

TEST_F(WatchersTest, TheSilenceOfAllOnSeveralNodesIsTheControllersWhereItBeginsAtOnce) {
  plan::AgentTarget far = target("y");
  far.node = "another";
  watchers.set_targets("one", {"token"}, {target("x"), far});
  agents.answer("x", state(1));
  agents.answer("y", state(1));
  pass(seconds(16));
  EXPECT_TRUE(watchers.suspect_own_network());
  const auto answer = [this](const char* name, int seconds_more) {
    for (int i = 0; i < seconds_more; ++i) {
      pass(seconds(1));
      if (agents.polls.contains(name)) agents.answer(name, state(2));
      watchers.suspect_own_network();  // as every plan does
    }
  };
  answer("x", 32);
  EXPECT_FALSE(watchers.suspect_own_network()) << "one of them is heard again, the other is not";
  pass(seconds(60));
  EXPECT_FALSE(watchers.suspect_own_network()) << "one fell silent long after the other";
}

TEST_F(WatchersTest, WhoIsNoTargetAnyMoreIsForgotten) {
  watchers.set_targets("job", {"token"}, {target("x"), target("y")});
  const auto late = agents.polls.at("x").second;
  watchers.set_targets("job", {"token"}, {target("y")});
  EXPECT_FALSE(agents.polls.contains("x"));
  late(state(1));
  EXPECT_TRUE(changed.empty());
  EXPECT_EQ(watchers.views("job").size(), 1u);
  watchers.set_targets("job", {"token"}, {});
  EXPECT_EQ(watchers.jobs(), 0u);
}

}  // namespace
}  // namespace lockstep::loop
