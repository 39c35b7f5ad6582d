// Decides whose fault silence is: agents that answer, or don't, as time passes.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/loop/agent_watchers.h"

namespace lockstep::loop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Agents that report nothing new after their first answer. A poll of an unreachable agent fails
// immediately, or only when its timeout has passed (see fails_at_once).
class TimedAgents final : public AgentClient {
 public:
  explicit TimedAgents(Timers& timers) : timers_(timers) {}

  void put_assignment(const AgentAddress&, const std::shared_ptr<const Assignment>&, int64_t,
                      Done) override {}
  void forget(const AgentAddress&) override {}
  void poll_state(const AgentAddress& agent, const StatePoll& poll, Done done) override {
    const bool is_in_vain = !reaches(agent.ip);
    const Duration answer = poll.since == 0 ? Duration{0} : poll.wait;
    const Duration failure = fails_at_once ? Duration{0} : poll.wait + margin;
    timers_.after((is_in_vain ? failure : answer) + milliseconds(20),
                  [this, agent, is_in_vain, done] {
                    if (is_in_vain) return done(timed_out("no answer"));
                    if (reaches(agent.ip)) return done(state_of(agent.ip));
                    const Duration rest = fails_at_once ? Duration{0} : margin;
                    timers_.after(rest, [done] { done(timed_out("no answer")); });
                  });
  }
  bool reaches(const std::string& ip) const { return !is_cut_off && !lost.contains(ip); }

  bool is_cut_off = false;  // no agent is reachable
  std::set<std::string> lost;
  std::map<std::string, AgentState> says;  // by IP; an empty report by default
  bool fails_at_once = false;
  Duration margin{};  // time beyond a poll's wait after which it fails

 private:
  AgentState state_of(const std::string& ip) const {
    const auto told = says.find(ip);
    AgentState state = told == says.end() ? AgentState{} : told->second;
    state.boot_id = "boot";
    state.sequence = 1;
    return state;
  }

  Timers& timers_;
};

using Names = std::set<std::string>;

struct Silence {
  ManualClock clock;
  Timers timers{clock};
  Random random{1};
  TimedAgents agents{timers};
  AgentWatchOptions options;
  AgentWatchers watchers;
  std::vector<plan::AgentTarget> targets;

  explicit Silence(AgentWatchOptions how = {})
      : options(how), watchers(agents, timers, random, how, [](const std::string&, Urgency) {}) {
    agents.margin = how.silence / 5;
  }

  void add(const std::string& name, const std::string& node) {
    targets.push_back({.pod_uid = name, .pod_name = name, .ip = name, .node = node});
    watchers.set_targets("job", {"token"}, targets);
  }
  // Adds agents, each on its own Kubernetes node. Their answers are spread over a poll interval.
  void add_nodes(int count) {
    for (int i = 0; i < count; ++i) {
      add("pod-" + std::to_string(i), "node-" + std::to_string(i));
      pass(options.poll_wait(1) / count);
    }
  }
  void lose(const Names& names) { agents.lost.insert(names.begin(), names.end()); }
  // Advances the clock. Returns the agents that plans would give up in this time.
  Names pass(Duration time) {
    const TimePoint end = timers.now() + time;
    Names given_up;
    while (timers.now() < end) {
      clock.advance(std::min<Duration>(milliseconds(100), end - timers.now()));
      timers.run_due();
      for (const auto& [uid, view] : watchers.views("job")) {
        const bool is_silent = timers.now() - view.last_heard >= watchers.silence();
        if (is_silent && !watchers.suspect_own_network()) given_up.insert(uid);
      }
    }
    return given_up;
  }
};

constexpr seconds kSilences[] = {seconds(5), seconds(6), seconds(15), seconds(60), seconds(300)};

