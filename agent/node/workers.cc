#include "agent/node/workers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "agent/node/board_watch.h"
#include "agent/node/files.h"
#include "agent/node/hang_watch.h"
#include "agent/node/rank_environment.h"
#include "agent/node/speed_watch.h"
#include "common/base/log.h"

namespace lockstep::node {
namespace {

// The most that is read from one worker before the others get their turn.
constexpr size_t kDrainBytesMax = 1u << 20;

void close_fd(int& fd) {
  if (fd >= 0) close(std::exchange(fd, -1));
}

// Creates empty shared memory for the ranks of one node. Each rank resizes it to the same size, so
// that only the first call has an effect, and seals it against shrinking. A single rank needs none.
int make_shared_memory(int64_t local_size) {
  if (local_size < 2) return -1;
  const int fd = memfd_create("lockstep-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0)
    log_warning("cannot create shared memory for the ranks", {{"error", std::strerror(errno)}});
  return fd;
}

// The limit for a rank that makes no progress. If there are other ranks, it is longer than their
// own limits, the longest of which is kSilenceLimit, so that they detect a hung rank first. Workers
// whose servers update at once wait for no other worker, so nobody else detects it.
Duration hang_floor(const Assignment& assignment) {
  const Duration alone = std::chrono::seconds(assignment.hang_seconds);
  const auto& servers = assignment.parameter_servers;
  const bool waits_for_nobody =
      assignment.world.world_size() == 1 || (servers && servers->consistency == "asynchronous");
  return waits_for_nobody ? alone : std::max(alone, 2 * kSilenceLimit);
}

bool stores_states(const Launch& launch) {
  const CheckpointSpec& checkpoint = launch.config.checkpoint;
  return launch.rank == 0 && (!checkpoint.path.empty() || checkpoint.memory);
}

}  // namespace

struct WorkerSet::Worker {
  Worker(Launch launch_in, OutputQueue* output)
      : launch(std::move(launch_in)),
        log({.path = launch.log_path, .prefix = "[rank " + std::to_string(launch.rank) + "] "},
            output) {}
  ~Worker() {
    close_fd(output_fd);
    close_fd(rounds_fd);
  }

  bool in_round() const { return pid > 0 && !has_left; }

  // Reads its page; `samples` is 0 if the page has no GPU numbers.
  GpuNumbers gpu() const {
    GpuNumbers numbers;
    if (page) page->gpu().read(numbers);
    return numbers;
  }

  // Returns what its program has last reported, and the rates of what it counts.
  StepNumbers reported_by_program() const {
    StepNumbers numbers = file->lines().last();
    numbers.samples_per_second = samples.per_second();
    numbers.tokens_per_second = tokens.per_second();
    return numbers;
  }

