#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "common/api/progress_page.h"
#include "common/api/round_channel.h"
#include "common/api/worker_config.h"
#include "common/base/json.h"

// A replacement for lockstep-worker in the agent's tests, called with `--config FILE`. Does what
// the config's job name says: orders joined by '+', each for all ranks or, with `@R`, for one rank:
//   print:TEXT   a line on stdout             error:TEXT  bytes on stderr, without a newline
//   flood:N      N lines on stdout            env:NAME    its value on stdout
//   step:N       step N on the page           steps:N     steps 0 to N, one after the other
//   unsaved:N    the save of step N failed, on the page
//   fds          its open descriptors         shm         adds 1 to shared memory
//   states       adds 1 to the memory for its states, and tells the sum
//   ignore       ignores SIGTERM              orphans     a child, and a process in its own
//   session, exit:N       exits with N                             which both ignore SIGTERM
//   signal:N     ends by signal N             pid         its process id
//   wait:N       waits N ms                   spin:N      uses N ms of CPU time
//   leave:N      leaves the round with exit code N, waits for the next, and obeys that one's orders
//   shut:N       leaves the round with exit code N, and listens to its agent no more
// Then it waits for SIGTERM and exits with kExitStopped.

namespace {

using namespace lockstep;

WorkerConfig read_config(const std::string& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto document = parse_json(text);
  if (!document.ok()) std::exit(kExitBadConfig);
  auto config = worker_config_from_json(*document);
  if (!config.ok()) {
    std::fprintf(stderr, "%s\n", config.error().message.c_str());
    std::exit(kExitBadConfig);
  }
  return std::move(config).value();
}

ProgressPage page_of(const WorkerConfig& config) {
  auto page = ProgressPage::attach(dup(static_cast<int>(config.progress_fd)));
  if (!page.ok()) std::exit(kExitBadConfig);
  return *std::move(page);
}

void write_progress(ProgressPage& page, const WorkerConfig& config, int64_t step) {
  ProgressNumbers numbers;
  numbers.round = static_cast<uint64_t>(config.world.round);
  numbers.phase = WorkerPhase::kTraining;
  numbers.step = step;
  numbers.steps = 100;
  numbers.tokens = step * 512;
  numbers.samples = step * 16;
  numbers.loss = 3.25;
  numbers.validation_loss = 3.5;
  numbers.gradient_norm = 0.5;
  numbers.learning_rate = 0.001;
  numbers.tokens_per_second = 2000;
  numbers.data_seconds = 0.001;
  numbers.forward_seconds = 0.002;
  numbers.backward_seconds = 0.003;
  numbers.communication_seconds = 0.004;
  numbers.update_seconds = 0.005;
  numbers.checkpoint_step = 5;
  page.write(numbers);
}

void write_failed_save(ProgressPage& page, int64_t step) {
  StorageNotes notes{.saved = 2, .failed = 1, .failed_step = step, .resumed_step = 0};
  notes.failure.assign("no space left on device");
  page.storage().write(notes);
}

void wait_for_ever() {
  while (true) pause();
}

// Starts a child in the worker's process group, and an orphaned grandchild in its own session.
void leave_orphans() {
  signal(SIGTERM, SIG_IGN);
  if (fork() == 0) wait_for_ever();
  const pid_t parent = fork();
  if (parent == 0) {
    setsid();
    if (fork() == 0) wait_for_ever();
    _exit(0);
  }
  waitpid(parent, nullptr, 0);
}

void list_descriptors() {
  for (int fd = 3; fd < 256; ++fd) {
    struct stat status = {};
    if (fstat(fd, &status) == 0) std::printf("fd:%d\n", fd);
  }
}

void count_in_shared_memory(const WorkerConfig& config) {
  const int fd = static_cast<int>(config.shm_fd);
  if (ftruncate(fd, 4096) != 0) std::exit(kExitBadConfig);
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) std::exit(kExitBadConfig);
  auto* count = static_cast<std::atomic<int>*>(memory);
  count->fetch_add(1);
  while (count->load() < config.world.processes_per_node) usleep(1000);
  std::printf("met %d\n", count->load());
}

