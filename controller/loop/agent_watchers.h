#pragma once

#include <algorithm>
#include <cstdint>
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

namespace lockstep::loop {

// How agents are polled, and when their silence may be the controller's own fault. With a silence
// limit S and polls of W, at most S/3, a healthy agent with nothing to say is heard every W. The
// controller suspects its own network once fewer than half of the Kubernetes nodes have been heard
// for S/2, which is more than W. If its own network fails, every agent was last heard at most W
// before that, however their answers are spread over a poll. So no agent is given up earlier than
// S - W after the failure, and the suspicion began at least S/6 before that.
struct AgentWatchOptions {
  Duration silence = std::chrono::seconds(15);  // Limits::agent_silence
  double polls_per_second = 1000;  // by all agents that have nothing but progress to tell
  // Time from an answer to the next request, so that an agent with much to say is not asked all the
  // time.
  Duration pause = std::chrono::milliseconds(50);
  // If all agents are on one Kubernetes node, the silence of fewer than this says more about them
  // than about the controller.
  size_t silent_min = 3;
  // How often to check whether the controller hears enough, and whether this process was paused. A
  // check that is late by process_pause_min or more means that it was, and that the agents' silence
  // in that time was its own.
  Duration tick_interval = std::chrono::seconds(1);
  Duration process_pause_min = std::chrono::seconds(3);
  // Memory for the last reports of one job's agents. A job's program can make its agents report
  // much, and must not fill the controller's memory. Those of 4,096 nodes with 64 ranks each fit
  // in, without log tails.
  size_t report_bytes_max = 128u << 20;
  RetryOptions retry{.first = std::chrono::milliseconds(100),
                     .max = std::chrono::seconds(5),
                     .jitter = 0.5,
                     .reset_after = std::chrono::seconds(5)};

  // Returns the length of a long poll with this many agents, in whole seconds. It is a fifth of
  // `silence`, at most 10, and grows up to the agents' limit of 30 to keep within polls_per_second.
  Duration poll_wait(size_t agents) const;
  // Returns how long mere progress waits in an agent, which publishes it twice a second: with many
  // agents so long that polls_per_second of them tell it, at most 30 s. 0 with few.
  Duration progress_wait(size_t agents) const;
  // Returns how long an agent has to be silent with polls of this length: `silence`, or three polls
  // if that is longer.
  Duration silence_for(Duration wait) const { return std::max(silence, 3 * wait); }
};

// Long-polls the agents of all running jobs, with one open request per agent, and keeps their last
// reports. Apart from these reports, everything that the controller relies on is in the API server.
// Single-threaded.
class AgentWatchers {
 public:
  // Receives the job of an agent that said something new: urgent if a worker has failed, progress
  // if there is nothing else.
  using OnChange = std::function<void(const std::string& job, Urgency urgency)>;

  AgentWatchers(AgentClient& agents, Timers& timers, Random& random, AgentWatchOptions options,
                OnChange on_change);
  ~AgentWatchers();
  AgentWatchers(const AgentWatchers&) = delete;
  AgentWatchers& operator=(const AgentWatchers&) = delete;

  // From now on polls exactly these agents of the job; `tokens` as in AgentAddress.
  void set_targets(const std::string& job, const std::vector<std::string>& tokens,
                   const std::vector<plan::AgentTarget>& targets);
  using Views = std::map<std::string, plan::AgentView>;  // by pod UID
  // Returns the views of the job's agents.
  Views views(const std::string& job) const;
  // Exchanges the views of the job's agents with `views`, without a copy. Called a second time,
  // before any other call, it takes them back.
  void swap_views(const std::string& job, Views& views);
  // Records what an agent said in an answer to something other than a poll.
  void learn(const std::string& job, const std::string& pod_uid, const AgentState& state);
  // Returns whether this process hears so little that an agent's silence may be the controller's
  // own. Becomes true if fewer than half of the Kubernetes nodes with agents were heard in the last
  // half of silence(). Stays true until most of those that are left have been heard again for
  // silence(), in which the others can be heard too. With a single node, most of its agents must be
  // silent, and at least silent_min.
  // Ignores agents that went silent while most others were heard, and those first asked only just
  // now. All agents are counted once a second, not at each call.
  bool suspect_own_network();
  // The silence after which an agent counts as silent now: that of the options, or more with very
  // many agents.
  Duration silence() const { return options_.silence_for(wait_); }
  size_t jobs() const { return jobs_.size(); }
  size_t agents() const { return hearings_.size(); }

 private:
  struct Agent;
  struct Node {  // a Kubernetes node
    size_t agents = 0;
    uint64_t count = 0;  // number of the last count that visited one of its agents
    TimePoint heard{};   // by that count: when the last of them was heard
  };
  using Nodes = std::map<std::string, Node>;  // by name
  // The part of an agent that a count of all agents reads.
  struct Hearing {
    Agent* agent = nullptr;
    Node* node = nullptr;
    TimePoint at{};            // as AgentView::last_heard
    bool was_heard = false;    // at any time
    bool is_excluded = false;  // silent for too long while most others were heard
  };
  struct Job {
    std::map<std::string, std::shared_ptr<Agent>> agents;  // by pod UID
    Views views;                                           // one for each of them
    uint64_t plans = 0;                                    // that have set its targets
  };

  void poll(const std::shared_ptr<Agent>& agent);
  void poll_after(const std::shared_ptr<Agent>& agent, Duration delay);
  void on_answer(const std::shared_ptr<Agent>& agent, int64_t since,
                 const Result<AgentState>& answer);
  void fail_to_hear(Agent& agent, const Error& error);
  void hear(Agent& agent, int64_t since, const AgentState& state);
  bool keep(Agent& agent, const AgentState& report);
  void note_heard(Agent& agent);
  void set_last_heard(Agent& agent, TimePoint at);
  void drop(Agent& agent);
  void drop_unwanted(Job& job);
  Duration delay_after_failure(Agent& agent, const Error& error);
  TimePoint when_most_were_heard();
  void update_suspicion();
  void exclude_silent_agents();
  void tick();
  void compensate_pause(Duration late);
  void update_poll_wait();

  AgentClient& agents_;
  Timers& timers_;
  Random& random_;
  AgentWatchOptions options_;
  OnChange on_change_;
  std::map<std::string, Job> jobs_;
  Nodes nodes_;          // those with agents
  uint64_t counts_ = 0;  // of all agents so far
  // One for each agent, side by side: tens of thousands are counted every second.
  std::vector<Hearing> hearings_;
  std::map<std::string, size_t> report_bytes_;  // by job, of its agents' last reports
  // The longest poll that may be open now, until when it may be, and the longest that was logged.
  Duration wait_;
  TimePoint wait_until_{};
  Duration logged_wait_;
  // At the last count, half of the nodes had been heard since this time.
  TimePoint most_heard_at_ = TimePoint::max();
  bool suspects_own_network_ = false;
  // Since when most are heard again; nullopt: they are silent, or never were.
  std::optional<TimePoint> heard_again_at_;
  std::optional<Timers::Id> tick_timer_;
};

}  // namespace lockstep::loop
