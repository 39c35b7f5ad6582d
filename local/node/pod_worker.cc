#include "local/node/pod_worker.h"

#include <algorithm>

#include "common/api/agent_messages.h"
#include "local/node/fields.h"
#include "local/store/storage.h"

namespace lockstep::local {
namespace {

constexpr char kGpuResource[] = "nvidia.com/gpu";
constexpr char kMemoryWarning[] =
    "resources.limits.memory has no effect: a local node can't limit memory";

ObjectReader reader_of(ApiCaller& api, const std::string& namespace_) {
  return [&api, namespace_](const std::string& plural,
                            const std::string& name) -> std::optional<Json> {
    ApiResponse found = api.get("/api/v1/namespaces/" + namespace_ + "/" + plural + "/" + name);
    if (!found.ok()) return std::nullopt;
    return std::move(found.body);
  };
}

bool limits_memory(const PodPlan& plan) {
  return std::any_of(
      plan.containers.begin(), plan.containers.end(),
      [](const ContainerPlan& container) { return container.limits.contains("memory"); });
}

}  // namespace

PodWorker::PodWorker(NodeContext& context, const MachineOptions& machine,
                     const Resources& allocatable, const Json& pod)
    : context_(context), started_(context.clock.wall_now()) {
  const Json& metadata = metadata_of(pod);
  pod_.object = pod;
  pod_.facts = {
      .node_name = machine.name, .host_address = machine.address, .allocatable = allocatable};
  pod_.cpus = machine.cpus;
  pod_.source = {"kubelet", machine.name};
  pod_.plan.namespace_ = string_or(metadata, "namespace", "");
  pod_.plan.name = string_or(metadata, "name", "");
  pod_.plan.uid = uid_of(pod);
  pod_.folder = context.options.folder + "/" + pod_.plan.name + "-" + pod_.plan.uid.substr(0, 8);
  pod_.read = reader_of(context.api, pod_.plan.namespace_);
  if (!admit()) return;
  recover(object_of(pod, "status"));
  changed(pod);
}

PodWorker::~PodWorker() {
  if (!pod_.facts.pod_address.empty()) context_.addresses.give_back(pod_.facts.pod_address);
  for (const auto& [container, gpus] : pod_.gpus) context_.gpus.give_back(machine(), gpus);
  if (!folder_.path().empty()) folder_.remove();
}

bool PodWorker::admit() {
  Result<PodPlan> plan = plan_pod(pod_.object);
  if (!plan.ok()) {
    fail("NotSupported", plan.error().message);
    return false;
  }
  pod_.plan = *std::move(plan);
  planned_ = true;
  for (const ContainerPlan& container : pod_.plan.init_containers)
    init_.emplace_back(context_, pod_, container, true);
  for (const ContainerPlan& container : pod_.plan.containers)
    runs_.emplace_back(context_, pod_, container, false);
  return true;
}

void PodWorker::recover(const Json& status) {
  Result<WallTime> started = wall_time_from_rfc3339(string_or(status, "startTime", ""));
  if (started.ok()) started_ = *started;
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    std::vector<ContainerRun>& runs = list[0] == 'i' ? init_ : runs_;
    for (const Json& container : array_of(status, list)) {
      for (ContainerRun& run : runs) {
        if (run.record().name == string_or(container, "name", "")) run.recover(container);
      }
    }
  }
  if (pod_.plan.active_deadline_seconds)
    deadline_ = context_.clock.now() + std::chrono::seconds(*pod_.plan.active_deadline_seconds) -
                (context_.clock.wall_now() - started_);
}

void PodWorker::changed(const Json& pod) {
  pod_.object = pod;
  if (!is_deleting(pod)) return;
  int64_t grace = int_or(metadata_of(pod), "deletionGracePeriodSeconds", 0);
  stop(std::chrono::seconds(std::clamp<int64_t>(grace, 0, 86400)));
}

void PodWorker::on_message(const NodeMessage& message) {
  bool known = false;
  each([&](ContainerRun& run) { known = known || run.on_message(message); });
}

void PodWorker::fail(const std::string& reason, const std::string& message) {
  if (failure_reason_.empty()) {
    failure_reason_ = reason;
    failure_message_ = message;
  }
  stop(std::chrono::seconds(pod_.plan.grace_seconds));
}

void PodWorker::stop(Duration grace) {
  stopping_ = true;
  each([&](ContainerRun& run) { run.stop(grace); });
}

void PodWorker::gone() {
  gone_ = true;
  stop({});
}

void PodWorker::kill_now() {
  gone_ = true;
  stopping_ = true;
  each([](ContainerRun& run) { run.kill_now(); });
}

bool PodWorker::prepare(TimePoint now) {
  if (prepared_) return true;
  if (now < retry_at_) return false;
  if (pod_.facts.pod_address.empty()) {
    std::vector<uint16_t> ports = pod_.plan.ports;
    ports.push_back(static_cast<uint16_t>(kAgentPort));
    Result<std::string> address = context_.addresses.take(ports);
    if (!address.ok()) {
      fail(kNoAddressReason, address.error().message);
      return false;
    }
    pod_.facts.pod_address = *std::move(address);
  }
  if (!take_gpus(now)) return false;
  folder_ = PodFolder(pod_.folder);
  Status made = folder_.make({pod_.object, pod_.plan, pod_.facts, pod_.read});
  if (made.ok()) {
    if (limits_memory(pod_.plan))
      context_.events.warning(pod_.source, pod_.about(), "MemoryLimitIgnored", kMemoryWarning);
    return prepared_ = true;
  }
  const Error& error = made.error();
  if (error.code == Code::kNotFound) {
    context_.events.warning(pod_.source, pod_.about(), "FailedMount", error.message);
    retry_at_ = now + context_.options.retry;
    return false;
  }
  fail(error.code == Code::kInvalid ? "NotSupported" : "NodeFailure", error.message);
  return false;
}

