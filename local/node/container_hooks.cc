// The part of ContainerRun that runs hooks and probes next to the container.
#include <signal.h>

#include <algorithm>

#include "local/node/container_run.h"

namespace lockstep::local {

uint64_t ContainerRun::launch(const std::vector<std::string>& command, Purpose purpose,
                              TimePoint deadline) {
  uint64_t run = ++context_->runs;
  hooks_.push_back({.run = run, .purpose = purpose, .deadline = deadline});
  post_on_exit(spawn_spec(command), run);
  return run;
}

uint64_t ContainerRun::launch_probe(const ProbePlan& plan) {
  if (plan.kind == ProbePlan::Kind::kExec)
    return launch(plan.command, Purpose::kProbe, context_->clock.now() + plan.timeout);
  uint64_t run = ++context_->runs;
  NetworkProbe probe{.address = plan.host.empty() ? pod_->facts.pod_address : plan.host,
                     .port = plan.port,
                     .timeout = plan.timeout};
  if (plan.kind == ProbePlan::Kind::kHttp)
    probe.request =
        http_get_text(plan.path, probe.address + ":" + std::to_string(plan.port), plan.headers);
  context_->prober.probe(std::move(probe), [post = context_->post, uid = pod_->plan.uid, run](
                                               bool ok, const std::string& text) {
    post({.pod_uid = uid, .run = run, .kind = NodeMessage::Kind::kProbed, .ok = ok, .text = text});
  });
  return run;
}

bool ContainerRun::on_hook_message(const NodeMessage& message) {
  if (message.kind == NodeMessage::Kind::kProbed) {
    if (!probes_.knows(message.run)) return false;
    probe_result(message.run, message.ok, message.text);
    return true;
  }
  auto hook = std::find_if(hooks_.begin(), hooks_.end(),
                           [&](const Hook& known) { return known.run == message.run; });
  if (hook == hooks_.end()) return false;
  if (message.kind == NodeMessage::Kind::kStarted && message.pid.ok()) {
    hook->pid = *message.pid;
    return true;
  }
  Hook done = *hook;
  hooks_.erase(hook);
  bool started = message.kind == NodeMessage::Kind::kExited;
  bool ok = started && message.exit.code == 0 && !done.timed_out;
  std::string text = !started         ? message.pid.error().message
                     : done.timed_out ? "command timed out"
                                      : "command exited with " + std::to_string(message.exit.code);
  hook_done(done.purpose, done.run, ok, text);
  return true;
}

void ContainerRun::hook_done(Purpose purpose, uint64_t run, bool ok, const std::string& text) {
  auto about = pod_->about("spec.containers{" + plan_->name + "}");
  switch (purpose) {
    case Purpose::kProbe:
      return probe_result(run, ok, text);
    case Purpose::kPostStart:
      if (stage_ != Stage::kPostStart) return;
      if (ok) return enter_running();
      context_->events.warning(pod_->source, about, "FailedPostStartHook",
                               "PostStartHook failed: " + text);
      return kill_for_restart("failed its postStart hook", std::nullopt);
    case Purpose::kPreStop:
      if (!ok)
        context_->events.warning(pod_->source, about, "FailedPreStopHook",
                                 "PreStopHook failed: " + text);
      if (stage_ != Stage::kStopping || sigterm_sent_) return;
      sigterm_sent_ = true;
      // Signals only the main process, as a container runtime does; that process handles the rest.
      if (pid_ > 0) kill(pid_, SIGTERM);
      return;
  }
}

void ContainerRun::probe_result(uint64_t run, bool ok, const std::string& text) {
  std::optional<Probes::Failure> failure = probes_.on_result(run, ok, text, context_->clock.now());
  if (!failure || stage_ != Stage::kRunning) return;
  std::string name(probe_name(failure->kind));
  context_->events.warning(pod_->source, pod_->about("spec.containers{" + plan_->name + "}"),
                           "Unhealthy", name + " probe failed: " + failure->text);
  if (!failure->is_last) return;
  name[0] = static_cast<char>(name[0] - 'A' + 'a');
  kill_for_restart("failed " + name + " probe, will be restarted", failure->grace_seconds);
}

}  // namespace lockstep::local