TEST(Silence, WhoIsCutOffFromAllAgentsGivesNoneUpHoweverTheirLastAnswersAreSpread) {
  for (const seconds silence : kSilences) {
    for (const int nodes : {2, 3, 8}) {
      for (const int tenths : {0, 3, 6, 9}) {
        SCOPED_TRACE(std::to_string(silence.count()) + " s, " + std::to_string(nodes) +
                     " nodes, cut off at " + std::to_string(tenths) + " tenths of a poll");
        Silence scene({.silence = silence});
        scene.add_nodes(nodes);
        const Duration poll = scene.options.poll_wait(1);
        EXPECT_EQ(scene.pass(2 * silence + tenths * poll / 10), Names{});
        scene.agents.is_cut_off = true;
        EXPECT_EQ(scene.pass(2 * silence), Names{});
        EXPECT_TRUE(scene.watchers.suspect_own_network());
        scene.agents.is_cut_off = false;
        EXPECT_EQ(scene.pass(3 * silence), Names{});
        EXPECT_FALSE(scene.watchers.suspect_own_network());
      }
    }
  }
}

TEST(Silence, AfterACutOffOfAnyLengthEverybodyIsHeardBeforeSomebodyIsGivenUp) {
  for (const seconds silence : {seconds(5), seconds(15)}) {
    for (int part = 1; part <= 30; ++part) {
      for (const bool fails_at_once : {false, true}) {
        const Duration length = part * Duration(silence) / 15;
        SCOPED_TRACE(std::to_string(silence.count()) + " s, cut off for " +
                     std::to_string(to_seconds(length)) + " s" +
                     (fails_at_once ? ", refused at once" : ""));
        Silence scene({.silence = silence});
        scene.agents.fails_at_once = fails_at_once;
        scene.add_nodes(5);
        EXPECT_EQ(scene.pass(2 * silence), Names{});
        scene.agents.is_cut_off = true;
        EXPECT_EQ(scene.pass(length), Names{});
        scene.agents.is_cut_off = false;
        EXPECT_EQ(scene.pass(3 * silence), Names{});
      }
    }
  }
}

TEST(Silence, ALostNodeIsGivenUpInTimeWhereOthersAreHeard) {
  for (const seconds silence : kSilences) {
    SCOPED_TRACE(silence.count());
    Silence scene({.silence = silence});
    scene.add_nodes(2);
    EXPECT_EQ(scene.pass(2 * silence), Names{});
    scene.lose({"pod-1"});
    EXPECT_EQ(scene.pass(silence + milliseconds(100)), Names{"pod-1"});
  }
}

TEST(Silence, ANodeIsOneHoweverManyAgentsItHas) {
  Silence scene;
  scene.add_nodes(2);
  const Names there = {"a", "b", "c", "d", "e", "f"};
  for (const std::string& name : there) scene.add(name, "node-2");
  EXPECT_EQ(scene.pass(seconds(60)), Names{});
  scene.lose(there);
  EXPECT_EQ(scene.pass(seconds(16)), there);
}

TEST(Silence, ARackOfHalfTheNodesIsGivenUpAndMoreThanHalfIsDoubted) {
  for (const int lost : {4, 5}) {
    Silence scene;
    scene.add_nodes(8);
    EXPECT_EQ(scene.pass(seconds(60)), Names{});
    Names rack;
    for (int i = 0; i < lost; ++i) rack.insert("pod-" + std::to_string(i));
    scene.lose(rack);
    EXPECT_EQ(scene.pass(seconds(16)), lost == 4 ? rack : Names{});
    EXPECT_EQ(scene.watchers.suspect_own_network(), lost == 5);
  }
}

TEST(Silence, WhoBeginsToListenCutOffGivesNobodyUp) {
  Silence scene;
  scene.agents.is_cut_off = true;
  scene.add_nodes(2);
  EXPECT_EQ(scene.pass(seconds(60)), Names{});
  scene.agents.is_cut_off = false;
  EXPECT_EQ(scene.pass(seconds(60)), Names{});
  EXPECT_FALSE(scene.watchers.suspect_own_network());
}

