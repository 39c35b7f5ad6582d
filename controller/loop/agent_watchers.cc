#include "controller/loop/agent_watchers.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include "common/base/log.h"
#include "common/base/utf8.h"

namespace lockstep::loop {
namespace {

// Two requests may be open, and the answer to the earlier one may come last. So a sequence that is
// not above the known one belongs to an old state, with two exceptions. Rounds only grow. And an
// answer is never older than its request, which named the state `since`: an agent that answers with
// a smaller sequence has counted wrongly, and would never be heard again.
bool is_news(const AgentState& state, const AgentState& known, int64_t since) {
  if (state.boot_id != known.boot_id || state.sequence > known.sequence) return true;
  return state.round > known.round || (state.round == known.round && state.sequence < since);
}

// Returns what is wrong if the report is about another pod; empty if nothing is. A report of a
// version that is not served tells nothing else.
std::string other_pod_in(const AgentState& report, const plan::AgentTarget& target) {
  const bool is_its = report.job_uid == target.job_uid && report.node_index == target.node_index &&
                      report.incarnation == target.incarnation;
  if (is_its || !is_served(report.protocol)) return "";
  return "an agent answers there for another pod: job " + report.job_uid + ", node index " +
         std::to_string(report.node_index) + ", incarnation " + std::to_string(report.incarnation);
}

// Returns about how much memory a report takes.
size_t memory_of(const AgentState& report) {
  size_t bytes = sizeof(AgentState) + report.boot_id.capacity() + report.job_uid.capacity() +
                 report.hash.capacity() + report.phase.capacity();
  for (const WorkerState& worker : report.workers) {
    bytes += sizeof(WorkerState) + worker.reason.capacity() + worker.log_tail.capacity();
    if (!worker.wait) continue;
    bytes += worker.wait->operation.capacity() + worker.wait->ranks.capacity() +
             worker.wait->waits_for.capacity() * sizeof(int64_t);
  }
  if (report.last_checkpoint) bytes += report.last_checkpoint->path.capacity();
  if (report.storage) {
    bytes += report.storage->failure.capacity() + report.storage->set_aside_reason.capacity();
  }
  return bytes;
}

// Returns since when half of them have been heard, or all but `silent_min` - 1 if that is fewer,
// because a smaller number of silent ones says nothing. nullopt if there are fewer than
// `silent_min`.
std::optional<TimePoint> since_when(std::vector<TimePoint>& heard, size_t silent_min) {
  if (heard.size() < silent_min) return std::nullopt;
  const size_t wanted = std::min((heard.size() + 1) / 2, heard.size() - silent_min + 1);
  const auto nth = heard.begin() + static_cast<std::ptrdiff_t>(wanted - 1);
  std::nth_element(heard.begin(), nth, heard.end(), std::greater<>());
  return *nth;
}

}  // namespace

Duration AgentWatchOptions::poll_wait(size_t agents) const {
  using std::chrono::seconds;
  const auto shared =
      static_cast<int64_t>(std::ceil(static_cast<double>(agents) / polls_per_second));
  const seconds usual = std::min(std::chrono::floor<seconds>(silence / 5), seconds(10));
  return std::clamp(std::max(usual, seconds(shared)), seconds(1), seconds(30));
}

Duration AgentWatchOptions::progress_wait(size_t agents) const {
  constexpr Duration kMax = std::chrono::seconds(30);
  const double seconds = static_cast<double>(agents) / polls_per_second;
  return seconds < 1 ? Duration::zero() : std::min(kMax, from_seconds(seconds));
}

struct AgentWatchers::Agent {
  std::string job;
  plan::AgentTarget target;
  AgentAddress address;
  Nodes::iterator node;
  plan::AgentView& view;  // in its job's views; valid until it is dropped
  size_t hearing;         // place of its Hearing
  Retry retry;
  std::optional<Timers::Id> timer;
  bool is_dropped = false;
  uint64_t wanted_by = 0;   // number of the last plan that wants it
  size_t report_bytes = 0;  // of view.state
};

AgentWatchers::AgentWatchers(AgentClient& agents, Timers& timers, Random& random,
                             AgentWatchOptions options, OnChange on_change)
    : agents_(agents),
      timers_(timers),
      random_(random),
      options_(options),
      on_change_(std::move(on_change)),
      wait_(options_.poll_wait(0)),
      logged_wait_(wait_) {
  tick();
}

AgentWatchers::~AgentWatchers() {
  timers_.cancel(*tick_timer_);
  for (auto& [name, job] : jobs_) {
    for (auto& [uid, agent] : job.agents) drop(*agent);
  }
}

void AgentWatchers::tick() {
  const TimePoint due = timers_.now() + options_.tick_interval;
  tick_timer_ = timers_.at(due, [this, due] {
    const Duration late = timers_.now() - due;
    if (late >= options_.process_pause_min) compensate_pause(late);
    update_poll_wait();
    update_suspicion();
    exclude_silent_agents();
    tick();
  });
}

void AgentWatchers::compensate_pause(Duration late) {
  log_warning("this process was paused; extending agents' silence limits",
              {{"seconds", to_seconds(late)}});
  for (auto& [name, job] : jobs_) {
    for (auto& [uid, agent] : job.agents) {
      set_last_heard(*agent, std::min(timers_.now(), agent->view.last_heard + late));
    }
  }
}

// Polls get shorter when agents go, but open ones keep their length.
void AgentWatchers::update_poll_wait() {
  const Duration wait = options_.poll_wait(hearings_.size());
  if (wait >= wait_ || timers_.now() >= wait_until_) wait_ = wait;
  if (silence() <= options_.silence_for(logged_wait_)) return;
  logged_wait_ = wait_;
  log_info("polling agents less often because there are many, and extending their silence limit",
           {{"agents", hearings_.size()},
            {"pollSeconds", to_seconds(wait_)},
            {"silenceSeconds", to_seconds(silence())}});
}

void AgentWatchers::drop(Agent& agent) {
  agent.is_dropped = true;
  if (agent.timer) timers_.cancel(*agent.timer);
  report_bytes_[agent.job] -= std::exchange(agent.report_bytes, 0);
  if (--agent.node->second.agents == 0) nodes_.erase(agent.node);
  // The last one takes its place.
  hearings_[agent.hearing] = hearings_.back();
  hearings_[agent.hearing].agent->hearing = agent.hearing;
  hearings_.pop_back();
  agents_.forget(agent.address);
}

void AgentWatchers::drop_unwanted(Job& job) {
  for (auto it = job.agents.begin(); it != job.agents.end();) {
    if (it->second->wanted_by == job.plans) {
      ++it;
      continue;
    }
    drop(*it->second);
    job.views.erase(it->first);
    it = job.agents.erase(it);
  }
}

void AgentWatchers::set_targets(const std::string& job, const std::vector<std::string>& tokens,
                                const std::vector<plan::AgentTarget>& targets) {
  Job& known = jobs_[job];
  auto& agents = known.agents;
  ++known.plans;
  for (const plan::AgentTarget& target : targets) {
    const auto found = agents.find(target.pod_uid);
    if (found != agents.end()) {
      found->second->wanted_by = known.plans;
      continue;
    }
    auto agent = std::make_shared<Agent>(Agent{.job = job,
                                               .target = target,
                                               .address = address_of(target, tokens),
                                               .node = nodes_.try_emplace(target.node).first,
                                               .view = known.views[target.pod_uid],
                                               .hearing = hearings_.size(),
                                               .retry = Retry(options_.retry, random_),
                                               .timer = {},
                                               .wanted_by = known.plans});
    ++agent->node->second.agents;
    hearings_.push_back({.agent = agent.get(), .node = &agent->node->second});
    set_last_heard(*agent, timers_.now());
    agents[target.pod_uid] = agent;
    poll(agent);
  }
  if (agents.size() > targets.size()) drop_unwanted(known);
  if (!agents.empty()) return;
  jobs_.erase(job);
  report_bytes_.erase(job);
}

AgentWatchers::Views AgentWatchers::views(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? Views{} : found->second.views;
}

void AgentWatchers::swap_views(const std::string& job, Views& views) {
  const auto found = jobs_.find(job);
  if (found != jobs_.end()) found->second.views.swap(views);
}

void AgentWatchers::poll(const std::shared_ptr<Agent>& agent) {
  const int64_t since = agent->view.state ? agent->view.state->sequence : 0;
  // After a failure the agent only has to show in time that it is alive. One that was never heard
  // has something to say.
  const bool is_short = !agent->view.error.empty() || !agent->view.state;
  const Duration wait = is_short ? Duration::zero() : options_.poll_wait(hearings_.size());
  if (wait >= wait_) {
    wait_ = wait;
    wait_until_ = timers_.now() + silence();
  }
  // A random part of it, so that the answers of agents that were first asked together spread.
  const Duration progress = from_seconds(to_seconds(options_.progress_wait(hearings_.size())) *
                                         (1 + random_.uniform()) / 2);
  agents_.poll_state(agent->address,
                     {.since = since, .wait = wait, .progress_after = std::min(wait, progress)},
                     [this, agent, since](Result<AgentState> answer) {
                       if (!agent->is_dropped) on_answer(agent, since, answer);
                     });
}

void AgentWatchers::on_answer(const std::shared_ptr<Agent>& agent, int64_t since,
                              const Result<AgentState>& answer) {
  if (const std::string other = answer.ok() ? other_pod_in(*answer, agent->target) : "";
      !other.empty()) {
    return on_answer(agent, since, unavailable(other));
  }
  if (answer.ok()) {
    hear(*agent, since, *answer);
    // Its sequence is unknown, or its last one was not kept, so it always answers immediately.
    if (!is_served(answer->protocol) || agent->view.reports_too_much) {
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
  poll_after(agent, delay_after_failure(*agent, answer.error()));
}

// An agent that is not heard is asked often enough to leave several requests before it is too late.
// An agent that only refuses to talk is asked less and less.
Duration AgentWatchers::delay_after_failure(Agent& agent, const Error& error) {
  const Duration delay = agent.retry.next(timers_.now());
  return error.code == Code::kNotFound ? delay
                                       : std::min(delay, options_.poll_wait(hearings_.size()) / 3);
}

void AgentWatchers::fail_to_hear(Agent& agent, const Error& error) {
  constexpr size_t kErrorBytesMax = 256;
  plan::AgentView& view = agent.view;
  const bool is_first = view.error.empty();
  view.error = utf8_head(clean_utf8(error.message), kErrorBytesMax);
  // From now on it counts what other agents say of this one.
  if (is_first && !view.state) on_change_(agent.job, Urgency::kRoutine);
  // An agent keeps its token. If it has answered before, somebody else refuses in its place.
  const bool refuses = error.code == Code::kNotFound && !view.state;
  if (refuses) note_heard(agent);
  if (std::exchange(view.refuses_token, refuses) != refuses) {
    on_change_(agent.job, Urgency::kRoutine);
  }
}

void AgentWatchers::set_last_heard(Agent& agent, TimePoint at) {
  agent.view.last_heard = hearings_[agent.hearing].at = at;
}

void AgentWatchers::note_heard(Agent& agent) {
  suspect_own_network();  // as it is without this answer
  set_last_heard(agent, timers_.now());
  hearings_[agent.hearing].was_heard = true;
  hearings_[agent.hearing].is_excluded = false;
}

void AgentWatchers::poll_after(const std::shared_ptr<Agent>& agent, Duration delay) {
  if (agent->is_dropped) return;
  agent->timer = timers_.after(delay, [this, agent] {
    agent->timer.reset();
    poll(agent);
  });
}

void AgentWatchers::hear(Agent& agent, int64_t since, const AgentState& state) {
  note_heard(agent);
  agent.view.error.clear();
  if (std::exchange(agent.view.refuses_token, false)) on_change_(agent.job, Urgency::kRoutine);
  if (agent.view.state && !is_news(state, *agent.view.state, since)) return;
  const std::shared_ptr<const AgentState> before = agent.view.state;
  if (!keep(agent, state)) return;
  agent.view.state_at = timers_.now();
  const bool is_progress = before && is_mere_progress(*before, state);
  on_change_(agent.job, state.failed_seconds_ago > 0 ? Urgency::kUrgent
                        : is_progress                ? Urgency::kProgress
                                                     : Urgency::kRoutine);
}

// Keeps the report; without its log tails if all of it would be too much. Returns false if even so
// the job would take more memory than it may: its earlier report stays.
bool AgentWatchers::keep(Agent& agent, const AgentState& report) {
  size_t& job_bytes = report_bytes_[agent.job];
  const size_t others = job_bytes - agent.report_bytes;
  auto kept = std::make_shared<AgentState>(report);
  size_t bytes = memory_of(*kept);
  if (others + bytes > options_.report_bytes_max) {
    // An assignment would keep the memory.
    for (WorkerState& worker : kept->workers) std::string().swap(worker.log_tail);
    bytes = memory_of(*kept);
  }
  const bool is_too_much = others + bytes > options_.report_bytes_max;
  if (std::exchange(agent.view.reports_too_much, is_too_much) != is_too_much) {
    on_change_(agent.job, Urgency::kRoutine);
  }
  if (is_too_much) return false;
  agent.view.state = std::move(kept);
  agent.report_bytes = bytes;
  job_bytes = others + bytes;
  return true;
}

void AgentWatchers::learn(const std::string& job, const std::string& pod_uid,
                          const AgentState& state) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  const auto agent = found->second.agents.find(pod_uid);
  if (agent == found->second.agents.end()) return;
  if (other_pod_in(state, agent->second->target).empty()) hear(*agent->second, 0, state);
}

// While the own network is suspected, only agents that are heard end that, however few are left.
TimePoint AgentWatchers::when_most_were_heard() {
  const TimePoint if_unknown = suspects_own_network_ ? TimePoint::min() : TimePoint::max();
  const TimePoint recently = timers_.now() - silence() / 2;
  ++counts_;
  std::vector<TimePoint> of_agents;  // while all are on one node
  std::vector<Node*> nodes;
  for (const Hearing& each : hearings_) {
    const bool is_new = !each.was_heard && each.at > recently;
    if (each.is_excluded || is_new) continue;
    const TimePoint heard = each.was_heard ? each.at : TimePoint::min();
    Node& node = *each.node;
    if (std::exchange(node.count, counts_) != counts_) {
      nodes.push_back(&node);
      node.heard = heard;
    }
    node.heard = std::max(node.heard, heard);
    if (nodes.size() <= 1) of_agents.push_back(heard);
  }
  if (nodes.size() <= 1) {
    const size_t silent_min = suspects_own_network_ ? 1 : options_.silent_min;
    return since_when(of_agents, silent_min).value_or(if_unknown);
  }
  std::vector<TimePoint> of_nodes;
  for (const Node* node : nodes) of_nodes.push_back(node->heard);
  return since_when(of_nodes, 1).value_or(if_unknown);
}

bool AgentWatchers::suspect_own_network() {
  if (!suspects_own_network_ && most_heard_at_ < timers_.now() - silence() / 2) update_suspicion();
  return suspects_own_network_;
}

void AgentWatchers::update_suspicion() {
  const TimePoint now = timers_.now();
  const bool did = suspects_own_network_;
  most_heard_at_ = when_most_were_heard();
  if (most_heard_at_ < now - silence() / 2) {
    suspects_own_network_ = true;
    heard_again_at_.reset();
  } else if (suspects_own_network_) {
    if (!heard_again_at_) heard_again_at_ = now;
    suspects_own_network_ = now - *heard_again_at_ < silence();
    if (!suspects_own_network_) heard_again_at_.reset();
  }
  if (suspects_own_network_ && !did)
    log_warning(
        "most agents are silent; suspecting the controller's own network and keeping their pods");
  if (did && !suspects_own_network_)
    log_info("most agents answer again; trusting the controller's own network");
}

// An agent whose silence is its own says nothing about the controller until it is heard again.
void AgentWatchers::exclude_silent_agents() {
  if (suspects_own_network_) return;
  const TimePoint too_long_ago = timers_.now() - silence();
  for (Hearing& each : hearings_) {
    if (each.at <= too_long_ago) each.is_excluded = true;
  }
}

}  // namespace lockstep::loop
