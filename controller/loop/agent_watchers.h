#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "controller/loop/agent_client.h"
#include "controller/loop/retry.h"
#include "controller/loop/timers.h"
#include "controller/loop/work_queue.h"
#include "controller/plan/plan.h"

namespace lockstep {

// How agents are asked, and when nobody is believed to be silent. With a silence S and polls of W,
// at most S/3: an agent that is well and has nothing to say is heard every W. The controller doubts
// itself once fewer than half of the Kubernetes nodes have been heard for S/2, which is more than
// W. Where its own network ends, no agent was last heard more than W before that, however their
// answers are spread over a poll; so none is given up earlier than S - W after it, and the doubt
// began at least S/6 before.
struct AgentWatchOptions {
  Duration silence = std::chrono::seconds(15);  // Limits::agent_silence
  double polls_per_second = 1000;               // of all agents that have nothing to say
  // From an answer to the next question, so that an agent with much to say isn't asked all the
  // time.
  Duration pause = std::chrono::milliseconds(50);
  // Where all agents are on one Kubernetes node: the silence of fewer says more of them than of the
  // controller.
  size_t silent_min = 3;
  // So often it is looked whether the controller hears enough, and whether this process stood
  // still: a turn so much later than wanted means that it did, and the agents' silence in that time
  // was its own.
  Duration look = std::chrono::seconds(1);
  Duration standstill_min = std::chrono::seconds(3);
  RetryOptions retry{.first = std::chrono::milliseconds(100),
                     .max = std::chrono::seconds(5),
                     .jitter = 0.5,
                     .reset_after = std::chrono::seconds(5)};

  // Of one long poll where so many agents are watched, in whole seconds: a fifth of `silence`, at
  // most 10, and more where more than polls_per_second would come, up to 30, as agents have it.
  Duration poll_wait(size_t agents) const;
  // For how long an agent has to be silent where polls wait for so long: `silence`, or three of
  // them.
  Duration silence_for(Duration wait) const { return std::max(silence, 3 * wait); }
};

// Long polls of the agents of all running jobs, one open request an agent, and what they said last.
// It is all that the controller remembers by itself. Single-threaded.
class AgentWatchers {
 public:
  // Names the job one of whose agents said something new: urgent when a worker has failed.
  using OnChange = std::function<void(const std::string& job, Urgency urgency)>;

  AgentWatchers(AgentClient& agents, Timers& timers, Random& random, AgentWatchOptions options,
                OnChange on_change);
  ~AgentWatchers();
  AgentWatchers(const AgentWatchers&) = delete;
  AgentWatchers& operator=(const AgentWatchers&) = delete;

  // From now on exactly these agents of the job; `token` is the job's.
  void set_targets(const std::string& job, const std::string& token,
                   const std::vector<AgentTarget>& targets);
  // By pod UID.
  std::map<std::string, AgentView> views(const std::string& job) const;
  // What an agent said in answer to something else than a poll.
  void learn(const std::string& job, const std::string& pod_uid, const AgentState& state);
  // This process hears so little that an agent's silence may be its own: fewer than half of the
  // Kubernetes nodes with agents have been heard in half of silence(), or that was so until less
  // than silence() ago, in which the others can be heard as well. Of one node alone, most of its
  // agents, and not a few. Nodes whose agents were silent too long while most others were heard
  // don't count, nor those that were only just asked for the first time. All agents are counted for
  // it once a second, not each time.
  bool suspect_self();
  // What an agent's silence has to reach now: that of the options, and more with very many agents.
  Duration silence() const { return options_.silence_for(wait_); }
  size_t jobs() const { return jobs_.size(); }
  size_t agents() const { return agents_count_; }

 private:
  struct Agent;
  using Agents = std::map<std::string, std::shared_ptr<Agent>>;  // by pod UID

  void poll(const std::shared_ptr<Agent>& agent);
  void poll_after(const std::shared_ptr<Agent>& agent, Duration delay);
  void on_answer(const std::shared_ptr<Agent>& agent, int64_t since, Result<AgentState> answer);
  void fail_to_hear(Agent& agent, const Error& error);
  void hear(Agent& agent, int64_t since, const AgentState& state);
  void note_heard(Agent& agent);
  void drop(Agent& agent);
  Duration delay_after_failure(Agent& agent, const Error& error);
  TimePoint when_most_were_heard() const;
  void doubt_or_trust();
  void note_lost();
  void look();
  void forgive_standstill(Duration late);
  void follow_wait();

  AgentClient& agents_;
  Timers& timers_;
  Random& random_;
  AgentWatchOptions options_;
  OnChange on_change_;
  std::map<std::string, Agents> jobs_;
  size_t agents_count_ = 0;
  // The longest poll that may be open now, and until when; and the longest that a log told of.
  Duration wait_;
  TimePoint wait_until_{};
  Duration wait_told_;
  // Since then half of the nodes have been heard, as of when that was last counted.
  TimePoint most_heard_at_ = TimePoint::max();
  bool suspects_self_ = false;
  std::optional<TimePoint> heard_again_at_;  // most of them; none: they are silent, or never were
  std::optional<Timers::Id> look_timer_;
};

}  // namespace lockstep
