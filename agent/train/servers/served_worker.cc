#include "agent/train/servers/served_worker.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "agent/train/checkpoint/chunked_file.h"
#include "agent/train/clicks/click_task.h"
#include "agent/train/exit_code.h"
#include "agent/train/servers/dense_task.h"
#include "agent/train/stop_signal.h"
#include "agent/train/train_step.h"
#include "common/api/step_number_table.h"
#include "common/base/log.h"
#include "kernels/device/parallel.h"

namespace lockstep::train {
namespace {

constexpr double kSmoothing = 0.1;  // weight of the newest step in the smoothed time of a step

Status blaming_servers(Status status) {
  if (status.ok()) return status;
  const Code code = status.error().code;
  if (code == Code::kTimeout) return status.error().blaming(Blame::kPeerHung);
  if (status.error().blame != Blame::kUnknown) return status;
  const bool is_of_peer = code == Code::kUnavailable || code == Code::kConflict;
  return is_of_peer ? status.error().blaming(Blame::kPeer) : status.error();
}

}  // namespace

ServedWorker::ServedWorker(WorkerConfig config, ProgressReporter& progress,
                           Surroundings surroundings)
    : config_(std::move(config)),
      progress_(progress),
      surroundings_(std::move(surroundings)),
      files_(config_.checkpoint.path, surroundings_.files),
      storage_(files_, surroundings_.pause) {}

int ServedWorker::run() {
  const Status status = run_phases();
  if (status.ok()) return stopping_ ? kExitStopped : 0;
  const int exit_code = exit_code_of(status.error());
  const Blame blame = status.error().blame;
  const bool is_of_peer = blame == Blame::kPeer || blame == Blame::kPeerHung;
  if (is_of_peer && link_ != nullptr) progress_.numbers().suspect_rank = link_->culprit();
  progress_.publish();
  log_error("worker failed", {{"rank", config_.rank},
                              {"step", step_},
                              {"exitCode", exit_code},
                              {"reason", status.error().message}});
  return exit_code;
}

Status ServedWorker::run_phases() {
  TRY(form());
  if (past_ && past_->has_left) {
    stopping_ = past_->was_stopped;
    return leave();
  }
  TRY(load());
  TRY(begin());
  TRY(train());
  return finish();
}

Status ServedWorker::form() {
  progress_.enter(WorkerPhase::kForming);
  TRY_ASSIGN(round_, servers_round(config_));
  kernels::set_threads(static_cast<int>(config_.threads));
  TRY_ASSIGN(link_, JobLink::create(*round_));
  progress_.show_view(round_->standing.number, false);
  followed_ = round_->standing;
  // From now on: a server may be lost while this worker looks for it.
  feed_ = std::make_unique<ViewFeed>(
      ViewFeed::Options{.fd = static_cast<int>(config_.rounds_fd),
                        .now = round_->standing,
                        .handler = [this](const ServersView& view) { follow(view); }});
  TRY(link_->connect(std::chrono::seconds(config_.rendezvous_timeout_seconds),
                     surroundings_.clock));
  std::optional<uint64_t> returned_at;
  if (const int64_t since = worker_since(round_->standing, config_.rank); since > 1) {
    TRY_ASSIGN(past_, link_->come_back(since));
    returned_at = past_->newest_step();
  }
  TRY(make_client(returned_at));
  TRY_ASSIGN(schedule_, schedule_of(config_.train));
  return {};
}

// It begins in the newest view.
Status ServedWorker::make_client(std::optional<uint64_t> returned_at) {
  TRY_ASSIGN(calls_, rpc::Client::create({.self = round_->self}));
  const std::lock_guard lock(view_mutex_);
  TRY_ASSIGN(server::View view, view_of(*round_, followed_));
  TRY_ASSIGN(parameters_,
             server::ParameterClient::create({.rpc = calls_.get(),
                                              .catalog = round_->catalog,
                                              .view = std::move(view),
                                              .servers = addresses_in(followed_, round_->servers),
                                              .view_patience = round_->view_patience,
                                              .returned_at = returned_at}));
  return {};
}

void ServedWorker::follow(const ServersView& view) {
  const std::lock_guard lock(view_mutex_);
  const auto installed = [&]() -> Status {
    if (parameters_ != nullptr && servers_changed_in(view) != servers_changed_in(followed_)) {
      TRY_ASSIGN(const server::View next, view_of(*round_, view));
      parameters_->move_servers(addresses_in(view, round_->servers));
      TRY(parameters_->install(next));
    }
    link_->install(view);
    return {};
  }();
  if (!installed.ok()) {
    log_warning("cannot follow a view of the servers",
                {{"view", text_of(view)}, {"reason", installed.error().message}});
    return;
  }
  followed_ = view;
  progress_.show_view(view.number, false);
  log_info("following a view of the servers", {{"rank", config_.rank}, {"view", text_of(view)}});
}

Status ServedWorker::load() {
  progress_.enter(WorkerPhase::kLoading);
  TRY_ASSIGN(task_, make_task());
  return {};
}

Result<std::unique_ptr<ServedTask>> ServedWorker::make_task() {
  const ServedTask::Parts parts{.config = config_,
                                .round = *round_,
                                .servers = *parameters_,
                                .progress = progress_,
                                .clock = surroundings_.clock};
  return is_click_family(config_.train.model.family) ? ClickTask::open(parts)
                                                     : DenseTask::open(parts);
}

Status ServedWorker::begin() {
  progress_.enter(WorkerPhase::kBroadcasting);
  if (returns()) return come_back();
  JobLink::Values values{};
  if (is_first()) {
    TRY_ASSIGN(const int64_t step, resume());
    if (step == 0) TRY(blaming_servers(task_->begin_anew()));
    values[0] = static_cast<double>(step);
  }
  TRY_ASSIGN(values, link_->meet(values));
  step_ = static_cast<int64_t>(values[0]);
  TRY(blaming_servers(task_->begin_at(step_)));
  if (is_first() && stores()) {
    saved_step_ = step_ > 0 ? step_ : -1;
    progress_.storage().resumed_step = step_;
    progress_.publish_storage();
    open_metrics(true);
  }
  return {};
}

// In synchronous training all pushes of a step have gradients of the same parameters. A step of
// which some unit has this worker's push cannot be made again: others may have seen its update.
Status ServedWorker::come_back() {
  if (past_->step == 0 && !past_->first) {
    return unavailable("[servers] no server knows after which step the round began");
  }
  step_ = static_cast<int64_t>(past_->newest_step());
  const bool is_synchronous = round_->consistency.kind == server::ConsistencyKind::kSynchronous;
  if (is_synchronous && past_->highest_clock > past_->newest_step()) {
    return unavailable("[servers] the worker was lost while it pushed step " +
                       std::to_string(step_ + 1) + ", which other workers may have seen");
  }
  log_info("returning", {{"rank", config_.rank}, {"step", step_}});
  TRY(blaming_servers(task_->begin_at(step_)));
  saved_step_ = past_->step == 0 && step_ > 0 ? step_ : -1;
  if (!is_first() || !stores()) return {};
  TRY(take_checkpoints());
  TRY_ASSIGN(const std::vector<int64_t> steps, checkpoint_steps(storage_));
  progress_.numbers().checkpoint_step = steps.empty() ? -1 : steps.front();
  constexpr int64_t kSavesOfAProcess = int64_t{1} << 20;
  saves_ = worker_since(round_->standing, config_.rank) * kSavesOfAProcess;
  const uint64_t of_save = past_->step > 0 && is_saved(step_) ? 2 : 0;
  open_metrics(past_->met_since() < of_save + 2);
  return {};
}

Result<int64_t> ServedWorker::resume() {
  if (!stores()) return int64_t{0};
  TRY(take_checkpoints());
  return load_newest();
}

Status ServedWorker::take_checkpoints() {
  TRY(storage_.again([this] { return files_.make_root(); }));
  owner_ = {.job_uid = config_.world.job_uid,
            .job_name = config_.job_name,
            .round = config_.world.round,
            .boot_id = config_.boot_id};
  checkpoints_.emplace(storage_, owner_, config_.checkpoint.keep);
  return checkpoints_->prepare();
}

// Rank 0 verifies every byte before a server loads any.
Result<int64_t> ServedWorker::load_newest() {
  TRY_ASSIGN(const std::vector<int64_t> steps, checkpoint_steps(storage_));
  for (const int64_t step : steps) {
    const std::string folder = checkpoint_name(step);
    const auto verified = [&]() -> Result<StoredManifest> {
      TRY_ASSIGN(StoredManifest stored, read_manifest(storage_, folder));
      for (const ManifestFile& file : stored.manifest.files) {
        TRY_ASSIGN(ChunkedReader reader, ChunkedReader::open(storage_, folder, file));
        TRY(reader.verify());
      }
      if (stored.manifest.position.step == step) return stored;
      return corrupt("[checkpoint] the manifest of " + storage_.describe(folder) +
                         " is that of step " + std::to_string(stored.manifest.position.step),
                     Blame::kStorage);
    };
    const Result<StoredManifest> stored = verified();
    if (!stored.ok() && stored.error().code != Code::kCorrupt) return stored.error();
    if (!stored.ok()) {
      TRY_ASSIGN(const SetAside moved, checkpoints_->set_aside(step, stored.error().message));
      StorageNotes& notes = progress_.storage();
      notes.set_aside += 1;
      notes.set_aside_step = step;
      notes.set_aside_reason.assign(moved.reason + " (it is now " + moved.name + ")");
      continue;
    }
    TRY(check_settings(task_->settings(), stored->manifest.settings, storage_.describe(folder)));
    TRY(link_->load(stored->text, static_cast<uint64_t>(step)));
    loss_ = stored->manifest.loss;
    log_info("resumed", {{"step", step}, {"path", storage_.describe(folder)}});
    return step;
  }
  return int64_t{0};
}

void ServedWorker::open_metrics(bool validates_again) {
  Result<MetricsFile> opened =
      MetricsFile::open(config_.checkpoint.path + "/metrics.jsonl", step_, validates_again);
  if (opened.ok()) {
    metrics_ = std::move(*opened);
  } else {
    log_warning("metrics can't be written", {{"reason", opened.error().message}});
  }
}

Status ServedWorker::train() {
  ProgressNumbers& numbers = progress_.numbers();
  numbers.step = step_;
  numbers.steps = config_.train.steps;
  numbers.samples = step_ * config_.train.batch.global;
  if (is_first() && !returns()) numbers.checkpoint_step = saved_step_;
  StopSignal::arm();
  progress_.enter(WorkerPhase::kTraining);
  if (is_first()) {
    log_info("training", {{"workers", static_cast<int64_t>(round_->workers)},
                          {"servers", static_cast<int64_t>(round_->servers.size())},
                          {"consistency", config_.parameter_servers->consistency},
                          {"family", config_.train.model.family},
                          {"step", step_}});
  }
  if (returns()) TRY(take_up());
  // A checkpoint is written before its step is validated, so a resumed run validates first.
  if (!returns() && step_ > 0) TRY(validate_if_due());
  while (!at_end() && !stopping_) {
    TRY(step_once());
    TRY(save_if_due());
    if (!stopping_) TRY(validate_if_due());
  }
  return {};
}

// Tells once more what the previous process has told, since a server may not have heard it, and
// does what that process had not done yet after its last step.
Status ServedWorker::take_up() {
  const JobLink::Past& past = *past_;
  if (past.step > 0) {
    TRY_ASSIGN(const StepNews news,
               link_->report({.step = static_cast<uint64_t>(step_),
                              .waits = keeps_step() ? uint64_t{1} : uint64_t{0}}));
    hears_stop_ = news.stops != 0;
    stop_at_ = static_cast<int64_t>(news.stop_at);
    stopping_ = stop_at_ > 0 && step_ >= stop_at_ && !at_end();
    tell_of_last_step(news);
  }
  TRY(link_->go_on_after(past));
  if (step_ == 0) return {};
  TRY(save_if_due());
  return stopping_ ? Status() : validate_if_due();
}

// The previous process may not have written the line of its last step.
void ServedWorker::tell_of_last_step(const StepNews& news) {
  StepNumbers numbers;
  numbers.step = step_;
  numbers.samples = step_ * config_.train.batch.global;
  numbers.learning_rate = optim::learning_rate(schedule_, step_);
  if (news.rows > 0) {
    told_step_ = news.step;
    loss_ = news.loss_sum / static_cast<double>(news.rows);
    if (std::isfinite(loss_)) numbers.loss = loss_;
  }
  if (metrics_ && metrics_->last_step() < step_) metrics_->add(numbers);
}

Status ServedWorker::step_once() {
  const TimePoint began = surroundings_.clock.now();
  Result<ServedTask::Outcome> outcome =
      task_->train({.number = step_ + 1,
                    .learning_rate = optim::learning_rate(schedule_, step_ + 1),
                    .counted_workers = round_->workers - round_->consistency.backup_workers,
                    .may_pull_ahead = !is_saved(step_ + 1) && !is_validated(step_ + 1)});
  if (!outcome.ok()) return blaming_servers(outcome.error());
  ++step_;
  // If updates are synchronous a pull has all of them, however far behind a worker is.
  const bool is_synchronous = round_->consistency.kind == server::ConsistencyKind::kSynchronous;
  if (!is_synchronous) staleness_ = std::max(staleness_, outcome->staleness);
  late_steps_ += outcome->is_late ? 1 : 0;
  const bool stops = StopSignal::requested() || hears_stop_;
  TRY_ASSIGN(const StepNews news, link_->report({.step = static_cast<uint64_t>(step_),
                                                 .stops = stops ? uint64_t{1} : uint64_t{0},
                                                 .waits = keeps_step() ? uint64_t{1} : uint64_t{0},
                                                 .rows = outcome->counted,
                                                 .loss_sum = outcome->loss_sum}));
  hears_stop_ = news.stops != 0;
  stop_at_ = static_cast<int64_t>(news.stop_at);
  stopping_ = stop_at_ > 0 && step_ >= stop_at_ && !at_end();
  report(outcome->numbers, news, to_seconds(surroundings_.clock.now() - began));
  return judge_loss();
}

bool ServedWorker::keeps_step() const {
  return round_->consistency.kind == server::ConsistencyKind::kSynchronous &&
         round_->consistency.backup_workers == 0;
}

// Losses are told by rank 0 once all workers have completed their step.
void ServedWorker::report(StepNumbers numbers, const StepNews& news, double step_seconds) {
  smoothed_seconds_ = smoothed_seconds_ == 0
                          ? step_seconds
                          : (1 - kSmoothing) * smoothed_seconds_ + kSmoothing * step_seconds;
  const double rate = static_cast<double>(config_.train.batch.global) / smoothed_seconds_;
  const int64_t tokens = task_->tokens_per_sample();
  numbers.step = step_;
  numbers.samples = step_ * config_.train.batch.global;
  numbers.learning_rate = optim::learning_rate(schedule_, step_);
  if (tokens > 0) {
    numbers.tokens = *numbers.samples * tokens;
    numbers.tokens_per_second = rate * static_cast<double>(tokens);
  } else {
    numbers.samples_per_second = rate;
  }
  numbers.step_seconds = step_seconds;
  if (!keeps_step() && news.slowest_step > 0) {
    numbers.slowest_worker = static_cast<int64_t>(news.slowest);
    numbers.slowest_worker_step = static_cast<int64_t>(news.slowest_step);
  }
  const bool has_loss = news.rows > 0 && news.step > told_step_;
  if (has_loss) {
    told_step_ = news.step;
    loss_ = news.loss_sum / static_cast<double>(news.rows);
    if (std::isfinite(loss_)) numbers.loss = loss_;
  }
  ProgressNumbers& page = progress_.numbers();
  update(page, numbers);
  if (page.first_step_unix_seconds == 0) {
    page.first_step_unix_seconds = to_seconds(surroundings_.clock.wall_now().time_since_epoch());
  }
  progress_.publish();
  if (metrics_) metrics_->add(numbers);
}

Status ServedWorker::judge_loss() const {
  if (std::isfinite(loss_)) return {};
  return invalid("[train] the loss of step " + std::to_string(told_step_) + " is not finite",
                 Blame::kDivergence);
}

bool ServedWorker::is_saved(int64_t step) const {
  const CheckpointSpec& checkpoint = config_.checkpoint;
  const bool is_due = checkpoint.everySteps > 0 && step % checkpoint.everySteps == 0;
  return stores() && (is_due || (step >= config_.train.steps && checkpoint.atEnd));
}

bool ServedWorker::saves_now() const {
  if (!stores() || step_ == saved_step_) return false;
  return is_saved(step_) || stopping_;
}

// All workers have pushed their gradients of all steps so far, and none those of the next.
Status ServedWorker::save_if_due() {
  if (!saves_now()) return {};
  saved_step_ = step_;
  progress_.enter(WorkerPhase::kSaving);
  TRY(link_->meet());
  if (is_first() && !link_->is_behind()) TRY(save());
  TRY(link_->meet());
  progress_.enter(WorkerPhase::kTraining);
  return {};
}

// A save that fails costs progress only if there is no later one, so only the last one ends the
// round.
Status ServedWorker::save() {
  const TimePoint began = surroundings_.clock.now();
  const std::string folder = CheckpointFolder::unfinished_folder(owner_, step_, saves_++);
  const auto attempt = [&]() -> Status {
    TRY(storage_.make_folder(folder));
    TRY_ASSIGN(std::vector<ManifestFile> files, link_->save(folder));
    Manifest manifest{.position = {.step = step_,
                                   .samples = step_ * config_.train.batch.global,
                                   .weights_seed = static_cast<uint64_t>(config_.train.seed),
                                   .data_seed = static_cast<uint64_t>(config_.train.data.seed)},
                      .settings = task_->settings(),
                      .loss = loss_,
                      .round = config_.world.round,
                      .mesh = {.pipeline = 1, .data = round_->workers, .tensor = 1},
                      .files = std::move(files)};
    return checkpoints_->publish(folder, manifest);
  };
  const Status saved = attempt();
  StorageNotes& notes = progress_.storage();
  if (saved.ok()) {
    notes.saved += 1;
    notes.failed_step = -1;
    notes.save_seconds = to_seconds(surroundings_.clock.now() - began);
    notes.blocked_seconds += notes.save_seconds;
    progress_.numbers().checkpoint_step = step_;
    log_info("checkpoint", {{"step", step_}, {"seconds", notes.save_seconds}});
  } else {
    notes.failed += 1;
    notes.failed_step = step_;
    notes.failure.assign(saved.error().message);
    log_warning("the checkpoint could not be saved",
                {{"step", step_}, {"reason", saved.error().message}});
  }
  progress_.publish_storage();
  if (saved.ok()) return {};
  const Blame blame = saved.error().blame;
  const bool ends = at_end() || stopping_ || blame == Blame::kFenced || blame == Blame::kPeer;
  if (ends) return saved;
  return checkpoints_->abandon(folder);
}

bool ServedWorker::is_validated(int64_t step) const {
  if (!task_->validates()) return false;
  const int64_t every = config_.train.validation.everySteps;
  return step >= config_.train.steps || (every > 0 && step % every == 0);
}

Status ServedWorker::validate_if_due() {
  if (!is_validated(step_)) return {};
  progress_.enter(WorkerPhase::kValidating);
  TRY(link_->meet());
  if (is_first() && !link_->is_behind()) TRY(validate());
  TRY(link_->meet());
  progress_.enter(WorkerPhase::kTraining);
  return {};
}

Status ServedWorker::validate() {
  StepNumbers numbers;
  TRY(blaming_servers(task_->validate(step_, numbers)));
  if (numbers == StepNumbers{}) return {};  // the process was asked to stop
  StepNumbers& shown = progress_.numbers();
  shown.validation_loss = numbers.validation_loss;
  shown.validation_loss_per_byte = numbers.validation_loss_per_byte;
  shown.validation_accuracy = numbers.validation_accuracy;
  shown.validation_top5_accuracy = numbers.validation_top5_accuracy;
  shown.validation_auc = numbers.validation_auc;
  numbers.step = step_;
  if (metrics_) metrics_->add(numbers);
  return {};
}

Status ServedWorker::finish() {
  progress_.enter(WorkerPhase::kFinishing);
  TRY(link_->meet());
  if (is_first() && !stopping_) TRY(blaming_servers(task_->finish(step_)));
  TRY(leave());
  log_info("consistency",
           {{"rank", config_.rank}, {"staleness", staleness_}, {"lateSteps", late_steps_}});
  const server::ParameterClient::RowCounts rows = parameters_->pushed_rows();
  if (rows.all > 0) {
    log_info("rows pushed", {{"rows", rows.all}, {"rowsKeptBack", rows.kept_back}});
  }
  return {};
}

// A server may end before its answer has gone out. It knew then that all have left.
Status ServedWorker::leave() {
  const Status left = link_->leave(stopping_);
  if (!left.ok() && left.error().blame != Blame::kPeer) return left;
  progress_.enter(WorkerPhase::kDone);
  return {};
}

}  // namespace lockstep::train