void count_in_memory_of_states(const WorkerConfig& config) {
  const int fd = static_cast<int>(config.state_fd);
  int count = 0;
  if (fd >= 0 && pread(fd, &count, sizeof(count), 0) < 0) std::exit(kExitBadConfig);
  ++count;
  if (fd >= 0 && pwrite(fd, &count, sizeof(count), 0) != sizeof(count)) std::exit(kExitBadConfig);
  std::printf("states %d\n", count);
}

void serve(const WorkerConfig& config);

void leave(const WorkerConfig& config, int64_t exit_code) {
  const auto fd = static_cast<int>(config.rounds_fd);
  const LeftRound left{.round = config.world.round, .exit_code = exit_code};
  if (config.shm_fd >= 0) close(static_cast<int>(config.shm_fd));
  if (fd < 0 || !send_left(fd, left).ok()) std::exit(kExitBadConfig);
  while (true) {
    const auto next = receive_next(fd, 1000);
    if (!next.ok()) std::exit(kExitOwnError);
    if (!*next) continue;
    WorkerConfig config_of_next = read_config((*next)->config_path);
    config_of_next.shm_fd = (*next)->shm_fd;
    return serve(config_of_next);
  }
}

void shut(const WorkerConfig& config, int64_t exit_code) {
  const auto fd = static_cast<int>(config.rounds_fd);
  if (!send_left(fd, {.round = config.world.round, .exit_code = exit_code}).ok()) {
    std::exit(kExitBadConfig);
  }
  close(fd);
}

void spin(int milliseconds) {
  const clock_t end = clock() + milliseconds * (CLOCKS_PER_SEC / 1000);
  while (clock() < end) {
  }
}

void obey(const std::string& order, const std::string& value, const WorkerConfig& config) {
  const auto number = [&] { return std::atoi(value.c_str()); };
  if (order == "print") std::printf("%s\n", value.c_str());
  if (order == "error") std::fputs(value.c_str(), stderr);
  if (order == "flood") {
    for (int i = 0; i < number(); ++i)
      std::printf("line %d %s\n", i, std::string(100, 'x').c_str());
  }
  if (order == "env") std::printf("%s=%s\n", value.c_str(), std::getenv(value.c_str()));
  if (order == "fds") list_descriptors();
  if (order == "pid") std::printf("pid %d\n", getpid());
  if (order == "step") {
    ProgressPage page = page_of(config);
    write_progress(page, config, number());
  }
  if (order == "unsaved") {
    ProgressPage page = page_of(config);
    write_failed_save(page, number());
  }
  if (order == "steps") {
    ProgressPage page = page_of(config);
    for (int64_t step = 0; step <= number(); ++step) {
      write_progress(page, config, step);
      usleep(100'000);  // the duration of a step
    }
  }
  if (order == "shm") count_in_shared_memory(config);
  if (order == "states") count_in_memory_of_states(config);
  if (order == "ignore") signal(SIGTERM, SIG_IGN);
  if (order == "orphans") leave_orphans();
  std::fflush(stdout);
  if (order == "exit") _exit(number());
  if (order == "wait") usleep(static_cast<useconds_t>(number()) * 1000);
  if (order == "spin") spin(number());
  if (order == "shut") shut(config, number());
  if (order == "leave") leave(config, number());
  if (order == "signal") {
    signal(number(), SIG_DFL);
    raise(number());
  }
}

void serve(const WorkerConfig& config) {
  std::istringstream orders(config.job_name);
  for (std::string order; std::getline(orders, order, '+');) {
    const size_t at = order.find('@');
    if (at != std::string::npos && std::atoi(&order[at + 1]) != config.rank) continue;
    order = order.substr(0, at);
    const size_t colon = order.find(':');
    obey(order.substr(0, colon), colon == std::string::npos ? "" : order.substr(colon + 1), config);
  }
  wait_for_ever();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || std::string(argv[1]) != "--config") return kExitBadConfig;
  signal(SIGTERM, [](int) { _exit(kExitStopped); });
  serve(read_config(argv[2]));
}
