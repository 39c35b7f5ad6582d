#include "controller/loop/agent_watchers.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "common/base/log.h"
#include "common/base/utf8.h"

namespace lockstep {
namespace {

// Two requests are open at times, and the answer to the earlier one may come last: a number that
// isn't above the known one is of an old state. But rounds only grow, and an answer is never older
// than its question, which named the state `since`: an agent that answers with less has counted
// wrongly, and would not be heard any more.
bool is_news(const AgentState& state, const AgentState& known, int64_t since) {
  if (state.boot_id != known.boot_id || state.sequence > known.sequence) return true;
  return state.round > known.round || (state.round == known.round && state.sequence < since);
}

}  // namespace

Duration AgentWatchOptions::poll_wait(size_t agents) const {
  const Duration shared = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(static_cast<double>(agents) / polls_per_second));
  constexpr Duration kUsual = std::chrono::seconds(10);
  constexpr Duration kLongest = std::chrono::seconds(30);  // as agents have it
  const Duration wait =
      std::clamp(shared, std::min(silence / 3, kUsual), std::min(silence * 2 / 3, kLongest));
  return std::max(std::chrono::floor<std::chrono::seconds>(wait), std::chrono::seconds(1));
}

struct AgentWatchers::Agent {
  std::string job;
  std::string pod_uid;
  AgentAddress address;
  std::string node;
  AgentView view;
  Retry retry;
  std::optional<Timers::Id> timer;
  bool is_dropped = false;
};

AgentWatchers::AgentWatchers(AgentClient& agents, Timers& timers, Random& random,
                             AgentWatchOptions options, OnChange on_change)
    : agents_(agents),
      timers_(timers),
      random_(random),
      options_(options),
      on_change_(std::move(on_change)) {
  look_for_standstill();
}

AgentWatchers::~AgentWatchers() {
  timers_.cancel(*standstill_timer_);
  for (auto& [job, agents] : jobs_) {
    for (auto& [uid, agent] : agents) drop(*agent);
  }
}

void AgentWatchers::look_for_standstill() {
  const TimePoint due = timers_.now() + options_.standstill_look;
  standstill_timer_ = timers_.at(due, [this, due] {
    const Duration late = timers_.now() - due;
    if (late >= options_.standstill_min) {
      log_warning("this process stood still", {{"seconds", to_seconds(late)}});
      for (auto& [job, agents] : jobs_) {
        for (auto& [uid, agent] : agents) {
          agent->view.last_heard = std::min(timers_.now(), agent->view.last_heard + late);
        }
      }
    }
    look_for_standstill();
  });
}

void AgentWatchers::drop(Agent& agent) {
  agent.is_dropped = true;
  if (agent.timer) timers_.cancel(*agent.timer);
  agents_.forget(agent.address);
}

void AgentWatchers::set_targets(const std::string& job, const std::string& token,
                                const std::vector<AgentTarget>& targets) {
  Agents& agents = jobs_[job];
  std::set<std::string> wanted;
  for (const AgentTarget& target : targets) wanted.insert(target.pod_uid);
  for (auto it = agents.begin(); it != agents.end();) {
    if (wanted.contains(it->first)) {
      ++it;
      continue;
    }
    drop(*it->second);
    it = agents.erase(it);
    --agents_count_;
  }
  for (const AgentTarget& target : targets) {
    if (agents.contains(target.pod_uid)) continue;
    auto agent = std::make_shared<Agent>(Agent{.job = job,
                                               .pod_uid = target.pod_uid,
                                               .address = {.ip = target.ip, .token = token},
                                               .node = target.node,
                                               .view = {},
                                               .retry = Retry(options_.retry, random_),
                                               .timer = {}});
    agent->view.last_heard = timers_.now();
    agents[target.pod_uid] = agent;
    ++agents_count_;
    poll(agent);
  }
  if (agents.empty()) jobs_.erase(job);
}

std::map<std::string, AgentView> AgentWatchers::views(const std::string& job) const {
  std::map<std::string, AgentView> views;
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return views;
  for (const auto& [uid, agent] : found->second) views[uid] = agent->view;
  return views;
}

