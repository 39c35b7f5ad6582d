#include "controller/monitor/metrics.h"

#include <map>

#include "common/metrics/exposition.h"
#include "common/metrics/process.h"
#include "controller/plan/conditions.h"

namespace lockstep::monitor {
namespace {

using Type = Exposition::Type;

constexpr char kController[] = "trainingjob";

double number(uint64_t value) {
  return static_cast<double>(value);
}

void add_queue(const loop::WorkQueue& queue, Exposition& out) {
  const loop::QueueMetrics& metrics = queue.metrics();
  const auto [unfinished, longest] = queue.unfinished_seconds();
  const MetricLabels name{{"name", kController}};
  const auto single = [&](const char* family, const char* help, Type type, double value) {
    out.family(family, help, type);
    out.add(value, name);
  };
  single("workqueue_depth", "Jobs that wait in the queue", Type::kGauge, number(queue.size()));
  single("workqueue_adds_total", "Times that a job was added to the queue", Type::kCounter,
         number(metrics.adds));
  single("workqueue_retries_total", "Times that a job was retried after an error", Type::kCounter,
         number(metrics.retries));
  single("workqueue_unfinished_work_seconds", "Seconds of all reconciles in progress", Type::kGauge,
         unfinished);
  single("workqueue_longest_running_processor_seconds",
         "Seconds of the longest reconcile in progress", Type::kGauge, longest);
  out.family("workqueue_queue_duration_seconds", "Seconds that jobs waited in the queue",
             Type::kHistogram);
  out.add(metrics.queue_seconds, name);
  out.family("workqueue_work_duration_seconds",
             "Seconds from the start of a reconcile to its last reply", Type::kHistogram);
  out.add(metrics.work_seconds, name);
}

void add_reconciles(const loop::Controller& controller, Exposition& out) {
  const loop::ReconcileMetrics& metrics = controller.reconcile_metrics();
  out.family("controller_runtime_reconcile_total", "Reconciles that have ended, by result",
             Type::kCounter);
  const auto result = [&](const char* name, uint64_t count) {
    out.add(number(count), {{"controller", kController}, {"result", name}});
  };
  result("success", metrics.successes);
  result("requeue", metrics.conflicts);
  result("error", metrics.errors);
  out.family("controller_runtime_reconcile_errors_total", "Reconciles that stopped at an error",
             Type::kCounter);
  out.add(number(metrics.errors), {{"controller", kController}});
  out.family("controller_runtime_reconcile_time_seconds",
             "Seconds from the start of a reconcile to its last reply", Type::kHistogram);
  out.add(controller.queue().metrics().work_seconds, {{"controller", kController}});
  out.family("controller_runtime_max_concurrent_reconciles",
             "Reconciles that may wait for the API server before only urgent ones are started",
             Type::kGauge);
  out.add(number(controller.plans_at_server_max()), {{"controller", kController}});
  out.family("controller_runtime_active_workers", "Reconciles in progress", Type::kGauge);
  out.add(number(controller.queue().working()), {{"controller", kController}});
}

void add_requests(const MetricsSources& sources, Exposition& out) {
  const std::string& host = sources.api_host;
  out.family("rest_client_requests_total", "Requests to the API server", Type::kCounter);
  for (const auto& [key, count] : sources.requests.requests) {
    const auto& [verb, code] = key;
    out.add(
        number(count),
        {{"code", code == 0 ? "<error>" : std::to_string(code)}, {"method", verb}, {"host", host}});
  }
  out.family("rest_client_request_duration_seconds",
             "Seconds from a request to the last byte of its reply", Type::kHistogram);
  for (const auto& [verb, seconds] : sources.requests.seconds) {
    out.add(seconds, {{"verb", verb}, {"host", host}});
  }
  out.family("rest_client_rate_limiter_duration_seconds",
             "Seconds that requests waited for the controller's own rate limit", Type::kHistogram);
  out.add(sources.requests.waited_seconds, {{"host", host}});
  out.single("lockstep_controller_requests_waiting",
             "Requests that wait for the controller's own rate limit", Type::kGauge,
             number(sources.requests_waiting));
}

void add_job_counts(const loop::Controller& controller, Exposition& out) {
  out.family("lockstep_trainingjobs", "TrainingJobs by namespace and state", Type::kGauge);
  for (const auto& [labels, count] : controller.job_counts()) {
    out.add(number(count), {{"namespace", labels.first}, {"state", labels.second}});
  }
}

void add_jobs(const loop::Controller& controller, Exposition& out) {
  const loop::JobMetrics& metrics = controller.job_metrics();
  add_job_counts(controller, out);
  out.family("lockstep_restarts_total", "Restarts of jobs, by the reason of the failure",
             Type::kCounter);
  for (const auto& [reason, count] : metrics.restarts()) {
    out.add(number(count), {{"reason", reason}});
  }
  out.family("lockstep_recovery_seconds",
             "Seconds of each part of a recovery, from the failure until all ranks train again",
             Type::kHistogram);
  for (size_t i = 0; i < plan::kRecoveryParts.size(); ++i) {
    out.add(metrics.part_seconds(i), {{"part", plan::kRecoveryParts[i].name}});
  }
  out.add(metrics.recompute_seconds(), {{"part", "recompute"}});
  out.family("lockstep_downtime_seconds", "Seconds from a failure until all ranks train again",
             Type::kHistogram);
  out.add(metrics.recovery_seconds());
  out.family("lockstep_time_to_ready_seconds",
             "Seconds from a job's creation, or the end of its suspension, until all its ranks "
             "first train",
             Type::kHistogram);
  out.add(metrics.ready_seconds());
}

void add_goodput(const MetricsSources& sources, Exposition& out) {
  out.family(
      "lockstep_goodput_ratio",
      "Share of the job's time spent on steps that were not repeated, since it first trained",
      Type::kGauge);
  sources.controller.visit_jobs([&](const TrainingJob& job) {
    const std::optional<double> ratio = loop::goodput_ratio(job.status, sources.wall_now);
    if (!ratio) return;
    out.add(*ratio, {{"namespace", job.metadata.namespace_}, {"job", job.metadata.name}});
  });
}

void add_restarts(const loop::Controller& controller, Exposition& out) {
  out.family("lockstep_job_restarts", "Restarts of the job, as in its status", Type::kGauge);
  controller.visit_jobs([&](const TrainingJob& job) {
    if (is_finished(job.status)) return;
    out.add(number(static_cast<uint64_t>(job.status.restarts)),
            {{"namespace", job.metadata.namespace_}, {"job", job.metadata.name}});
  });
}

void add_self(const MetricsSources& sources, Exposition& out) {
  const loop::Controller& controller = sources.controller;
  out.family("leader_election_master_status", "1 if this replica is the leader", Type::kGauge);
  out.add(controller.is_leading() ? 1 : 0, {{"name", "lockstep-controller"}});
  out.family("lockstep_controller_cached_objects", "Objects in the controller's caches",
             Type::kGauge);
  out.add(number(controller.jobs().objects().size()), {{"resource", "trainingjobs"}});
  out.add(number(controller.pods().objects().size()), {{"resource", "pods"}});
  out.single("lockstep_controller_agents", "Agents that the controller polls", Type::kGauge,
             number(controller.agents_watched()));
  out.family("lockstep_build_info", "The version of this controller, as a label", Type::kGauge);
  out.add(1, {{"version", sources.version}});
}

}  // namespace

std::string render_metrics(const MetricsSources& sources) {
  Exposition out(MetricLabels{});
  add_reconciles(sources.controller, out);
  add_queue(sources.controller.queue(), out);
  add_requests(sources, out);
  add_jobs(sources.controller, out);
  add_restarts(sources.controller, out);
  add_goodput(sources, out);
  add_self(sources, out);
  add_process_metrics(out);
  return out.text();
}

}  // namespace lockstep::monitor