TEST(Silence, WhoBeginsToListenGivesUpWhoeverNeverAnswers) {
  Silence scene;
  scene.lose({"pod-0"});
  scene.add_nodes(3);
  EXPECT_EQ(scene.pass(seconds(15)), Names{"pod-0"});
}

TEST(Silence, WhoIsGivenUpSaysNothingOfTheControllerAnyMore) {
  Silence scene;
  scene.add_nodes(3);
  EXPECT_EQ(scene.pass(seconds(30)), Names{});
  scene.lose({"pod-0"});
  EXPECT_EQ(scene.pass(seconds(30)), Names{"pod-0"});
  scene.lose({"pod-1"});
  EXPECT_EQ(scene.pass(seconds(16)), (Names{"pod-0", "pod-1"}));
  scene.agents.lost.clear();
  EXPECT_EQ(scene.pass(seconds(30)).size(), 2u) << "until they are heard";
  scene.agents.is_cut_off = true;
  EXPECT_EQ(scene.pass(seconds(60)), Names{}) << "they count again";
}

// Pods may be replaced while the controller is cut off, and the new ones are not heard either.
TEST(Silence, HoweverFewAreLeftOnlyAnAnswerEndsASuspicion) {
  Silence scene;
  scene.add_nodes(3);
  EXPECT_EQ(scene.pass(seconds(30)), Names{});
  scene.agents.is_cut_off = true;
  EXPECT_EQ(scene.pass(seconds(20)), Names{});
  scene.targets.resize(1);
  scene.add("new-1", "node-5");
  EXPECT_EQ(scene.pass(seconds(40)), Names{});
  scene.targets.clear();
  scene.add("new-2", "node-6");
  EXPECT_EQ(scene.pass(seconds(40)), Names{});
  EXPECT_TRUE(scene.watchers.suspect_own_network());
  scene.agents.is_cut_off = false;
  EXPECT_EQ(scene.pass(seconds(20)), Names{});
  EXPECT_FALSE(scene.watchers.suspect_own_network());
}

TEST(Silence, AnAnswerForAnotherPodIsNone) {
  struct Case {
    const char* what;
    AgentState state;
  };
  const Case cases[] = {{"another job", {.job_uid = "other"}},
                        {"another node", {.job_uid = "uid", .node_index = 1, .incarnation = 2}},
                        {"the pod before", {.job_uid = "uid", .incarnation = 1}}};
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    Silence scene;
    scene.add_nodes(2);
    scene.targets.push_back(
        {.pod_uid = "pod", .ip = "pod", .node = "node", .job_uid = "uid", .incarnation = 2});
    scene.agents.says["pod"] = {.job_uid = "uid", .incarnation = 2, .round = 3};
    scene.watchers.set_targets("job", {"token"}, scene.targets);
    EXPECT_EQ(scene.pass(seconds(30)), Names{});
    scene.agents.says["pod"] = test.state;
    scene.watchers.learn("job", "pod", test.state);
    EXPECT_EQ(scene.pass(seconds(10)), Names{});
    const plan::AgentView view = scene.watchers.views("job").at("pod");
    EXPECT_EQ(view.state->round, 3) << "its own last report counts";
    EXPECT_NE(view.error.find("for another pod: job " + test.state.job_uid), std::string::npos)
        << view.error;
    EXPECT_EQ(scene.pass(seconds(10)), Names{"pod"});
  }
}

TEST(Silence, AnAgentOfAVersionThatIsNotServedIsHeardWhoeverItIs) {
  Silence scene;
  scene.add_nodes(2);
  scene.targets.push_back({.pod_uid = "pod", .ip = "pod", .node = "node", .job_uid = "uid"});
  scene.agents.says["pod"] = {.protocol = kProtocolNewest + 1};
  scene.watchers.set_targets("job", {"token"}, scene.targets);
  EXPECT_EQ(scene.pass(seconds(30)), Names{});
  EXPECT_TRUE(scene.watchers.views("job").at("pod").has_unsupported_protocol());
}