  Launch launch;
  WorkerLog log;
  std::optional<ProgressPage> page;  // only for a lockstep-worker
  BoardWatch board;
  SpeedWatch speed;
  ProgressNumbers numbers;
  bool reported = false;             // numbers are from this round
  StorageNotes notes;                // only of rank 0
  std::optional<ProgressFile> file;  // only for a command
  GrowthRate samples;
  GrowthRate tokens;
  std::optional<HangWatch> watch;             // only for a lockstep-worker
  std::optional<SilenceWatch> silence_watch;  // only for a command with a limit
  bool hung = false;
  pid_t pid = 0;          // 0: not running
  bool has_left = false;  // its process waits for the next round
  // Its process has served an earlier round. Until its page has numbers of this one, it is that
  // one's.
  bool has_stayed = false;
  int output_fd = -1;       // the pipe's read end
  int rounds_fd = -1;       // the agent's end of its round channel; -1: it ends with its round
  bool wants_view = false;  // the newest view has not been sent
};

struct WorkerSet::Survivor {
  pid_t pid = 0;
  int output_fd = -1;
  int rounds_fd = -1;
  WorkerConfig config = {};  // for the numbers that descriptors have in its process
  std::optional<ProgressPage> page = {};
};

WorkerSet::WorkerSet(LaunchContext context, Cgroup cgroup, OutputQueue* output)
    : context_(std::move(context)), cgroup_(std::move(cgroup)), output_(output) {}

WorkerSet::~WorkerSet() {
  keep_states(0);
}

void WorkerSet::keep_states(int64_t ranks) {
  if (std::ssize(state_fds_) != ranks) {
    for (int& fd : state_fds_) close_fd(fd);
    state_fds_.assign(static_cast<size_t>(ranks), -1);
  }
  for (int& fd : state_fds_) {
    if (fd < 0) fd = memfd_create("lockstep-states", MFD_CLOEXEC);
    if (fd >= 0) continue;
    log_warning("cannot create memory for a rank's states", {{"error", std::strerror(errno)}});
  }
}

void WorkerSet::start(RoundMachine& machine, TimePoint now) {
  const Assignment& assignment = machine.assignment();
  std::vector<Survivor> survivors = take_survivors(assignment);
  clear();
  const int64_t local_size = assignment.world.processes_per_node;
  share_ = 1 / static_cast<double>(std::ranges::count(assignment.world.members, MemberRole::kWorker,
                                                      &WorldMember::role));
  is_command_ = !assignment.train;
  totals_.resize(static_cast<size_t>(local_size));
  oom_kills_ = cgroup_.oom_kills();
  write_round_files(assignment);
  keep_states(assignment.train && assignment.checkpoint.memory ? local_size : 0);
  int shm_fd = assignment.train ? make_shared_memory(local_size) : -1;
  const auto stayed = std::ranges::count_if(survivors, [](const auto& one) { return one.pid > 0; });
  for (int64_t local_rank = 0; local_rank < local_size; ++local_rank) {
    Launch launch = make_launch(assignment, local_rank, context_);
    workers_.push_back(std::make_unique<Worker>(std::move(launch), output_));
    Worker& worker = *workers_.back();
    if (stores_states(worker.launch)) has_stored_ = true;
    if (assignment.train) {
      worker.watch.emplace(hang_floor(assignment),
                           longest_step(assignment.world, assignment.train->batch));
    }
    if (!assignment.train && assignment.command_hang_seconds > 0) {
      worker.silence_watch.emplace(std::chrono::seconds(assignment.command_hang_seconds));
    }
    Survivor& survivor = survivors[static_cast<size_t>(local_rank)];
    if (const Status status = start_one(local_rank, assignment, shm_fd, std::move(survivor));
        status.ok()) {
      machine.spawned(local_rank, worker.pid);
    } else {
      log_error("cannot start a worker",
                {{"rank", worker.launch.rank}, {"error", status.error().message}});
      machine.start_failed(local_rank, status.error().message, now);
    }
  }
  has_started_ = true;
  close_fd(shm_fd);
  log_info("started the workers of a round",
           {{"round", machine.round()}, {"processes", local_size}, {"stayed", stayed}});
}

// The process must have the descriptor for this rank's states, or need none.
bool WorkerSet::can_serve(size_t local_rank, const Assignment& next) const {
  const Worker& worker = *workers_[local_rank];
  if (!next.train || next.gpus_per_node > 0) return false;
  if (worker.pid <= 0 || !worker.has_left || worker.rounds_fd < 0) return false;
  if (std::ssize(workers_) != next.world.processes_per_node) return false;
  const bool keeps_states = next.checkpoint.memory.has_value();
  if (keeps_states != !state_fds_.empty()) return false;
  return worker.launch.config.state_fd == (keeps_states ? state_fds_[local_rank] : -1);
}

std::set<pid_t> WorkerSet::survivors(const Assignment& next) const {
  std::set<pid_t> pids;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (can_serve(i, next)) pids.insert(workers_[i]->pid);
  }
  return pids;
}

bool WorkerSet::any_may_leave() const {
  return std::ranges::any_of(workers_, [](const auto& worker) {
    if (worker->launch.config.parameter_servers) return false;  // it ends with its round
    const bool trains = worker->reported && worker->numbers.phase >= WorkerPhase::kTraining;
    return worker->in_round() && worker->rounds_fd >= 0 && trains && !worker->hung;
  });
}

void WorkerSet::give_up_all_but(const std::set<pid_t>& pids) {
  for (const auto& worker : workers_) {
    if (!pids.contains(worker->pid)) close_fd(worker->rounds_fd);
  }
}

std::vector<WorkerSet::Survivor> WorkerSet::take_survivors(const Assignment& next) {
  std::vector<Survivor> survivors(static_cast<size_t>(next.world.processes_per_node));
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!can_serve(i, next)) continue;
    Worker& worker = *workers_[i];
    drain(worker);
    survivors[i] = {.pid = std::exchange(worker.pid, 0),
                    .output_fd = std::exchange(worker.output_fd, -1),
                    .rounds_fd = std::exchange(worker.rounds_fd, -1),
                    .config = worker.launch.config,
                    .page = std::move(worker.page)};
    worker.page.reset();
  }
  return survivors;
}