bool PodWorker::take_gpus(TimePoint now) {
  for (const ContainerPlan& container : pod_.plan.containers) {
    const auto limit = container.limits.find(kGpuResource);
    if (limit == container.limits.end() || pod_.gpus.contains(container.name)) continue;
    const int64_t wanted = limit->second / 1000;
    const int64_t total = context_.gpus.total(machine());
    if (wanted > total) {
      fail("UnexpectedAdmissionError",
           "Allocate failed due to requested number of devices unavailable for " +
               std::string(kGpuResource) + ". Requested: " + std::to_string(wanted) +
               ", Available: " + std::to_string(total) + ", which is unexpected");
      return false;
    }
    std::optional<Gpus> gpus = context_.gpus.take(machine(), wanted);
    if (!gpus) {
      context_.events.warning(pod_.source, pod_.about(), "GpusInUse",
                              "waiting for GPUs that other pods of this machine use");
      retry_at_ = now + context_.options.retry;
      return false;
    }
    pod_.gpus[container.name] = *std::move(gpus);
  }
  return true;
}

void PodWorker::step_containers(TimePoint now) {
  bool initialized = true;
  for (ContainerRun& run : init_) {
    run.step(now, initialized && !stopping_);
    initialized = initialized && run.has_succeeded();
    if (run.is_over() && !run.has_succeeded() && !stopping_) stop({});  // restartPolicy: Never
  }
  for (ContainerRun& run : runs_) run.step(now, initialized && !stopping_);
  each([&](ContainerRun& run) {
    if (!run.refusal().empty() && failure_reason_.empty()) fail("NotSupported", run.refusal());
  });
}

void PodWorker::step(TimePoint now) {
  if (done_) return;
  if (now >= deadline_ && !stopping_)
    fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");
  bool ready = stopping_ || prepare(now);
  if (ready || stopping_) step_containers(now);
  bool all_reported = gone_ || report(now);
  if (all_reported && !is_active() && (stopping_ || is_over())) done_ = finish(now);
}

bool PodWorker::is_active() const {
  auto active = [](const ContainerRun& run) { return run.is_active(); };
  return std::any_of(init_.begin(), init_.end(), active) ||
         std::any_of(runs_.begin(), runs_.end(), active);
}

bool PodWorker::is_over() const {
  return std::all_of(runs_.begin(), runs_.end(),
                     [](const ContainerRun& run) { return run.is_over(); });
}

bool PodWorker::was_accepted(const ApiResponse& answer, TimePoint now) {
  bool is_refused_for_now = answer.code == 429 || answer.code >= 500;
  retry_report_at_ = is_refused_for_now ? now + context_.options.retry : TimePoint::max();
  return !is_refused_for_now;
}

bool PodWorker::finish(TimePoint now) {
  if (gone_ || !is_deleting(pod_.object)) return true;
  return was_accepted(
      context_.api.remove(pod_target(pod_.object),
                          {{"gracePeriodSeconds", 0}, {"preconditions", {{"uid", pod_.plan.uid}}}}),
      now);
}

PodRecord PodWorker::record() const {
  PodRecord record{.restart_policy = pod_.plan.restart_policy,
                   .address = pod_.facts.pod_address,
                   .host_address = pod_.facts.host_address,
                   .started = started_,
                   .failure_reason = failure_reason_,
                   .failure_message = failure_message_};
  for (const ContainerRun& run : init_) record.init_containers.push_back(run.record());
  for (const ContainerRun& run : runs_) record.containers.push_back(run.record());
  return record;
}

bool PodWorker::report(TimePoint now) {
  Json status;
  if (planned_) {
    PodRecord latest = record();
    // A stopped container has ended, whatever its restart policy: nothing restarts it.
    if (stopping_ && !is_active()) latest.restart_policy = RestartPolicy::kNever;
    const Json& present = array_of(object_of(pod_.object, "status"), "conditions");
    status = pod_status(latest, conditions_.update(latest, present, context_.clock.wall_now()));
  } else {
    status = {{"phase", "Failed"}, {"reason", failure_reason_}, {"message", failure_message_}};
  }
  if (status == reported_) {
    retry_report_at_ = TimePoint::max();
    return true;
  }
  if (retry_report_at_ != TimePoint::max() && now < retry_report_at_) return false;
  ApiResponse answer =
      context_.api.patch(pod_target(pod_.object, "/status"),
                         {{"metadata", {{"uid", pod_.plan.uid}}}, {"status", status}});
  if (!was_accepted(answer, now)) return false;
  reported_ = std::move(status);
  return true;
}

TimePoint PodWorker::next_deadline() const {
  if (done_) return TimePoint::min();
  TimePoint next = stopping_ ? retry_report_at_ : std::min(deadline_, retry_report_at_);
  if (!prepared_ && !stopping_) return std::min(next, retry_at_);
  bool initialized = true;
  for (const ContainerRun& run : init_) {
    if (initialized || run.is_active()) next = std::min(next, run.next_deadline());
    initialized = initialized && run.has_succeeded();
  }
  for (const ContainerRun& run : runs_) {
    if (initialized || run.is_active()) next = std::min(next, run.next_deadline());
  }
  return next;
}

}  // namespace lockstep::local
