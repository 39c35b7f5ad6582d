#include "cli/run/local_run.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "cli/run/loss_curve.h"
#include "cli/run/run_job.h"
#include "common/api/conditions.h"

namespace lockstep::cli {
namespace {

constexpr int kPollMilliseconds = 200;
constexpr int64_t kControllerExitsMax = 10;  // in a row: it won't recover
constexpr Duration kStopTimeoutAfterEnd = std::chrono::seconds(10);
constexpr Duration kMargin = std::chrono::seconds(10);  // for agent and node, beyond the grace
constexpr size_t kSampleBytesMax = 8u << 10;
constexpr size_t kLogTailBytes = 2u << 10;

bool has_content(const std::string& file) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file, error);
  return !error && bytes > 0;
}

// Returns the step of the newest complete checkpoint in a folder; 0 if there is none.
int64_t newest_saved_step(const std::string& folder) {
  constexpr std::string_view kPrefix = "step-";
  int64_t newest = 0;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    std::error_code ignored;  // it is no checkpoint then
    if (!name.starts_with(kPrefix) ||
        !std::filesystem::exists(entries->path() / "manifest.json", ignored)) {
      continue;
    }
    int64_t step = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + kPrefix.size(), end, step);
    if (read.ec == std::errc() && read.ptr == end) newest = std::max(newest, step);
  }
  return newest;
}

std::string number(double value, const char* format) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string collection_of(const ObjectMeta& metadata) {
  return "/apis/lockstep.dev/v1alpha1/namespaces/" + metadata.namespace_ + "/trainingjobs";
}

// Uses the kernel's random bits, so that two runs on one machine choose different addresses.
uint64_t run_seed() {
  Result<std::string> secret = local::random_secret();
  return secret.ok() ? std::stoull(secret->substr(0, 16), nullptr, 16)
                     : static_cast<uint64_t>(getpid());
}

}  // namespace

LocalRun::LocalRun(const Clock& clock, LocalRunOptions options)
    : clock_(clock),
      options_(std::move(options)),
      target_(collection_of(options_.job.metadata) + "/" + options_.job.metadata.name),
      began_(clock.now()),
      reporter_(clock, STDERR_FILENO),
      metrics_(options_.job.spec.checkpoint.path + "/metrics.jsonl"),
      rank_lines_(options_.output + "/logs", options_.job.metadata.name + "-worker-") {}

LocalRun::~LocalRun() = default;

int LocalRun::run() {
  Status started = start();
  if (!started.ok()) {
    reporter_.line(started.error().message);
    if (options_.json) print_json(End::kFailed);
    return kExitFailed;
  }
  End end = follow();
  reporter_.clear();
  if (end == End::kInterrupted) {
    reporter_.line("stopping; press Ctrl-C again to kill everything immediately");
    stop(std::chrono::seconds(grace_seconds(options_.job.spec)) + kMargin);
  } else {
    stop(kStopTimeoutAfterEnd);
  }
  cluster_.reset();
  finish(end);
  if (end == End::kComplete) return 0;
  return end == End::kInterrupted ? kExitInterrupted : kExitFailed;
}

Status LocalRun::start() {
  TRY(local::check_programs(options_.program_folder));
  TRY(signals_.block_signals());
  if (options_.job.spec.train) {
    MetricsReader earlier(options_.job.spec.checkpoint.path + "/metrics.jsonl");
    earlier.reread();
    earlier_step_ = earlier.newest().step.value_or(0);
    saved_step_ = newest_saved_step(options_.job.spec.checkpoint.path);
  }
  TRY_ASSIGN(cluster_,
             local::LocalCluster::start(clock_, {.program_folder = options_.program_folder,
                                                 .folder = options_.output + "/node",
                                                 .log_folder = options_.output + "/logs",
                                                 .seed = run_seed(),
                                                 .keep_logs = true}));
  cluster_->api().on_change([this] { signals_.wake(); });
  reporter_.line("output: " + options_.output);
  return submit();
}

Status LocalRun::submit() {
  const ObjectMeta& metadata = options_.job.metadata;
  // 409 if the namespace always exists.
  call("POST", "/api/v1/namespaces", {{"metadata", {{"name", metadata.namespace_}}}});
  local::ApiResponse made = call("POST", collection_of(metadata), to_json(options_.job));
  if (!made.ok())
    return invalid(string_or(made.body, "message", "the API server rejected the job"));
  return {};
}

