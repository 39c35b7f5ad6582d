#include "agent/node/agent.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "agent/node/files.h"
#include "agent/node/process.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/utf8.h"

namespace lockstep::node {
namespace {

using std::chrono::milliseconds;

// How often progress pages are read. Exits, requests and output wake the loop immediately.
constexpr milliseconds kProgressInterval(50);
// How often to look again for processes to kill: a fork may have escaped the last look.
constexpr milliseconds kClearInterval(10);
constexpr milliseconds kIdleInterval(60'000);
// Kubernetes keeps 4096 bytes of a termination message.
constexpr size_t kTerminationTailBytesMax = 1024;

std::string termination_message(const AgentState& state, const WorkerState* failure) {
  Json message = {{"phase", state.phase}, {"round", state.round}};
  if (failure != nullptr) {
    message["rank"] = failure->rank;
    message["exitCode"] = failure->exit_code;
    message["reason"] = failure->reason;
    message["log"] = utf8_tail(failure->log_tail, kTerminationTailBytesMax);
  }
  return dump_json(message);
}

}  // namespace

Agent::Agent(AgentSettings settings, const Clock& clock, Cgroup cgroup)
    : settings_(std::move(settings)),
      clock_(clock),
      output_(settings_.output_fd),
      workers_(settings_.launch, std::move(cgroup), &output_),
      machine_(settings_.identity, settings_.limits) {}

int Agent::run() {
  while (!quit_) {
    wait_for_events();
    handle_events();
    drive();
    answer_waiters(false);
    output_.flush();
  }
  workers_.clear();
  output_.flush();
  answer_waiters(true);
  return machine_.exit_code();
}

void Agent::wait_for_events() {
  std::vector<pollfd> polls = {{settings_.signal_fd, POLLIN, 0}, {calls_.fd(), POLLIN, 0}};
  if (output_.pending()) polls.push_back({output_.fd(), POLLOUT, 0});
  if (output_.has_room(clock_.now())) workers_.add_polls(polls);
  poll(polls.data(), polls.size(), wait_ms());
}

int Agent::wait_ms() const {
  const TimePoint now = clock_.now();
  TimePoint until = now + kIdleInterval;
  if (workers_.any_running()) until = now + kProgressInterval;
  if (machine_.killing_leftovers()) until = now + kClearInterval;
  if (const auto deadline = machine_.next_deadline()) until = std::min(until, *deadline);
  for (const Waiter& waiter : waiters_) {
    until = std::min(until, waiter.deadline);
    if (waiter.since != machine_.sequence()) until = std::min(until, waiter.progress_at);
  }
  const auto wait = std::chrono::ceil<milliseconds>(until - now);
  return static_cast<int>(std::max<int64_t>(wait.count(), 0));
}

void Agent::handle_events() {
  if (read_signals(settings_.signal_fd)) {
    log_info("received a termination signal");
    machine_.terminate(clock_.now());
  }
  workers_.read_output(clock_.now());
  workers_.send_views();
  reap();
  drive();
  calls_.run_all();
}

void Agent::drive() {
  while (true) {
    if (machine_.stopping() && !has_children()) machine_.all_processes_gone();
    const std::vector<Action> actions = machine_.step(clock_.now());
    for (const Action action : actions) carry_out(action);
    if (!actions.empty()) continue;
    if (!machine_.killing_leftovers() || quit_) break;
    clear_processes();
    if (machine_.killing_leftovers()) break;  // some are still exiting
  }
  report_result();
}

void Agent::carry_out(Action action) {
  switch (action) {
    case Action::kTerminate:
      return workers_.terminate();
    case Action::kKill:
      if (!machine_.clearing()) kill_descendants({});  // else clear_processes() follows
      return;
    case Action::kSpawn:
      return workers_.start(machine_, clock_.now());
    case Action::kGiveView:
      return workers_.give_view(machine_.assignment().servers_view);
    case Action::kQuit:
      quit_ = true;
  }
}

// Reads the progress pages after reaping and before reporting the exits, so that the machine sees a
// worker's last numbers before its exit.
void Agent::reap() {
  const bool is_in_grace =
      machine_.stopping() && machine_.has_assignment() && !machine_.assignment().train;
  const std::vector<ProcessEnd> ends =
      reap_children(is_in_grace ? std::set<pid_t>{} : workers_.leaders());
  workers_.read_progress(machine_, clock_.now(), clock_.wall_now());
  for (const ProcessEnd& end : ends) workers_.on_end(end, machine_, clock_.now());
  workers_.read_departures(machine_, clock_.now(), clock_.wall_now());
}

void Agent::clear_processes() {
  reap();
  if (machine_.lets_workers_leave(clock_.now()) && workers_.any_may_leave()) return;
  const std::set<pid_t> spared =
      machine_.clearing() ? workers_.survivors(machine_.assignment()) : std::set<pid_t>{};
  workers_.give_up_all_but(spared);
  if (has_descendants(spared)) {
    kill_descendants(spared);
  } else {
    machine_.all_processes_gone();
  }
}

// Writes the termination message. Kubernetes shows it for a pod that has ended, and it remains if
// the agent is killed.
void Agent::report_result() {
  if (settings_.termination_path.empty()) return;
  const AgentState state = machine_.state(clock_.now());
  if (state.phase != "Completed" && state.phase != "Failed" && state.phase != "Exiting") return;
  std::string message = termination_message(state, machine_.first_failure());
  if (message == reported_) return;
  reported_ = std::move(message);
  const Status written =
      overwrite_file(settings_.termination_path, reported_, settings_.create_termination);
  if (!written.ok() && written.error().code != Code::kNotFound) {
    log_warning("cannot write the termination message", {{"error", written.error().message}});
  }
}

void Agent::put_assignment(const Assignment& assignment, const StateCallback& respond) {
  const Status status = machine_.assign(assignment, clock_.now());
  if (!status.ok()) {
    log_warning("rejected an assignment", {{"error", status.error().message}});
    return respond(status.error());
  }
  drive();
  respond(machine_.state(clock_.now()));
}

void Agent::get_state(const StateWait& wait, StateCallback respond) {
  const TimePoint now = clock_.now();
  machine_.note_controller_contact(now);
  waiters_.push_back({.since = wait.since,
                      .progress_at = now + wait.progress_after,
                      .deadline = now + wait.timeout,
                      .respond = std::move(respond)});
}

// A sequence beyond ours is of an earlier agent.
bool Agent::is_due(const Waiter& waiter, TimePoint now) const {
  if (now >= waiter.deadline) return true;
  const bool is_behind = waiter.since < machine_.sequence_beyond_progress();
  if (is_behind || waiter.since > machine_.sequence()) return true;
  return now >= waiter.progress_at && waiter.since != machine_.sequence();
}

void Agent::answer_waiters(bool all) {
  const TimePoint now = clock_.now();
  const auto due = [&](const Waiter& waiter) { return all || is_due(waiter, now); };
  for (const Waiter& waiter : waiters_) {
    if (!due(waiter)) continue;
    machine_.note_controller_contact(now);  // the client has been listening until now
    machine_.note_told(machine_.sequence());
    waiter.respond(machine_.state(now));
  }
  std::erase_if(waiters_, due);
}

std::string Agent::metrics() {
  workers_.read_progress(machine_, clock_.now(), clock_.wall_now());
  MetricsInput input;
  input.job = settings_.job_name;
  input.node_index = settings_.identity.node_index;
  input.round = machine_.round();
  if (machine_.has_assignment()) input.job_namespace = machine_.assignment().job_namespace;
  workers_.describe(input);
  return render_metrics(input);
}

}  // namespace lockstep::node