// A failure is only logged; the program reports it too if it needs the file.
void WorkerSet::write_round_files(const Assignment& assignment) const {
  for (const RoundFile& file : round_files(assignment, context_.work_folder)) {
    if (const Status status = write_file_atomically(file.path, file.text); !status.ok()) {
      log_error("cannot write a round's file", {{"error", status.error().message}});
    }
  }
}

Status WorkerSet::start_one(int64_t local_rank, const Assignment& assignment, int shm_fd,
                            Survivor&& survivor) {
  Worker& worker = *workers_[static_cast<size_t>(local_rank)];
  if (survivor.pid > 0) return hand_over(worker, std::move(survivor), shm_fd);
  if (has_started_) ++restarts_;
  Launch& launch = worker.launch;
  std::vector<int> inherited_fds;
  std::array<int, 2> rounds = {-1, -1};
  if (assignment.train) {
    TRY_ASSIGN(worker.page, ProgressPage::create());
    fcntl(worker.page->fd(), F_SETFD, FD_CLOEXEC);  // the other ranks must not inherit it
    const bool may_stay = context_.keep_survivors && launch.config.gpu < 0;  // on a GPU none stays
    if (may_stay || assignment.parameter_servers) {
      TRY_ASSIGN(rounds, make_round_channel());
      worker.rounds_fd = rounds[0];
    }
    launch.config.progress_fd = worker.page->fd();
    launch.config.shm_fd = shm_fd;
    if (!state_fds_.empty()) launch.config.state_fd = state_fds_[static_cast<size_t>(local_rank)];
    launch.config.rounds_fd = rounds[1];
    for (const int64_t fd : {launch.config.progress_fd, launch.config.shm_fd,
                             launch.config.state_fd, launch.config.rounds_fd}) {
      if (fd >= 0) inherited_fds.push_back(static_cast<int>(fd));
    }
  }
  const Status status = spawn(worker, inherited_fds);
  close_fd(rounds[1]);
  return status;
}

Status WorkerSet::spawn(Worker& worker, const std::vector<int>& inherited_fds) {
  Launch& launch = worker.launch;
  if (worker.page) {
    TRY(write_file_atomically(launch.config_path, dump_json(to_json(launch.config))));
  }
  if (!launch.progress_path.empty()) {
    worker.file.emplace(launch.progress_path);
    TRY(worker.file->reset());
  }
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return errno_error("[spawn] pipe", errno);
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  worker.output_fd = output[0];
  const Result<pid_t> pid = spawn_process({.argv = launch.argv,
                                           .env = launch.env,
                                           .output_fd = output[1],
                                           .inherited_fds = inherited_fds});
  close(output[1]);
  if (!pid.ok()) return pid.error();
  worker.pid = *pid;
  return {};
}

Status WorkerSet::hand_over(Worker& worker, Survivor&& survivor, int shm_fd) {
  WorkerConfig& config = worker.launch.config;
  config.progress_fd = survivor.config.progress_fd;
  config.state_fd = survivor.config.state_fd;
  config.rounds_fd = survivor.config.rounds_fd;
  worker.page = std::move(survivor.page);
  worker.output_fd = survivor.output_fd;
  worker.rounds_fd = survivor.rounds_fd;
  worker.pid = survivor.pid;
  worker.has_stayed = true;
  Status status = write_file_atomically(worker.launch.config_path, dump_json(to_json(config)));
  if (status.ok()) status = send_next(worker.rounds_fd, {worker.launch.config_path, shm_fd});
  if (status.ok()) return status;
  // Its end fails the round, as that of any worker.
  log_warning("a worker that stayed cannot be given its next round; killing it",
              {{"rank", worker.launch.rank}, {"error", status.error().message}});
  kill(worker.pid, SIGKILL);
  return {};
}