void AgentWatchers::poll(const std::shared_ptr<Agent>& agent) {
  const int64_t since = agent->view.state ? agent->view.state->sequence : 0;
  // After a failure it only has to show that it is there, before it is too late.
  const Duration wait =
      agent->view.error.empty() ? options_.poll_wait(agents_count_) : Duration::zero();
  agents_.poll_state(agent->address, since, wait, [this, agent, since](Result<AgentState> answer) {
    if (!agent->is_dropped) on_answer(agent, since, std::move(answer));
  });
}

void AgentWatchers::on_answer(const std::shared_ptr<Agent>& agent, int64_t since,
                              Result<AgentState> answer) {
  if (answer.ok()) {
    hear(*agent, since, *answer);
    if (!is_served(answer->protocol)) {  // nor is its sequence known, so that it answers at once
      return poll_after(agent, agent->retry.next(timers_.now()));
    }
    agent->retry.reset();
    poll_after(agent, options_.pause);
    return;
  }
  log_debug(
      "an agent did not answer",
      {{"job", agent->job}, {"address", agent->address.ip}, {"error", answer.error().message}});
  fail_to_hear(*agent, answer.error());
  poll_after(agent, agent->retry.next(timers_.now()));
}

void AgentWatchers::fail_to_hear(Agent& agent, const Error& error) {
  constexpr size_t kErrorBytesMax = 256;
  AgentView& view = agent.view;
  view.error = utf8_head(clean_utf8(error.message), kErrorBytesMax);
  const bool refuses = error.code == Code::kNotFound;
  if (refuses) view.last_heard = timers_.now();
  if (std::exchange(view.refuses_token, refuses) != refuses) {
    on_change_(agent.job, Urgency::kRoutine);
  }
}

void AgentWatchers::poll_after(const std::shared_ptr<Agent>& agent, Duration delay) {
  if (agent->is_dropped) return;
  agent->timer = timers_.after(delay, [this, agent] {
    agent->timer.reset();
    poll(agent);
  });
}

void AgentWatchers::hear(Agent& agent, int64_t since, const AgentState& state) {
  agent.view.last_heard = timers_.now();
  agent.view.error.clear();
  if (std::exchange(agent.view.refuses_token, false)) on_change_(agent.job, Urgency::kRoutine);
  if (agent.view.state && !is_news(state, *agent.view.state, since)) return;
  agent.view.state = state;
  agent.view.state_at = timers_.now();
  on_change_(agent.job, state.failed_seconds_ago > 0 ? Urgency::kUrgent : Urgency::kRoutine);
}

void AgentWatchers::learn(const std::string& job, const std::string& pod_uid,
                          const AgentState& state) {
  const auto agents = jobs_.find(job);
  if (agents == jobs_.end()) return;
  const auto agent = agents->second.find(pod_uid);
  if (agent != agents->second.end()) hear(*agent->second, 0, state);
}

bool AgentWatchers::most_are_silent() const {
  size_t all = 0;
  size_t silent = 0;
  std::set<std::string_view> nodes;
  TimePoint first = TimePoint::max();  // when those that are silent were last heard
  TimePoint last = TimePoint::min();
  for (const auto& [job, agents] : jobs_) {
    for (const auto& [uid, agent] : agents) {
      ++all;
      if (timers_.now() - agent->view.last_heard < options_.silent_after()) continue;
      ++silent;
      nodes.insert(agent->node);
      first = std::min(first, agent->view.last_heard);
      last = std::max(last, agent->view.last_heard);
    }
  }
  if (silent == all && nodes.size() > 1 && last - first <= options_.silent_after()) return true;
  return silent >= options_.silent_min && silent * 2 > all;
}

bool AgentWatchers::suspect_self() {
  constexpr Duration kCountInterval = std::chrono::seconds(1);
  const TimePoint now = timers_.now();
  if (suspects_self_ || now - counted_at_ >= kCountInterval) {
    count_silent(now);
    counted_at_ = now;
  }
  return suspects_self_;
}

void AgentWatchers::count_silent(TimePoint now) {
  const bool did = suspects_self_;
  if (most_are_silent()) {
    suspects_self_ = true;
    heard_again_at_.reset();
  } else if (suspects_self_) {
    if (!heard_again_at_) heard_again_at_ = now;
    suspects_self_ = now - *heard_again_at_ < options_.trust_after;
    if (!suspects_self_) heard_again_at_.reset();
  }
  if (suspects_self_ && !did) log_warning("most agents are silent: their pods are kept for longer");
  if (did && !suspects_self_) log_info("most agents are heard again");
}

}  // namespace lockstep
