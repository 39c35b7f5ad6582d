#include "agent/node/workers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "agent/node/files.h"
#include "common/base/log.h"

namespace lockstep {
namespace {

// So much is read of one worker before the others get their turn.
constexpr size_t kDrainBytesMax = 1u << 20;

void close_fd(int& fd) {
  if (fd >= 0) close(std::exchange(fd, -1));
}

// Memory for the ranks of one node, empty: each of them gives it the same size, which the second
// to do so doesn't change. Alone, a rank needs none.
int make_shared_memory(int64_t local_size) {
  if (local_size < 2) return -1;
  const int fd = memfd_create("lockstep-shm", MFD_CLOEXEC);
  if (fd < 0) log_warning("no shared memory for the ranks", {{"error", std::strerror(errno)}});
  return fd;
}

}  // namespace

struct WorkerSet::Worker {
  Worker(Launch launch_in, OutputQueue* output)
      : launch(std::move(launch_in)),
        log({.path = launch.log_path, .prefix = "[rank " + std::to_string(launch.rank) + "] "},
            output) {}
  ~Worker() { close_fd(output_fd); }

  Launch launch;
  WorkerLog log;
  std::optional<ProgressPage> page;
  ProgressNumbers numbers;
  bool reported = false;  // numbers are of this round
  pid_t pid = 0;          // 0: doesn't run
  int output_fd = -1;     // the pipe's reading end
};

WorkerSet::WorkerSet(LaunchContext context, Cgroup cgroup, OutputQueue* output)
    : context_(std::move(context)), cgroup_(std::move(cgroup)), output_(output) {}

WorkerSet::~WorkerSet() = default;

void WorkerSet::start(RoundMachine& machine, TimePoint now) {
  clear();
  const Assignment& assignment = machine.assignment();
  const int64_t local_size = assignment.world.processes_per_node;
  share_ = static_cast<double>(local_size) / static_cast<double>(assignment.world.world_size());
  restarts_ += started_ > 0 ? local_size : 0;
  oom_kills_ = cgroup_.oom_kills();
  int shm_fd = make_shared_memory(local_size);
  for (int64_t local_rank = 0; local_rank < local_size; ++local_rank) {
    Launch launch = make_launch(assignment, local_rank, context_);
    workers_.push_back(std::make_unique<Worker>(std::move(launch), output_));
    Worker& worker = *workers_.back();
    ++started_;
    if (const Status status = start_one(worker, assignment, shm_fd); status.ok()) {
      machine.spawned(local_rank, worker.pid);
    } else {
      log_error("a worker can't be started",
                {{"rank", worker.launch.rank}, {"error", status.error().message}});
      machine.start_failed(local_rank, status.error().message, now);
    }
  }
  close_fd(shm_fd);
  log_info("started the workers of a round",
           {{"round", machine.round()}, {"processes", local_size}});
}

Status WorkerSet::start_one(Worker& worker, const Assignment& assignment, int shm_fd) {
  Launch& launch = worker.launch;
  SpawnOptions options = {.argv = launch.argv, .env = launch.env};
  if (assignment.train) {
    TRY_ASSIGN(worker.page, ProgressPage::create());
    fcntl(worker.page->fd(), F_SETFD, FD_CLOEXEC);  // the other ranks don't get it
    launch.config.progress_fd = worker.page->fd();
    launch.config.shm_fd = shm_fd;
    options.inherited_fds.push_back(worker.page->fd());
    if (shm_fd >= 0) options.inherited_fds.push_back(shm_fd);
    TRY(write_file_atomically(launch.config_path, dump_json(to_json(launch.config))));
  }
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return errno_error("[spawn] pipe", errno);
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  worker.output_fd = output[0];
  options.output_fd = output[1];
  const Result<pid_t> pid = spawn_process(options);
  close(output[1]);
  if (!pid.ok()) return pid.error();
  worker.pid = *pid;
  return {};
}

void WorkerSet::terminate() const {
  for (const auto& worker : workers_) {
    if (worker->pid > 0) kill(worker->pid, SIGTERM);
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
    drain(worker);
    worker.log.finish();
    WorkerEnd end = {ended.exit_code, ended.signal, false, worker.log.tail()};
    const int64_t kills = cgroup_.oom_kills();
    if (ended.signal == SIGKILL && kills > oom_kills_ && oom_kills_ >= 0) {
      end.oom_killed = true;
      ++oom_kills_;
    }
    log_info(
        "a worker has ended",
        {{"rank", worker.launch.rank}, {"exitCode", ended.exit_code}, {"signal", ended.signal}});
    machine.exited(worker.launch.round, static_cast<int64_t>(local_rank), end, now);
  }
}

void WorkerSet::add_polls(std::vector<pollfd>& polls) const {
  for (const auto& worker : workers_) {
    if (worker->output_fd >= 0) polls.push_back({worker->output_fd, POLLIN, 0});
  }
}

void WorkerSet::read_output() {
  for (const auto& worker : workers_) drain(*worker);
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

void WorkerSet::read_progress(RoundMachine& machine, WallTime wall) {
  for (size_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
    Worker& worker = *workers_[local_rank];
    ProgressNumbers numbers;
    if (!worker.page || !worker.page->read(numbers)) continue;
    const auto round = static_cast<int64_t>(numbers.round);
    if (round != machine.round()) continue;  // not written yet
    if (worker.reported && std::memcmp(&numbers, &worker.numbers, sizeof(numbers)) == 0) continue;
    worker.numbers = numbers;
    worker.reported = true;
    if (local_rank == 0) counters_.observe(numbers, share_);
    machine.progress(round, static_cast<int64_t>(local_rank), numbers, wall);
  }
}

bool WorkerSet::any_running() const {
  return !leaders().empty();
}

void WorkerSet::describe(MetricsInput& input) const {
  input.workers_running = static_cast<int64_t>(leaders().size());
  input.worker_restarts = restarts_;
  input.tokens = counters_.tokens();
  input.samples = counters_.samples();
  input.share = share_;
  for (const auto& worker : workers_) {
    if (worker->reported) input.ranks.push_back({worker->launch.rank, worker->numbers});
  }
}

}  // namespace lockstep