void WorkerSet::give_view(const std::string& text) {
  view_ = text;
  for (const auto& worker : workers_) worker->wants_view = worker->in_round();
  send_views();
}

// A process whose channel fails is about to end.
void WorkerSet::send_views() {
  for (const auto& worker : workers_) {
    if (!worker->wants_view || !worker->in_round() || worker->rounds_fd < 0) continue;
    const Result<bool> sent = send_view(worker->rounds_fd, view_);
    worker->wants_view = sent.ok() && !*sent;
    if (sent.ok()) continue;
    log_warning("cannot give a view of the servers to a process",
                {{"rank", worker->launch.rank}, {"error", sent.error().message}});
  }
}

void WorkerSet::terminate() const {
  for (const auto& worker : workers_) {
    if (worker->pid > 0) kill(is_command_ ? -worker->pid : worker->pid, SIGTERM);
  }
}

void WorkerSet::clear() {
  for (const auto& worker : workers_) {
    drain(*worker);
    worker->log.finish();
  }
  workers_.clear();
}

std::set<pid_t> WorkerSet::leaders() const {
  std::set<pid_t> pids;
  for (const auto& worker : workers_) {
    if (worker->pid > 0) pids.insert(worker->pid);
  }
  return pids;
}

void WorkerSet::on_end(const ProcessEnd& ended, RoundMachine& machine, TimePoint now) {
  for (size_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
    Worker& worker = *workers_[local_rank];
    if (worker.pid != ended.pid) continue;
    worker.pid = 0;
    const bool had_left = std::exchange(worker.has_left, false);
    RankTotals& totals = totals_[local_rank];
    totals.ended_cpu_seconds += std::max(totals.running_cpu_seconds, ended.cpu_seconds);
    totals.running_cpu_seconds = 0;
    if (!had_left) add_notes(worker.notes, ended_storage_);
    drain(worker);
    worker.log.finish();
    if (had_left) continue;  // the machine knows
    WorkerEnd end = {.exit_code = ended.exit_code,
                     .signal = ended.signal,
                     .log_tail = worker.log.tail(),
                     .hung = worker.hung};
    if (end.hung) {
      end.log_tail += "rank " + std::to_string(worker.launch.rank) + " hung after step " +
                      std::to_string(worker.file ? worker.file->lines().last().step.value_or(0)
                                                 : worker.numbers.step.value_or(0));
    }
    if (const GpuNumbers gpu = worker.gpu(); gpu.samples > 0) {
      add_xids(gpu, totals.ended_xids);
      if (ended.exit_code != 0) end.log_tail += xids_text(gpu);
    }
    const int64_t kills = cgroup_.oom_kills();
    if (!end.hung && ended.signal == SIGKILL && kills > oom_kills_ && oom_kills_ >= 0) {
      end.oom_killed = true;
      ++oom_kills_;
    }
    log_info(
        "worker exited",
        {{"rank", worker.launch.rank}, {"exitCode", ended.exit_code}, {"signal", ended.signal}});
    machine.exited(worker.launch.round, static_cast<int64_t>(local_rank), end, now);
  }
}

void WorkerSet::read_departures(RoundMachine& machine, TimePoint now, WallTime wall) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = *workers_[i];
    if (!worker.in_round() || worker.rounds_fd < 0) continue;
    const std::optional<LeftRound> left = receive_left(worker.rounds_fd);
    if (!left || left->round != worker.launch.round) continue;
    read_page(i, machine, now, wall);  // the last numbers, before the departure
    read_storage(i, machine);
    on_left(i, *left, machine, now);
  }
}

