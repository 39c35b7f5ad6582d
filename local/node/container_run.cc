#include "local/node/container_run.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "local/node/fields.h"
#include "local/node/files.h"
#include "local/node/program.h"

namespace lockstep::local {
namespace {

using State = ContainerRecord::State;

// Source: Kubernetes, "Determine the Reason for Pod Failure".
constexpr size_t kMessageBytesMax = 4096;
constexpr size_t kLogMessageBytesMax = 2048;
constexpr int kStartErrorCode = 128;

std::vector<std::string> with_assignments(const Environment& environment) {
  return merged_environment(environment);
}

}  // namespace

EventRecorder::About PodContext::about(const std::string& container) const {
  return {.kind = "Pod",
          .namespace_ = plan.namespace_,
          .name = plan.name,
          .uid = plan.uid,
          .field_path = container};
}

ContainerRun::ContainerRun(NodeContext& context, const PodContext& pod, const ContainerPlan& plan,
                           bool is_init)
    : context_(&context),
      pod_(&pod),
      plan_(&plan),
      is_init_(is_init),
      policy_(pod.plan.restart_policy),
      root_(pod.folder + "/" + plan.name) {
  if (is_init && policy_ == RestartPolicy::kAlways) policy_ = RestartPolicy::kOnFailure;
  record_.name = plan.name;
  record_.image = plan.image;
  if (!pod.plan.init_containers.empty()) record_.waiting_reason = "PodInitializing";
}

void ContainerRun::recover(const Json& status) {
  if (!read_back(status, record_) || !record_.end) return;
  bool had_ended = find_member(object_of(status, "state"), "terminated") != nullptr;
  if (!had_ended) record_.end->finished = context_->clock.wall_now();
  bool again = had_ended && is_init_ ? record_.end->exit_code != 0 : true;
  stage_ = Stage::kEnded;
  if (again && wants_restart(record_.end->exit_code)) back_off(context_->clock.now());
}

void ContainerRun::wait_with(const std::string& reason, const std::string& message) {
  record_.state = State::kWaiting;
  record_.waiting_reason = reason;
  record_.waiting_message = message;
}

Result<Environment> ContainerRun::environment() const {
  TRY_ASSIGN(Environment environment,
             container_environment({pod_->object, pod_->plan, pod_->facts, pod_->read}, *plan_));
  environment.emplace_back("LOCKSTEP_POD_ROOT", root_);
  environment.emplace_back("HOSTNAME", pod_->plan.name);
  environment.emplace_back(kContainerVariable, marker());
  if (const auto given = pod_->gpus.find(plan_->name); given != pod_->gpus.end()) {
    const std::string gpus = gpus_text(given->second);
    for (const char* variable : {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"})
      environment.emplace_back(variable, gpus);
  }
  return environment;
}

std::string ContainerRun::marker() const {
  return std::to_string(run_) + "-" + pod_->plan.uid + "-" + plan_->name;
}

SpawnSpec ContainerRun::spawn_spec(const std::vector<std::string>& command) const {
  SpawnSpec spec;
  spec.program = find_program(command[0], context_->options.program_folder);
  spec.arguments = command;
  spec.environment = with_assignments(environment_);
  spec.working_folder =
      plan_->working_folder.empty() ? context_->options.working_folder : plan_->working_folder;
  if (spec.working_folder.empty()) spec.working_folder = root_;
  spec.output_file = "/dev/null";
  spec.cpus = pod_->cpus;
  return spec;
}

void ContainerRun::post_on_exit(SpawnSpec spec, uint64_t run) {
  auto post = context_->post;
  const std::string uid = pod_->plan.uid;
  context_->host.spawn_later(
      std::move(spec),
      [post, uid, run](Result<pid_t> pid) {
        post({.pod_uid = uid,
              .run = run,
              .kind = NodeMessage::Kind::kStarted,
              .pid = std::move(pid)});
      },
      [post, uid, run](ExitStatus status) {
        post({.pod_uid = uid, .run = run, .kind = NodeMessage::Kind::kExited, .exit = status});
      });
}

void ContainerRun::start(TimePoint now) {
  run_ = ++context_->runs;
  Result<Environment> resolved = environment();
  if (!resolved.ok() && resolved.error().code == Code::kNotFound) {
    const std::string& message = resolved.error().message;
    if (record_.waiting_reason != "CreateContainerConfigError")
      context_->events.warning(pod_->source, pod_->about("spec.containers{" + plan_->name + "}"),
                               "Failed", "Error: " + message);
    wait_with("CreateContainerConfigError", message);
    start_at_ = now + context_->options.retry;
    return;
  }
  if (!resolved.ok()) {
    refusal_ = resolved.error().message;
    return;
  }
  environment_ = *std::move(resolved);
  Result<std::string> file =
      context_->logs.next_file({pod_->plan.namespace_, pod_->plan.name, pod_->plan.uid, plan_->name,
                                pod_->plan.containers.size() == 1 && !is_init_});
  exit_.reset();
  pid_ = -1;
  sigterm_sent_ = false;
  kill_at_ = TimePoint::max();
  unlink((root_ + plan_->termination_message_path).c_str());
  if (!file.ok()) return started(file.error());
  log_file_ = *file;
  stage_ = Stage::kStarting;
  std::vector<std::string> command;
  for (const std::string& word : plan_->command) command.push_back(expand(word, environment_));
  SpawnSpec spec = spawn_spec(command);
  spec.output_file = log_file_;
  post_on_exit(std::move(spec), run_);
}

void ContainerRun::started(const Result<pid_t>& pid) {
  auto about = pod_->about("spec.containers{" + plan_->name + "}");
  WallTime now = context_->clock.wall_now();
  if (!pid.ok()) {
    if (!stopping_)
      context_->events.warning(pod_->source, about, "Failed", "Error: " + pid.error().message);
    return ended({.exit_code = kStartErrorCode,
                  .reason = "StartError",
                  .message = pid.error().message,
                  .started = now,
                  .finished = now});
  }
  pid_ = *pid;
  record_.started = now;
  record_.container_id = "process://" + std::to_string(pid_);
  running_since_ = context_->clock.now();
  if (!is_silent_)
    context_->events.normal(pod_->source, about, "Started", "Started container " + plan_->name);
  if (plan_->post_start.empty() || stopping_) {
    enter_running();
  } else {
    stage_ = Stage::kPostStart;
    launch(plan_->post_start, Purpose::kPostStart, TimePoint::max());
  }
  if (exit_) exited(*exit_);
}

// The container is up: its probes begin.
void ContainerRun::enter_running() {
  stage_ = Stage::kRunning;
  record_.state = State::kRunning;
  probes_.begin(*plan_, context_->clock.now());
  if (stopping_) begin_stop();
}

bool ContainerRun::on_message(const NodeMessage& message) {
  if (message.run != run_ || message.kind == NodeMessage::Kind::kProbed)
    return on_hook_message(message);
  switch (message.kind) {
    case NodeMessage::Kind::kStarted:
      started(message.pid);
      break;
    case NodeMessage::Kind::kExited:
      exit_ = message.exit;
      if (stage_ != Stage::kStarting) exited(message.exit);
      break;
    default:
      if (stage_ == Stage::kSweeping && exit_)
        ended({.exit_code = exit_->code,
               .signal = exit_->signal,
               .reason = exit_->code == 0 ? "Completed" : "Error",
               .message = termination_message(exit_->code),
               .started = record_.started,
               .finished = context_->clock.wall_now()});
      break;
  }
  return true;
}

// When the main process exits, all its descendants are killed.
void ContainerRun::exited(const ExitStatus&) {
  if (stage_ == Stage::kSweeping || stage_ == Stage::kEnded) return;
  stage_ = Stage::kSweeping;
  record_.ready = false;
  probes_.end();
  hooks_.clear();
  context_->sweeper.sweep(marker(), [post = context_->post, uid = pod_->plan.uid, run = run_] {
    post({.pod_uid = uid, .run = run, .kind = NodeMessage::Kind::kSwept});
  });
}

std::string ContainerRun::termination_message(int exit_code) const {
  std::string message = end_of_file(root_ + plan_->termination_message_path, kMessageBytesMax);
  if (message.empty() && exit_code != 0 && plan_->message_falls_back_to_log)
    message = end_of_file(log_file_, kLogMessageBytesMax);
  return message;
}

void ContainerRun::ended(EndFacts end) {
  context_->logs.ended(log_file_);
  end.container_id = record_.container_id;
  record_.state = State::kTerminated;
  record_.ready = false;
  record_.passed_startup = false;
  record_.end = std::move(end);
  stage_ = Stage::kEnded;
  pid_ = -1;
  if (!stopping_ && wants_restart(record_.end->exit_code)) back_off(context_->clock.now());
}

bool ContainerRun::wants_restart(int exit_code) const {
  if (policy_ == RestartPolicy::kNever) return false;
  return policy_ == RestartPolicy::kAlways || exit_code != 0;
}

// The first restart is immediate, the second after backoff_first; then the wait doubles each time.
// Source: Kubernetes, "Pod Lifecycle", container restart policy; kuberuntime_manager.go, doBackOff.
void ContainerRun::back_off(TimePoint now) {
  const PodOptions& options = context_->options;
  if (now - running_since_ > 2 * options.backoff_max) failures_in_a_row_ = 0;
  Duration wait{};
  for (int64_t i = 0; i < failures_in_a_row_ && wait < options.backoff_max; ++i)
    wait = std::min(wait == Duration{} ? options.backoff_first : 2 * wait, options.backoff_max);
  ++failures_in_a_row_;
  stage_ = Stage::kIdle;
  start_at_ = now + wait;
  if (wait == Duration{}) return;
  record_.last = record_.end;
  std::string who = plan_->name + " in pod " + pod_->plan.name + "_" + pod_->plan.namespace_ + "(" +
                    pod_->plan.uid + ")";
  wait_with("CrashLoopBackOff",
            "back-off " + std::to_string(static_cast<int64_t>(to_seconds(wait))) +
                "s restarting failed container=" + plan_->name + " pod=" + pod_->plan.name + "_" +
                pod_->plan.namespace_ + "(" + pod_->plan.uid + ")");
  context_->events.warning(pod_->source, pod_->about("spec.containers{" + plan_->name + "}"),
                           "BackOff", "Back-off restarting failed container " + who);
}

void ContainerRun::step(TimePoint now, bool may_start) {
  if (stage_ == Stage::kIdle && stopping_) stage_ = Stage::kEnded;
  if (stage_ == Stage::kIdle && may_start && now >= start_at_ && refusal_.empty()) {
    if (record_.end) {
      record_.last = std::exchange(record_.end, std::nullopt);
      ++record_.restarts;
      wait_with("ContainerCreating", "");
    } else if (record_.waiting_reason == "PodInitializing") {
      wait_with("ContainerCreating", "");
    }
    start(now);
  }
  if (stage_ == Stage::kRunning)
    probes_.step(now, [this](const ProbePlan& plan) { return launch_probe(plan); });
  for (Hook& hook : hooks_) {
    if (hook.pid <= 0 || hook.timed_out || now < hook.deadline) continue;
    hook.timed_out = true;
    kill(-hook.pid, SIGKILL);
  }
  bool is_up = stage_ == Stage::kStopping || stage_ == Stage::kPostStart;
  if (is_up && now >= kill_at_ && pid_ > 0) {
    kill(-pid_, SIGKILL);
    kill_at_ = TimePoint::max();
  }
  record_.passed_startup = stage_ == Stage::kRunning && probes_.has_started();
  record_.ready = is_init_ ? has_succeeded() : stage_ == Stage::kRunning && probes_.is_ready();
}

void ContainerRun::stop(Duration grace) {
  stopping_ = true;
  if (stage_ == Stage::kIdle) stage_ = Stage::kEnded;
  kill_at_ = std::min(kill_at_, context_->clock.now() + grace);
  if (stage_ == Stage::kRunning) begin_stop();
}

void ContainerRun::begin_stop() {
  stage_ = Stage::kStopping;
  if (is_silent_) return;
  if (stopping_)
    context_->events.normal(pod_->source, pod_->about("spec.containers{" + plan_->name + "}"),
                            "Killing", "Stopping container " + plan_->name);
  if (plan_->pre_stop.empty()) return hook_done(Purpose::kPreStop, 0, true, "");
  launch(plan_->pre_stop, Purpose::kPreStop, kill_at_);
}

void ContainerRun::kill_for_restart(const std::string& why, std::optional<int64_t> grace_seconds) {
  context_->events.normal(pod_->source, pod_->about("spec.containers{" + plan_->name + "}"),
                          "Killing", "Container " + plan_->name + " " + why);
  int64_t seconds = grace_seconds.value_or(pod_->plan.grace_seconds);
  kill_at_ = std::min(kill_at_, context_->clock.now() + std::chrono::seconds(seconds));
  if (stage_ == Stage::kRunning || stage_ == Stage::kPostStart) begin_stop();
}

void ContainerRun::kill_now() {
  stopping_ = true;
  is_silent_ = true;
  sigterm_sent_ = true;
  kill_at_ = context_->clock.now();
  if (stage_ == Stage::kIdle) stage_ = Stage::kEnded;
  if (stage_ == Stage::kRunning) stage_ = Stage::kStopping;
  if (pid_ > 0) kill(-pid_, SIGKILL);
  for (const Hook& hook : hooks_) {
    if (hook.pid > 0) kill(-hook.pid, SIGKILL);
  }
}

TimePoint ContainerRun::next_deadline() const {
  TimePoint next = TimePoint::max();
  if (stage_ == Stage::kIdle && refusal_.empty()) next = start_at_;
  if (stage_ == Stage::kRunning) next = std::min(next, probes_.next_deadline());
  if (stage_ == Stage::kStopping || stage_ == Stage::kPostStart) next = std::min(next, kill_at_);
  for (const Hook& hook : hooks_) {
    if (hook.pid > 0 && !hook.timed_out) next = std::min(next, hook.deadline);
  }
  return next;
}

}  // namespace lockstep::local
