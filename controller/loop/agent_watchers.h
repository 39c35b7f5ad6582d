#pragma once

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

struct AgentWatchOptions {
  Duration silence = std::chrono::seconds(15);  // Limits::agent_silence
  double polls_per_second = 1000;               // of all agents that have nothing to say
  // From an answer to the next question, so that an agent with much to say isn't asked all the
  // time.
  Duration pause = std::chrono::milliseconds(50);
  // For suspect_self(): the silence of fewer than so many says more of them than of the controller,
  // unless it is that of all there are, on more than one Kubernetes node, and all of them fell
  // silent at once: within silent_after() of each other.
  size_t silent_min = 3;
  // Until the others are heard too, once it isn't most of them any more: their open polls have to
  // end before they are asked again.
  Duration trust_after = std::chrono::seconds(30);
  // Whether this process stood still is looked at so often; and a turn so much later than wanted
  // means that it did: the agents' silence in that time was its own.
  Duration standstill_look = std::chrono::seconds(2);
  Duration standstill_min = std::chrono::seconds(3);
  RetryOptions retry{.first = std::chrono::milliseconds(100),
                     .max = std::chrono::seconds(5),
                     .jitter = 0.5,
                     .reset_after = std::chrono::seconds(5)};

  // Of one long poll where so many agents are watched, in whole seconds: a third of `silence` or 10,
  // and more for many agents, up to two thirds.
  Duration poll_wait(size_t agents) const;
  // An agent that hasn't answered for so long, four fifths of `silence`, is silent: longer than a
  // poll, and early enough for suspect_self() to count it before its pod is given up.
  Duration silent_after() const { return silence * 4 / 5; }
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
  // Most agents of all jobs, and not a few, are silent at once, or all of them fell silent together
  // (see the options), or that was so until a moment ago. Found
  // out with a delay of at most a second, since all of them are counted for it.
  bool suspect_self();
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
  void drop(Agent& agent);
  bool most_are_silent() const;
  void count_silent(TimePoint now);
  void look_for_standstill();

  AgentClient& agents_;
  Timers& timers_;
  Random& random_;
  AgentWatchOptions options_;
  OnChange on_change_;
  std::map<std::string, Agents> jobs_;
  size_t agents_count_ = 0;
  bool suspects_self_ = false;
  std::optional<TimePoint> heard_again_at_;  // most of them; none: they are silent, or never were
  TimePoint counted_at_{};
  std::optional<Timers::Id> standstill_timer_;
};

}  // namespace lockstep