void WorkerSet::on_left(size_t local_rank, const LeftRound& left, RoundMachine& machine,
                        TimePoint now) {
  Worker& worker = *workers_[local_rank];
  worker.has_left = true;
  add_notes(worker.notes, ended_storage_);
  drain(worker);
  log_info("worker left its round and stays",
           {{"rank", worker.launch.rank}, {"exitCode", left.exit_code}});
  machine.exited(worker.launch.round, static_cast<int64_t>(local_rank),
                 {.exit_code = left.exit_code, .log_tail = worker.log.tail()}, now);
}

void WorkerSet::add_polls(std::vector<pollfd>& polls) const {
  for (const auto& worker : workers_) {
    if (worker->output_fd >= 0) polls.push_back({worker->output_fd, POLLIN, 0});
    if (worker->in_round() && worker->rounds_fd >= 0) {
      polls.push_back({worker->rounds_fd, POLLIN, 0});
    }
  }
}

void WorkerSet::read_output(TimePoint now) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (output_ != nullptr && !output_->has_room(now)) return;
    drain(*workers_[first_to_read_++ % workers_.size()]);
  }
}

void WorkerSet::drain(Worker& worker) {
  char buffer[64 * 1024];
  for (size_t total = 0; worker.output_fd >= 0 && total < kDrainBytesMax;) {
    const ssize_t bytes = read(worker.output_fd, buffer, sizeof(buffer));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) return;
    if (bytes <= 0) {
      close_fd(worker.output_fd);
      return;
    }
    worker.log.append({buffer, static_cast<size_t>(bytes)});
    total += static_cast<size_t>(bytes);
    if (output_ != nullptr) output_->flush();
  }
}

void WorkerSet::read_progress(RoundMachine& machine, TimePoint now, WallTime wall) {
  for (size_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
    if (workers_[local_rank]->page && !workers_[local_rank]->has_left) {
      read_page(local_rank, machine, now, wall);
      read_storage(local_rank, machine);
      read_board(local_rank, machine, now);
    }
    if (workers_[local_rank]->watch) watch_for_hang(*workers_[local_rank], now);
    if (!workers_[local_rank]->file) continue;
    read_file(local_rank, machine, now, wall);
    watch_command(*workers_[local_rank], now);
  }
}

void WorkerSet::read_page(size_t local_rank, RoundMachine& machine, TimePoint now, WallTime wall) {
  Worker& worker = *workers_[local_rank];
  ProgressNumbers numbers;
  if (!worker.page->read(numbers)) return;
  const auto round = static_cast<int64_t>(numbers.round);
  if (round != machine.round()) return;  // not written yet
  if (worker.reported && numbers == worker.numbers) return;
  worker.numbers = numbers;
  worker.reported = true;
  if (local_rank == 0) counters_.observe(numbers, share_);
  machine.progress(round, static_cast<int64_t>(local_rank), numbers, wall);
  worker.speed.observe(numbers, now);
  machine.update_speed(round, static_cast<int64_t>(local_rank), worker.speed.speed());
}

void WorkerSet::read_storage(size_t local_rank, RoundMachine& machine) {
  Worker& worker = *workers_[local_rank];
  StorageNotes notes;
  if (worker.launch.rank != 0 || (worker.has_stayed && !worker.reported)) return;
  if (!worker.page->storage().read(notes)) return;
  if (notes == worker.notes) return;
  worker.notes = notes;
  machine.storage(worker.launch.round, static_cast<int64_t>(local_rank), notes);
}

void WorkerSet::read_board(size_t local_rank, RoundMachine& machine, TimePoint now) {
  Worker& worker = *workers_[local_rank];
  if (!worker.in_round() || (worker.has_stayed && !worker.reported)) return;
  machine.update_health(worker.launch.round, static_cast<int64_t>(local_rank),
                        worker.board.poll(worker.page->board(), now));
}

void WorkerSet::watch_for_hang(Worker& worker, TimePoint now) {
  if (!worker.reported || !worker.in_round() || worker.hung) return;
  if (!worker.watch->is_hung(worker.numbers, now)) return;
  log_warning("worker hung after a step; killing it",
              {{"rank", worker.launch.rank}, {"step", worker.numbers.step.value_or(0)}});
  worker.hung = true;
  close_fd(worker.rounds_fd);  // too late to leave
  kill(worker.pid, SIGKILL);
}