LocalRun::End LocalRun::follow() {
  while (true) {
    poll();
    if (is_true(status_, kComplete)) return End::kComplete;
    if (is_true(status_, kFailed)) return End::kFailed;
    // A controller waits until somebody corrects such a job; here, nobody does.
    if (is_false(status_, kValid)) return End::kInvalid;
    if (status_.lastFailure && status_.lastFailure->reason == local::kNoAddressReason)
      return End::kNoAddress;
    if (job_gone_) return End::kJobGone;
    if (cluster_->controller().consecutive_exits() >= kControllerExitsMax)
      return End::kControllerLost;
    if (signals_.count() > 0) return End::kInterrupted;
    signals_.wait(kPollMilliseconds);
  }
}

void LocalRun::poll() {
  local::ApiResponse response = call("GET", target_, Json());
  job_gone_ = response.code == 404;
  forward_output();
  if (response.ok()) {
    if (Result<TrainingJob> job = stored_training_job_from_json(response.body); job.ok()) {
      TrainingJobStatus shown = job->status;
      if (shown.lastFailure) shown.lastFailure->message = new_to_user(*shown.lastFailure);
      report_resumption(shown);
      for (const std::string& event : status_events(status_, shown)) reporter_.line(event);
      status_ = std::move(job->status);
    }
  }
  int64_t exits = cluster_->controller().exits();
  if (exits > controller_exits_)
    reporter_.line("the controller exited and is being restarted (" + cluster_->controller_log() +
                   "); training continues");
  controller_exits_ = exits;
  // Before the first round the file may be from an earlier run.
  if (status_.progress && options_.job.spec.train) metrics_.poll();
  report_validation_losses();
  reporter_.progress(snapshot());
}

ProgressSnapshot LocalRun::snapshot() const {
  ProgressSnapshot snapshot;
  const TrainingJobSpec& spec = options_.job.spec;
  snapshot.name = options_.job.metadata.name;
  snapshot.state = status_.state;
  snapshot.restarts = status_.restarts;
  snapshot.elapsed_seconds = to_seconds(clock_.now() - began_);
  if (status_.progress) snapshot.numbers = *status_.progress;
  if (spec.train) {
    snapshot.numbers.steps = spec.train->steps;
    snapshot.step_size = step_size(*spec.train);
  }
  // The file is newer than the status, which is written every few seconds.
  update(snapshot.numbers, metrics_.newest());
  return snapshot;
}

void LocalRun::report_resumption(const TrainingJobStatus& status) {
  if (!status.lastCheckpoint || status_.lastCheckpoint) return;
  const int64_t shown = status.lastCheckpoint->step;
  // The job started over if this run had steps before the checkpoint.
  const bool started_over =
      !metrics_.losses().empty() && metrics_.newest().step.value_or(0) < shown;
  // A quick job has saved again before anybody looks.
  const int64_t step = shown > earlier_step_ ? saved_step_ : shown;
  if (step == 0 || started_over) return;
  reporter_.line("resuming from the checkpoint of step " + std::to_string(step));
  if (shown == step) status_.lastCheckpoint = status.lastCheckpoint;
  validated_step_ = step;
}

void LocalRun::report_validation_losses() {
  const auto& losses = metrics_.validation_losses();
  for (auto at = losses.upper_bound(validated_step_); at != losses.end(); ++at) {
    reporter_.line("step " + std::to_string(at->first) + ": validation loss " +
                   number(at->second, "%.4f"));
    validated_step_ = at->first;
  }
}

void LocalRun::stop(Duration timeout) {
  const int signals_before = signals_.count();
  TimePoint deadline = clock_.now() + timeout;
  call("DELETE", target_, {{"propagationPolicy", "Background"}});
  while (!cluster_->node().is_empty() && clock_.now() < deadline &&
         signals_.count() == signals_before)
    signals_.wait(kPollMilliseconds / 4);
  if (!cluster_->node().is_empty()) cluster_->node().kill_all();
}

local::ApiResponse LocalRun::call(const std::string& method, const std::string& target,
                                  const Json& body) {
  return cluster_->api().handle(
      {method, target, "application/json", body.is_null() ? std::string() : dump_json(body)});
}

void LocalRun::forward_output() {
  if (options_.job.spec.train) return;
  for (std::string lines = rank_lines_.poll(); !lines.empty(); lines = rank_lines_.poll())
    reporter_.output(lines, options_.json ? STDERR_FILENO : STDOUT_FILENO);
}

std::string LocalRun::new_to_user(const FailureStatus& failure) const {
  return rank_lines_.new_to_user(failure.rank, failure.message);
}

void LocalRun::finish(End end) {
  forward_output();
  if (options_.job.spec.train) metrics_.reread();
  report_validation_losses();
  write_loss_curve();
  print_result(end);
  if (options_.json) print_json(end);
}

void LocalRun::print_json(End end) const {
  std::printf("%s\n", result_json(end).c_str());
  std::fflush(stdout);
}

