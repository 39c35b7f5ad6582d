#include "agent/node/round_machine.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "common/api/message_fields.h"
#include "common/api/step_number_table.h"
#include "common/api/worker_config.h"
#include "common/base/utf8.h"

namespace lockstep::node {
namespace {

constexpr int kExitKilled = 128 + SIGKILL;
constexpr int kStartErrorCode = 127;  // as a shell returns for a program that it can't start

// Returns the reason of a process's own end. The exit codes of a command mean nothing to us.
const char* reason_of(int64_t exit_code, bool is_worker) {
  if (is_worker && exit_code == kExitNotFinite) return kLossNotFinite;
  return is_worker && exit_code == kExitLossSpike ? kLossSpike : "Error";
}

ProgressStatus progress_status(const ProgressNumbers& numbers, WallTime wall) {
  ProgressStatus status{numbers_in_status(numbers)};
  if (numbers.precision != PrecisionInUse::kUnknown) {
    status.precision = numbers.precision == PrecisionInUse::kBf16 ? "bf16" : "fp32";
  }
  status.updatedAt = rfc3339(wall);
  return status;
}

std::string checkpoint_path(const std::string& folder, int64_t step) {
  char name[32];
  std::snprintf(name, sizeof(name), "/step-%08lld", static_cast<long long>(step));
  return folder + name;
}

// A worker may write anything, and the controller refuses numbers out of range.
StorageState storage_state(const StorageNotes& notes) {
  return {.saved = std::max<int64_t>(notes.saved, 0),
          .failed_step = std::max<int64_t>(notes.failed_step, -1),
          .failure = clean_utf8(notes.failure.text()),
          .set_aside = std::max<int64_t>(notes.set_aside, 0),
          .set_aside_step = std::max<int64_t>(notes.set_aside_step, -1),
          .set_aside_reason = clean_utf8(notes.set_aside_reason.text()),
          .resumed_step = std::max<int64_t>(notes.resumed_step, -1),
          .from_memory = notes.from_memory == 1,
          .skips = std::max<int64_t>(notes.skips, 0),
          .skip = clean_utf8(notes.skip.text())};
}

HoldingsStatus holdings_status(const Holdings& holdings, const WorldLayout& layout) {
  const auto number = [](uint64_t bytes) {
    return static_cast<int64_t>(std::min<uint64_t>(bytes, static_cast<uint64_t>(kIntegerMax)));
  };
  return {.sharding = layout.sharding,
          .shardingRanks = std::clamp<int64_t>(holdings.sharding_ranks, 1, kWorldSizeMax),
          .parametersBytes = number(holdings.parameters_bytes),
          .gradientsBytes = number(holdings.gradients_bytes),
          .optimizerBytes = number(holdings.optimizer_bytes),
          .gatheredBytes = number(holdings.gathered_bytes),
          .activationsBytes = number(holdings.activations_bytes),
          .offloadedBytes = number(holdings.offloaded_bytes)};
}

// Returns the number of the assignment's view of the servers; 0 if it has none.
int64_t view_number(const Assignment& assignment) {
  const size_t servers = server_count(assignment.world);
  if (servers == 0) return 0;
  const Result<ServersView> view = servers_view_from_text(assignment.servers_view, servers);
  return view.ok() ? view->number : 1;
}

// Returns the incarnation of the round's member at this place: it may have moved to another
// pod since the round began. Jobs in which that happens have one process on each node.
int64_t incarnation_at(const Assignment& assignment, int64_t place) {
  const WorldAssignment& world = assignment.world;
  const auto servers = static_cast<int64_t>(server_count(world));
  const Result<ServersView> view =
      servers_view_from_text(assignment.servers_view, static_cast<size_t>(servers));
  const int64_t server = place - (std::ssize(world.members) - servers);
  if (view.ok() && has_moved_server(*view) && server >= 0) {
    const std::optional<ServerMove>& move = view->servers[static_cast<size_t>(server)].move;
    if (move) return move->to.incarnation;
  }
  if (view.ok() && view->worker_moves.contains(place)) {
    return view->worker_moves.at(place).to.incarnation;
  }
  return world.members[static_cast<size_t>(place)].incarnation;
}

bool ended_by_stop(const WorkerEnd& end) {
  return end.exit_code == kExitStopped || end.signal == SIGTERM || end.signal == SIGKILL;
}

}  // namespace

RoundMachine::RoundMachine(NodeIdentity identity, RoundLimits limits)
    : identity_(std::move(identity)), limits_(limits) {
  live_.boot_id = identity_.boot_id;
  live_.job_uid = identity_.job_uid;
  live_.node_index = identity_.node_index;
  live_.incarnation = identity_.incarnation;
  live_.phase = phase();
  published_ = live_;
  published_.sequence = 1;
}

Status RoundMachine::check_identity(const Assignment& assignment) const {
  const WorldAssignment& world = assignment.world;
  if (world.job_uid != identity_.job_uid) {
    return invalid("[assignment] expected job " + identity_.job_uid + ", got " + world.job_uid);
  }
  const std::optional<int64_t> place = find_place_in_round(assignment);
  if (assignment.node_index != identity_.node_index || !place) {
    return invalid("[assignment] expected node " + std::to_string(identity_.node_index) +
                   " and a round that has it, got node " + std::to_string(assignment.node_index) +
                   " and a round of " + std::to_string(world.members.size()) + " nodes");
  }
  const int64_t incarnation = incarnation_at(assignment, *place);
  if (incarnation != identity_.incarnation) {
    return conflict("[assignment] expected incarnation " + std::to_string(identity_.incarnation) +
                    " of this node, got " + std::to_string(incarnation));
  }
  return {};
}

Status RoundMachine::check_round(const Assignment& assignment) const {
  const int64_t round = assignment.world.round;
  if (round < std::max<int64_t>(live_.round, 1)) {
    return conflict("[assignment] expected round " + std::to_string(live_.round) +
                    " or newer, got round " + std::to_string(round));
  }
  if (round == live_.round && assignment.hash != live_.hash) {
    return conflict("[assignment] expected hash " + live_.hash + " of round " +
                    std::to_string(round) + ", got " + assignment.hash);
  }
  return {};
}

Status RoundMachine::assign(const Assignment& assignment, TimePoint now) {
  TRY(check_identity(assignment));
  TRY(check_round(assignment));
  last_contact_ = now;
  if (assignment.action == "Exit") {
    if (!terminated_) {
      begin_stop(static_cast<int>(assignment.exit_code),
                 std::chrono::seconds(assignment.grace_period_seconds), now);
    }
    return {};
  }
  if (terminated_ || mode_ == Mode::kLeaving) {
    return conflict("[assignment] this agent is shutting down and starts no round");
  }
  if (!assignment.train && assignment.command.empty()) {
    return invalid("[assignment] expected train or command, got neither");
  }
  if (assignment.world.round == live_.round) return take_view(assignment, now);
  begin_round(assignment, now);
  return {};
}

void RoundMachine::begin_round(const Assignment& assignment, TimePoint now) {
  assignment_ = assignment;
  live_.round = assignment.world.round;
  live_.hash = assignment.hash;
  live_.progress.reset();
  live_.storage.reset();
  live_.holdings.reset();
  live_.servers_view = view_number(assignment);
  begin_processes(now);
}

void RoundMachine::begin_processes(TimePoint now) {
  live_.beginning.reset();
  live_.workers.clear();
  const WorldAssignment& world = assignment_->world;
  const int64_t local_size = world.processes_per_node;
  for (int64_t local_rank = 0; local_rank < local_size; ++local_rank) {
    WorkerState worker;
    worker.rank = rank_in_round(*assignment_, local_rank);
    worker.local_rank = local_rank;
    live_.workers.push_back(worker);
  }
  spawned_ = 0;
  failed_at_.assign(static_cast<size_t>(local_size), TimePoint{});
  waits_since_.assign(static_cast<size_t>(local_size), TimePoint{});
  first_failed_local_rank_ = -1;
  mode_ = Mode::kClearing;
  leave_deadline_ = now + limits_.leave_limit;
  assigned_at_ = now;
  cleared_at_.reset();
  actions_ = {Action::kKill};
}

// A controller that leads no more may still send an older view.
Status RoundMachine::take_view(const Assignment& assignment, TimePoint now) {
  const int64_t number = view_number(assignment);
  if (number < live_.servers_view) return {};
  if (number == live_.servers_view) {
    if (assignment.servers_view == assignment_->servers_view) return {};
    return conflict("[assignment] expected view " + assignment_->servers_view +
                    " of the servers, got " + assignment.servers_view);
  }
  TRY_ASSIGN(const ServersView view,
             servers_view_from_text(assignment.servers_view, server_count(assignment.world)));
  assignment_->servers_view = assignment.servers_view;
  live_.servers_view = number;
  if (mode_ != Mode::kRunning) return {};  // its processes begin with this view, or end
  if (begins_anew(view)) {
    begin_processes(now);
  } else {
    actions_.push_back(Action::kGiveView);
  }
  return {};
}

// Returns whether a process of this node lacks what it held, or does not know that others go on
// without it.
bool RoundMachine::begins_anew(const ServersView& view) const {
  const int64_t first = assignment_->world.world_size() - static_cast<int64_t>(first_servers(view));
  return std::ranges::any_of(live_.workers, [&](const WorkerState& worker) {
    if (worker.rank < first) return worker_since(view, worker.rank) > live_.servers_started;
    const ServerStanding& standing = view.servers[static_cast<size_t>(worker.rank - first)];
    return standing.state == ServerState::kGone && standing.since > live_.servers_started;
  });
}

void RoundMachine::begin_stop(int exit_code, Duration grace, TimePoint now) {
  terminated_ = true;
  exit_code_ = exit_code;
  if (mode_ == Mode::kLeaving || mode_ == Mode::kGone) return;
  mode_ = Mode::kStopping;
  all_processes_gone_ = false;
  stop_deadline_ = now + grace;
  actions_ = {Action::kTerminate};
}

void RoundMachine::terminate(TimePoint now) {
  if (terminated_) return;
  const int64_t grace = assignment_ ? assignment_->grace_period_seconds : 0;
  begin_stop(all_completed() ? 0 : kExitStopped, std::chrono::seconds(grace), now);
}

void RoundMachine::spawned(int64_t local_rank, int64_t pid) {
  WorkerState* worker = find(local_rank);
  if (worker == nullptr) return;
  worker->pid = pid;
  worker->running = true;
  // A user's program does not report its phases before its first step.
  if (!assignment_->train) worker->phase = WorkerPhase::kTraining;
  ++spawned_;
}

void RoundMachine::start_failed(int64_t local_rank, const std::string& message, TimePoint now) {
  WorkerState* worker = find(local_rank);
  if (worker == nullptr) return;
  ++spawned_;
  WorkerEnd end;
  end.exit_code = kStartErrorCode;
  end.log_tail = message;
  end_worker(*worker, end, now);
  worker->reason = "StartError";
}

void RoundMachine::exited(int64_t round, int64_t local_rank, const WorkerEnd& end, TimePoint now) {
  WorkerState* worker = find(local_rank);
  if (round != live_.round || worker == nullptr || !worker->running) return;
  end_worker(*worker, end, now);
}

void RoundMachine::end_worker(WorkerState& worker, const WorkerEnd& end, TimePoint now) {
  worker.running = false;
  worker.exit_code = end.exit_code;
  worker.signal = end.signal;
  worker.wait.reset();
  worker.is_lifeless = false;
  worker.speed.reset();
  ended_at_ = now;
  const bool stopping = mode_ == Mode::kStopping || mode_ == Mode::kLeaving;
  const bool has_saved = end.exit_code == kExitStopped && end.signal == 0;
  if (mode_ == Mode::kStopping && has_saved && assignment_->train) {
    saved_at_ = now;
    sequence_before_end_ = published_.sequence;
  }
  if (stopping && (ended_by_stop(end) || !assignment_->train)) {
    worker.reason = "Stopped";  // programs exit in many ways on SIGTERM, also with 0
  } else if (end.exit_code == 0) {
    worker.reason = "Completed";
  } else {
    worker.reason = end.hung          ? kHang
                    : end.oom_killed  ? "OOMKilled"
                    : end.signal != 0 ? "Signal"
                                      : reason_of(end.exit_code, assignment_->train.has_value());
    worker.log_tail = end.log_tail;
    failed_at_[static_cast<size_t>(worker.local_rank)] = now;
    if (first_failed_local_rank_ < 0) first_failed_local_rank_ = worker.local_rank;
  }
}

void RoundMachine::progress(int64_t round, int64_t local_rank, const ProgressNumbers& numbers,
                            WallTime wall) {
  WorkerState* worker = find(local_rank);
  if (round != live_.round || worker == nullptr) return;
  worker->phase = numbers.phase;
  worker->step = std::max<int64_t>(numbers.step.value_or(0), 0);
  worker->micro_batch = std::max<int64_t>(numbers.micro_batch, -1);
  worker->suspect_rank = numbers.suspect_rank;
  worker->lacks_bf16 = numbers.lacks_bf16 != 0;
  worker->servers_view = std::max<int64_t>(numbers.servers_view, 0);
  worker->is_filling = numbers.is_filling != 0;
  if (numbers.holdings.sharding_ranks > 0) {
    take_largest(holdings_status(numbers.holdings, assignment_->world.layout), live_.holdings);
  }
  if (local_rank != 0) return;
  if (numbers.steps > 0) live_.progress = progress_status(numbers, wall);
  if (numbers.checkpoint_step >= 0) {
    live_.last_checkpoint =
        CheckpointStatus{numbers.checkpoint_step,
                         checkpoint_path(assignment_->checkpoint.path, numbers.checkpoint_step)};
  } else if (numbers.phase >= WorkerPhase::kTraining) {
    live_.last_checkpoint.reset();  // those of earlier rounds were set aside
  }
}

void RoundMachine::storage(int64_t round, int64_t local_rank, const StorageNotes& notes) {
  const WorkerState* worker = find(local_rank);
  if (round != live_.round || worker == nullptr || worker->rank != 0) return;
  live_.storage = storage_state(notes);
}

void RoundMachine::update_speed(int64_t round, int64_t local_rank,
                                const std::optional<WorkerSpeed>& speed) {
  WorkerState* worker = find(local_rank);
  if (round == live_.round && worker != nullptr) worker->speed = speed;
}

void RoundMachine::update_health(int64_t round, int64_t local_rank,
                                 const BoardWatch::RankHealth& health) {
  WorkerState* worker = find(local_rank);
  if (round != live_.round || worker == nullptr || !worker->running) return;
  worker->wait = health.wait;
  worker->is_lifeless = health.is_lifeless;
  waits_since_[static_cast<size_t>(local_rank)] = health.waits_since;
}

void RoundMachine::program_progress(int64_t round, int64_t local_rank, int64_t step,
                                    const ProgressStatus& of_node) {
  WorkerState* worker = find(local_rank);
  if (round != live_.round || worker == nullptr) return;
  worker->step = step;
  live_.progress = of_node;
}

void RoundMachine::all_processes_gone() {
  all_processes_gone_ = true;
  if (mode_ == Mode::kClearing) {
    mode_ = Mode::kRunning;
    live_.servers_started = live_.servers_view;
    actions_ = {Action::kSpawn};
  } else if (mode_ == Mode::kLeaving) {
    mode_ = Mode::kGone;
    actions_ = {Action::kQuit};
  }
}

std::vector<Action> RoundMachine::step(TimePoint now) {
  advance(now);
  note_beginning(now);
  publish(now);
  return std::exchange(actions_, {});
}

void RoundMachine::advance(TimePoint now) {
  if (!actions_.empty()) return;  // they come first
  const bool is_train = !assignment_ || assignment_->train;
  const bool is_stopped = all_ended() && (is_train || all_processes_gone_);
  if (mode_ == Mode::kStopping && (is_stopped || now >= stop_deadline_)) {
    if (must_be_told(now)) return;
    if (exit_code_ == kExitStopped) exit_code_ = result_of_stop();
    leave(now);
  } else if (mode_ == Mode::kRunning && all_ended() && now >= hold_deadline()) {
    exit_code_ = result();
    leave(now);
  } else if (mode_ == Mode::kLeaving && now >= stop_deadline_) {
    mode_ = Mode::kGone;
    actions_ = {Action::kQuit};
  }
}

// Ranks that have saved their last step are worth a moment: a pod that is stopped may be gone
// before the controller asks again.
bool RoundMachine::must_be_told(TimePoint now) const {
  if (!saved_at_ || told_sequence_ > sequence_before_end_) return false;
  return now < std::min(stop_deadline_, *saved_at_ + limits_.farewell);
}

void RoundMachine::note_told(int64_t sequence) {
  told_sequence_ = std::max(told_sequence_, sequence);
}

void RoundMachine::leave(TimePoint now) {
  mode_ = Mode::kLeaving;
  stop_deadline_ = now + limits_.clear_limit;
  actions_ = {Action::kKill};
}

// A rank that ended before it connected leaves the beginning unknown.
void RoundMachine::note_beginning(TimePoint now) {
  if (mode_ != Mode::kRunning || live_.beginning) return;
  if (!cleared_at_) cleared_at_ = now;
  const bool is_over =
      std::all_of(live_.workers.begin(), live_.workers.end(),
                  [](const WorkerState& worker) { return worker.phase >= WorkerPhase::kForming; });
  if (!is_over) return;
  live_.beginning = RoundBeginning{.abort_seconds = to_seconds(*cleared_at_ - assigned_at_),
                                   .start_seconds = to_seconds(now - *cleared_at_)};
}

void RoundMachine::publish(TimePoint now) {
  live_.phase = phase();
  live_.sequence = published_.sequence;
  if (live_ == published_) return;
  const bool at_once = !is_mere_progress(published_, live_);
  if (!at_once && now < published_at_ + limits_.progress_interval) return;
  ++live_.sequence;
  if (at_once) sequence_beyond_progress_ = live_.sequence;
  published_ = live_;
  published_at_ = now;
}

std::optional<TimePoint> RoundMachine::next_deadline() const {
  std::optional<TimePoint> deadline;
  if (mode_ == Mode::kStopping || mode_ == Mode::kLeaving) deadline = stop_deadline_;
  if (mode_ == Mode::kStopping && saved_at_ && all_ended()) {
    deadline = std::min(stop_deadline_, *saved_at_ + limits_.farewell);
  }
  if (mode_ == Mode::kRunning && all_ended()) deadline = hold_deadline();
  if (live_ != published_) {
    const TimePoint due = published_at_ + limits_.progress_interval;
    deadline = deadline ? std::min(*deadline, due) : due;
  }
  return deadline;
}

AgentState RoundMachine::state(TimePoint now) const {
  AgentState state = published_;
  for (WorkerState& worker : state.workers) {
    const auto index = static_cast<size_t>(worker.local_rank);
    const bool has_failed = index < failed_at_.size() && failed_at_[index] != TimePoint{};
    if (has_failed) worker.failed_seconds_ago = to_seconds(now - failed_at_[index]);
    if (worker.wait && index < waits_since_.size()) {
      worker.wait->seconds = std::max(0.0, to_seconds(now - waits_since_[index]));
    }
    if (worker.local_rank == first_failed_local_rank_) {
      state.failed_seconds_ago = worker.failed_seconds_ago;
    }
  }
  return state;
}

const WorkerState* RoundMachine::first_failure() const {
  for (const WorkerState& worker : live_.workers) {
    if (worker.local_rank == first_failed_local_rank_) return &worker;
  }
  return nullptr;
}

bool RoundMachine::all_ended() const {
  if (mode_ == Mode::kRunning && spawned_ < static_cast<int>(live_.workers.size())) return false;
  return std::none_of(live_.workers.begin(), live_.workers.end(),
                      [](const WorkerState& worker) { return worker.running; });
}

bool RoundMachine::all_completed() const {
  return !live_.workers.empty() &&
         std::all_of(live_.workers.begin(), live_.workers.end(),
                     [](const WorkerState& worker) { return worker.reason == "Completed"; });
}

int RoundMachine::result() const {
  if (all_completed()) return 0;
  const WorkerState* failure = first_failure();
  return failure != nullptr ? static_cast<int>(failure->exit_code) : 1;
}

// A controller that sees only the pod's end concludes from kExitStopped that all ranks have saved.
// Programs exit in many ways on SIGTERM, so their codes tell nothing.
int RoundMachine::result_of_stop() const {
  if (!assignment_ || !assignment_->train) return kExitStopped;
  const bool all_left =
      std::all_of(live_.workers.begin(), live_.workers.end(), [](const WorkerState& worker) {
        const bool has_saved = worker.exit_code == kExitStopped && worker.signal == 0;
        return !worker.running && (has_saved || worker.reason == "Completed");
      });
  if (all_left) return all_completed() ? 0 : kExitStopped;
  return first_failure() != nullptr ? result() : kExitKilled;
}

const char* RoundMachine::phase() const {
  switch (mode_) {
    case Mode::kIdle:
      return "Idle";
    case Mode::kClearing:
      return "Starting";
    case Mode::kStopping:
      return "Stopping";
    case Mode::kLeaving:
    case Mode::kGone:
      return "Exiting";
    case Mode::kRunning:
      break;
  }
  if (first_failure() != nullptr) return "Failed";
  if (all_completed()) return "Completed";
  return spawned_ < static_cast<int>(live_.workers.size()) ? "Starting" : "Running";
}

TimePoint RoundMachine::hold_deadline() const {
  return std::max(last_contact_, ended_at_) + limits_.hold;
}

WorkerState* RoundMachine::find(int64_t local_rank) {
  const auto index = static_cast<size_t>(local_rank);
  return local_rank >= 0 && index < live_.workers.size() ? &live_.workers[index] : nullptr;
}

}  // namespace lockstep::node