void WorkerSet::watch_command(Worker& worker, TimePoint now) {
  if (!worker.silence_watch || worker.pid <= 0 || worker.hung) return;
  if (!worker.silence_watch->is_silent(worker.file->lines().accepted(), now)) return;
  log_warning(
      "a command's rank reports nothing any more; killing it",
      {{"rank", worker.launch.rank}, {"step", worker.file->lines().last().step.value_or(0)}});
  worker.hung = true;
  kill(-worker.pid, SIGKILL);
}

void WorkerSet::read_file(size_t local_rank, RoundMachine& machine, TimePoint now, WallTime wall) {
  Worker& worker = *workers_[local_rank];
  const uint64_t before = worker.file->lines().accepted();
  if (!worker.file->poll() || worker.file->lines().accepted() == before) return;
  ProgressNumbers numbers{worker.file->lines().last()};
  numbers.round = static_cast<uint64_t>(worker.launch.round);
  numbers.phase = WorkerPhase::kTraining;
  totals_[local_rank].train_counters.observe(numbers, 1);
  if (numbers.samples) worker.samples.add(*numbers.samples, now);
  if (numbers.tokens) worker.tokens.add(*numbers.tokens, now);
  worker.reported = true;
  machine.program_progress(worker.launch.round, static_cast<int64_t>(local_rank),
                           numbers.step.value_or(0), node_progress(wall));
}

ProgressStatus WorkerSet::node_progress(WallTime wall) const {
  std::vector<StepNumbers> ranks;
  for (const auto& worker : workers_) {
    if (worker->file && worker->reported) ranks.push_back(worker->reported_by_program());
  }
  return progress_of_node(ranks, wall);
}

bool WorkerSet::any_running() const {
  return !leaders().empty();
}

void WorkerSet::describe_gpu(size_t local_rank, MetricsInput& input) const {
  const Worker& worker = *workers_[local_rank];
  RankGpu rank{.rank = worker.launch.rank, .xids = totals_[local_rank].ended_xids};
  const GpuNumbers gpu = worker.gpu();
  if (worker.pid > 0 && gpu.samples > 0) {
    add_xids(gpu, rank.xids);
    rank.now = gpu;
  }
  if (rank.now || !rank.xids.empty()) input.gpus.push_back(std::move(rank));
}

void WorkerSet::describe_storage(MetricsInput& input) const {
  if (!has_stored_) return;
  input.storage = ended_storage_;
  for (const auto& worker : workers_) {
    if (worker->in_round()) add_notes(worker->notes, *input.storage);
  }
}

void WorkerSet::describe(MetricsInput& input) {
  input.workers_running =
      std::ranges::count_if(workers_, [](const auto& worker) { return worker->in_round(); });
  input.worker_restarts = restarts_;
  input.counts = counters_.counts();
  input.share = share_;
  describe_storage(input);
  const std::map<pid_t, TreeUsage> usage = usage_of_trees(leaders());
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = *workers_[i];
    if (worker.page && worker.reported) input.ranks.push_back({worker.launch.rank, worker.numbers});
    if (worker.file) {
      input.programs.push_back({.rank = worker.launch.rank,
                                .numbers = worker.reported_by_program(),
                                .lines = worker.file->lines().accepted(),
                                .lines_rejected = worker.file->lines().rejected()});
    }
    RankUsage rank{.rank = worker.launch.rank};
    if (const auto found = usage.find(worker.pid); found != usage.end()) {
      rank.tree = found->second;
      totals_[i].running_cpu_seconds =
          std::max(totals_[i].running_cpu_seconds, found->second.cpu_seconds);
    }
    rank.cpu_seconds = totals_[i].ended_cpu_seconds + totals_[i].running_cpu_seconds;
    input.usage.push_back(rank);
    describe_gpu(i, input);
    for (const auto& [metric, count] : totals_[i].train_counters.counts()) {
      input.counts[metric] += count;
    }
  }
}

}  // namespace lockstep::node