TEST(Silence, WhoWasOnlyJustAskedForTheFirstTimeDoesNotCountYet) {
  Silence scene;
  scene.add_nodes(2);
  EXPECT_EQ(scene.pass(seconds(30)), Names{});
  scene.lose({"pod-0", "new-1", "new-2", "new-3"});
  EXPECT_EQ(scene.pass(seconds(10)), Names{});
  for (const char* name : {"new-1", "new-2", "new-3"}) scene.add(name, std::string("of-") + name);
  EXPECT_EQ(scene.pass(seconds(6)), Names{"pod-0"});
  EXPECT_EQ(scene.pass(seconds(20)), Names{"pod-0"}) << "then most are silent";
  EXPECT_TRUE(scene.watchers.suspect_own_network());
}

TEST(Silence, OfOneNodeAloneManyAgentsCountAndAFewDoNot) {
  for (const int count : {1, 2, 3, 4}) {
    Silence scene;
    Names all;
    for (int i = 0; i < count; ++i) {
      all.insert(std::to_string(i));
      scene.add(std::to_string(i), "node");
    }
    EXPECT_EQ(scene.pass(seconds(30)), Names{});
    scene.lose(all);
    EXPECT_EQ(scene.pass(seconds(16)), count < 3 ? all : Names{}) << count << " agents";
  }
}

TEST(Silence, ItHasToBeLongerWhereManyAgentsAreAskedLessOften) {
  Silence scene({.polls_per_second = 0.5});
  scene.add_nodes(5);
  EXPECT_EQ(scene.watchers.silence(), seconds(30)) << "three polls of 10 seconds";
  EXPECT_EQ(scene.pass(seconds(60)), Names{});
  scene.lose({"pod-4"});
  EXPECT_EQ(scene.pass(seconds(29) - seconds(10)), Names{});
  EXPECT_EQ(scene.pass(seconds(11)), Names{"pod-4"});
  scene.targets.resize(1);
  scene.watchers.set_targets("job", {"token"}, scene.targets);
  EXPECT_EQ(scene.watchers.silence(), seconds(30)) << "a poll may be as long as before";
  scene.pass(seconds(40));
  EXPECT_EQ(scene.watchers.silence(), seconds(15));
}

TEST(Silence, AsManyAgentsTellProgressInASecondHoweverManyThereAre) {
  const AgentWatchOptions usual;
  EXPECT_EQ(usual.progress_wait(999), seconds(0)) << "as often as they publish it";
  EXPECT_EQ(usual.progress_wait(1'000), seconds(1));
  EXPECT_EQ(usual.progress_wait(4'500), milliseconds(4'500));
  EXPECT_EQ(usual.progress_wait(50'000), seconds(30)) << "agents wait no longer";
}

TEST(Silence, PollsAreAFifthOfItUnlessTooManyWouldCome) {
  const AgentWatchOptions usual;
  EXPECT_EQ(usual.poll_wait(1), seconds(3));
  EXPECT_EQ(usual.poll_wait(3'000), seconds(3));
  EXPECT_EQ(usual.poll_wait(3'001), seconds(4));
  EXPECT_EQ(usual.silence_for(usual.poll_wait(5'000)), seconds(15));
  EXPECT_EQ(usual.silence_for(usual.poll_wait(10'000)), seconds(30));
  EXPECT_EQ(usual.poll_wait(100'000), seconds(30)) << "agents wait no longer";
  EXPECT_EQ(AgentWatchOptions{.silence = seconds(5)}.poll_wait(1), seconds(1));
  EXPECT_EQ(AgentWatchOptions{.silence = seconds(300)}.poll_wait(1), seconds(10));
  EXPECT_EQ(usual.silence, plan::Limits().agent_silence);
  EXPECT_EQ(usual.silence / 2, plan::Limits().agent_healthy_within);
}

}  // namespace
}  // namespace lockstep::loop