void LocalRun::write_loss_curve() {
  if (metrics_.losses().empty()) return;
  std::string file = options_.output + "/loss.svg";
  Status written =
      local::write_file(file, loss_curve_svg({.title = options_.job.metadata.name,
                                              .train = metrics_.losses(),
                                              .validation = metrics_.validation_losses()}));
  if (!written.ok()) reporter_.line("can't write the loss curve: " + written.error().message);
}

std::string LocalRun::state_text(End end) const {
  switch (end) {
    case End::kComplete:
      return "Complete";
    case End::kInterrupted:
      return "Stopped";
    default:
      return "Failed";
  }
}

void LocalRun::print_cause(End end) {
  if (is_true(status_, kFailed)) {
    QuotedLog quoted;
    if (status_.lastFailure)
      quoted = {status_.lastFailure->message, new_to_user(*status_.lastFailure)};
    reporter_.line("failed: " + failed_message(find_condition(status_, kFailed)->message, quoted));
  }
  if (end == End::kControllerLost)
    reporter_.line("failed: the controller exits again and again; the end of its log:\n" +
                   local::end_of_file(options_.output + "/logs/controller.log", kLogTailBytes));
  if (end == End::kInvalid)
    reporter_.line("failed: the controller rejected the job:\n" +
                   find_condition(status_, kValid)->message);
  if (end == End::kNoAddress) reporter_.line("failed: " + status_.lastFailure->message);
  if (end == End::kJobGone) reporter_.line("failed: the job was deleted");
}

void LocalRun::print_result(End end) {
  const std::string& folder = options_.job.spec.checkpoint.path;
  std::error_code error;
  std::string sample = folder + "/sample.txt";
  if (end == End::kComplete && std::filesystem::exists(sample, error)) {
    std::string text = local::end_of_file(sample, kSampleBytesMax);
    text.erase(text.find_last_not_of(" \n") + 1);
    reporter_.line("\n" + text + "\n");
  }
  print_cause(end);
  std::string summary = options_.job.metadata.name + ": " + state_text(end);
  const StepNumbers numbers = snapshot().numbers;
  if (options_.job.spec.train || numbers.step.value_or(0) > 0)
    summary += " at step " + std::to_string(numbers.step.value_or(0));
  summary += " after " + clock_text(to_seconds(clock_.now() - began_));
  if (numbers.loss) summary += ", loss " + number(*numbers.loss, "%.4f");
  if (!metrics_.validation_losses().empty())
    summary += ", validation loss " + number(metrics_.validation_losses().rbegin()->second, "%.4f");
  if (numbers.validation_loss_per_byte &&
      *numbers.validation_loss_per_byte != numbers.validation_loss)
    summary += " (" + number(*numbers.validation_loss_per_byte, "%.4f") + " per byte)";
  if (numbers.validation_accuracy)
    summary += ", accuracy " + number(*numbers.validation_accuracy, "%.4f");
  if (numbers.validation_top5_accuracy)
    summary += " (top-5 " + number(*numbers.validation_top5_accuracy, "%.4f") + ")";
  if (numbers.validation_auc) summary += ", AUC " + number(*numbers.validation_auc, "%.4f");
  if (status_.restarts > 0) summary += ", restarts " + std::to_string(status_.restarts);
  reporter_.line(summary);
  print_files();
  if (end == End::kInterrupted && options_.job.spec.train && !metrics_.losses().empty())
    reporter_.line("to resume:  run it again with --output " + options_.output);
}

void LocalRun::print_files() {
  const std::string metrics = options_.job.spec.checkpoint.path + "/metrics.jsonl";
  const std::string picture = options_.output + "/loss.svg";
  if (has_content(metrics)) reporter_.line("metrics:    " + metrics);
  if (!metrics_.losses().empty() && has_content(picture)) reporter_.line("loss curve: " + picture);
  reporter_.line("logs:       " + options_.output + "/logs");
}

std::string LocalRun::result_json(End end) const {
  const StepNumbers numbers = snapshot().numbers;
  Json result = {{"state", state_text(end)},
                 {"step", numbers.step.value_or(0)},
                 {"loss", nullptr},
                 {"validationLoss", nullptr},
                 {"tokensPerSecond", metrics_.median_tokens_per_second()},
                 {"restarts", status_.restarts},
                 {"seconds", to_seconds(clock_.now() - began_)},
                 {"output", options_.output}};
  if (numbers.loss) result["loss"] = *numbers.loss;
  if (!metrics_.validation_losses().empty())
    result["validationLoss"] = metrics_.validation_losses().rbegin()->second;
  else if (numbers.validation_loss)
    result["validationLoss"] = *numbers.validation_loss;
  return dump_json(result);
}

}  // namespace lockstep::cli
