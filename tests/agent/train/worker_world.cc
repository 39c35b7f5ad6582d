#include "tests/agent/train/worker_world.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "agent/comm/make_communicator.h"
#include "agent/train/checkpoint/checkpoint_folder.h"
#include "common/api/round_channel.h"
#include "common/api/servers_view.h"
#include "common/base/json.h"
#include "common/base/random.h"
#include "tests/agent/train/stored_tensors.h"

namespace lockstep::train {
namespace {

// Returns an address that no other test process uses at the same time.
std::string node_host(int64_t node) {
  const int pid = getpid();
  return "127." + std::to_string(1 + pid / 62500 % 250) + "." +
         std::to_string(1 + pid / 250 % 250) + "." + std::to_string(1 + (pid + node * 97) % 250);
}

// Returns a free port on the host.
int64_t free_port(const std::string& host) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  EXPECT_EQ(inet_pton(AF_INET, host.c_str(), &address.sin_addr), 1);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  socklen_t size = sizeof(address);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  // Leaves room for the ports of the node's other ranks.
  return std::min<int64_t>(ntohs(address.sin_port), 65000);
}

}  // namespace

std::string easy_text(size_t bytes) {
  static constexpr const char* kWords[] = {"and", "the",  "light", "was",   "upon", "waters",
                                           "God", "said", "let",   "there", "be",   "night"};
  Random random(11);
  std::string text;
  while (text.size() < bytes) {
    text += kWords[random.below(std::size(kWords))];
    text += random.below(8) == 0 ? ".\n" : " ";
  }
  text.resize(bytes);
  return text;
}

WorkerWorld::WorkerWorld(Options options)
    : options_(std::move(options)), checkpoints_(folder_.file("checkpoints")) {
  if (options_.train.data.path.empty() && options_.train.data.features.empty()) {
    options_.train.data.path = folder_.write("text", easy_text(20000));
  }
  folder_.write("token", "secret");
}

WorkerWorld::~WorkerWorld() {
  for (const Process& process : processes_) {
    if (process.pid > 0) ::kill(process.pid, SIGKILL);
  }
  wait();
  for (const int fd : state_fds_) close(fd);
  for (const int fd : channels_) close(fd);
}

void WorkerWorld::give_view(int64_t rank, const std::string& view) {
  static_cast<void>(send_view(channels_[static_cast<size_t>(rank)], view));
}

void WorkerWorld::start_again(int64_t rank, const std::string& view) {
  Result<ProgressPage> page = ProgressPage::create();
  ASSERT_TRUE(page.ok()) << page.error().message;
  if (rank == ranks()) {
    processes_.emplace_back();
    channels_.push_back(-1);
    pages_.push_back(*std::move(page));
  } else {
    ASSERT_FALSE(runs(rank));
    pages_[static_cast<size_t>(rank)] = *std::move(page);
  }
  begins_in_ = view;
  spawn(rank, -1);
  begins_in_.clear();
}

void WorkerWorld::lose_memory(int64_t rank) {
  int& fd = state_fds_[static_cast<size_t>(rank)];
  close(fd);
  fd = memfd_create("test-states", 0);
}

void WorkerWorld::change_nodes(const std::vector<int64_t>& from) {
  std::vector<int> before = std::exchange(state_fds_, {});
  for (const int64_t node : from) {
    for (int64_t local = 0; local < options_.per_node; ++local) {
      const auto rank = static_cast<size_t>(node * options_.per_node + local);
      const bool is_new = node < 0 || options_.memory_every == 0;
      state_fds_.push_back(is_new ? memfd_create("test-states", 0)
                                  : std::exchange(before[rank], -1));
    }
  }
  for (const int fd : before) {
    if (fd >= 0) close(fd);
  }
  options_.nodes = std::ssize(from);
}

WorkerConfig WorkerWorld::config_of(int64_t rank) const {
  WorkerConfig config;
  config.job_name = "test";
  config.world = world_;
  config.hash = world_hash(world_);
  config.rank = rank;
  config.gpu = options_.gpu;
  config.gpus = options_.gpu < 0 ? 0 : size();
  config.train = options_.train;
  config.parameter_servers = options_.servers;
  if (options_.last_seed && rank == size() - 1) config.train.seed = *options_.last_seed;
  config.checkpoint = {.path = options_.stores ? checkpoints_ : "",
                       .everySteps = options_.checkpoint_every,
                       .atEnd = options_.checkpoint_at_end,
                       .keep = options_.checkpoint_keep};
  if (options_.memory_every > 0) {
    config.checkpoint.memory = {.everySteps = options_.memory_every,
                                .copies = options_.memory_copies};
    config.state_fd = state_fds_[static_cast<size_t>(rank)];
  }
  config.threads = 1;
  config.token_file = folder_.file("token");
  config.rendezvous_timeout_seconds = 60;
  config.hang_seconds = options_.hang_seconds;
  config.progress_fd = pages_[static_cast<size_t>(rank)].fd();
  config.servers_view = begins_in_;
  if (options_.change) options_.change(config);
  return config;
}

void WorkerWorld::spawn(int64_t rank, int shm_fd) {
  WorkerConfig config = config_of(rank);
  config.shm_fd = shm_fd;
  if (gives_views()) {
    const Result<std::array<int, 2>> channel = make_round_channel();
    ASSERT_TRUE(channel.ok()) << channel.error().message;
    close(std::exchange(channels_[static_cast<size_t>(rank)], (*channel)[0]));
    config.rounds_fd = (*channel)[1];
  }
  const std::string name = "rank-" + std::to_string(rank);
  const std::string file = folder_.write(name + ".json", dump_json(to_json(config)));
  const std::string log = folder_.file(name + ".log");
  const std::string program = std::string(LOCKSTEP_BIN_DIR) + "/" + options_.program;
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(out, STDERR_FILENO);
    if (config.rounds_fd >= 0) fcntl(static_cast<int>(config.rounds_fd), F_SETFD, 0);
    if (!options_.max_cpu_isa.empty() && rank == size() - 1) {
      setenv("LOCKSTEP_MAX_CPU_ISA", options_.max_cpu_isa.c_str(), 1);
    }
    execl(program.c_str(), program.c_str(), "--config", file.c_str(), nullptr);
    _exit(127);
  }
  processes_[static_cast<size_t>(rank)].pid = pid;
  if (config.rounds_fd >= 0) close(static_cast<int>(config.rounds_fd));
}

void WorkerWorld::start(int64_t without) {
  ++round_;
  TrainingJobSpec spec;
  spec.nodes = options_.nodes;
  spec.processesPerNode = options_.per_node;
  spec.parallelism.pipeline = options_.pipeline;
  spec.parallelism.pipelineSchedule = options_.schedule;
  spec.train = options_.train;
  spec.parameterServers = options_.servers;
  if (options_.encrypts) spec.security.encryption = "required";
  if (options_.change_spec) options_.change_spec(spec);
  WorldInput input{.job_uid = "test-uid", .round = round_, .members = {}};
  for (int64_t node = 0; node < pods(); ++node) {
    const std::string host = node_host(node);
    input.members.push_back({.index = node,
                             .incarnation = 1,
                             .host = host,
                             .port = free_port(host),
                             .role = role_of_node(spec, node)});
  }
  Result<WorldAssignment> world = make_world(spec, input);
  ASSERT_TRUE(world.ok()) << world.error().message;
  world_ = *std::move(world);
  while (options_.memory_every > 0 && std::ssize(state_fds_) < size()) {
    state_fds_.push_back(memfd_create("test-states", 0));
  }
  processes_.assign(static_cast<size_t>(size()), {});
  for (const int fd : channels_) close(fd);
  channels_.assign(static_cast<size_t>(size()), -1);
  pages_.clear();
  for (int64_t rank = 0; rank < size(); ++rank) {
    Result<ProgressPage> page = ProgressPage::create();
    ASSERT_TRUE(page.ok()) << page.error().message;
    pages_.push_back(std::move(*page));
  }
  if (options_.server_places > 0) {
    const auto servers = static_cast<size_t>(options_.servers->nodes);
    begins_in_ = text_of(first_servers_view(servers, options_.server_places));
  }
  for (int64_t node = 0; node < pods(); ++node) {
    int shm_fd = -1;
    if (options_.per_node > 1) {
      shm_fd = memfd_create("test-shm", MFD_ALLOW_SEALING);
      const size_t bytes = comm::shm_bytes(static_cast<int>(options_.per_node));
      ASSERT_EQ(ftruncate(shm_fd, static_cast<off_t>(bytes)), 0);
    }
    for (int64_t local = 0; local < options_.per_node; ++local) {
      const int64_t rank = node * options_.per_node + local;
      if (rank != without) spawn(rank, shm_fd);
    }
    if (shm_fd >= 0) close(shm_fd);
  }
  begins_in_.clear();
}

int WorkerWorld::exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::vector<int> WorkerWorld::wait() {
  std::vector<int> codes;
  for (Process& process : processes_) {
    int status = 0;
    rusage usage{};
    if (process.pid > 0 && wait4(process.pid, &status, 0, &usage) == process.pid) {
      process.exit_code = exit_code_of(status);
      process.peak_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
      process.pid = -1;
    }
    codes.push_back(process.exit_code);
  }
  return codes;
}

void WorkerWorld::run() {
  ASSERT_NO_FATAL_FAILURE(start());
  const std::vector<int> codes = wait();
  for (int64_t rank = 0; rank < size(); ++rank) {
    ASSERT_EQ(codes[static_cast<size_t>(rank)], 0) << "rank " << rank << ":\n" << log(rank);
  }
}

void WorkerWorld::kill(int64_t rank, int signal) {
  const pid_t pid = processes_[static_cast<size_t>(rank)].pid;
  if (pid > 0) ::kill(pid, signal);
}

bool WorkerWorld::runs(int64_t rank) {
  Process& process = processes_[static_cast<size_t>(rank)];
  int status = 0;
  if (process.pid > 0 && waitpid(process.pid, &status, WNOHANG) == process.pid) {
    process.exit_code = exit_code_of(status);
    process.pid = -1;
  }
  return process.pid > 0;
}

ProgressNumbers WorkerWorld::progress(int64_t rank) const {
  ProgressNumbers numbers;
  pages_[static_cast<size_t>(rank)].read(numbers);
  return numbers;
}

StorageNotes WorkerWorld::storage_notes(int64_t rank) const {
  StorageNotes notes;
  pages_[static_cast<size_t>(rank)].storage().read(notes);
  return notes;
}

void WorkerWorld::wait_until(int64_t rank,
                             const std::function<bool(const ProgressNumbers&)>& condition) {
  while (runs(rank) && !condition(progress(rank))) sched_yield();
}

std::string WorkerWorld::log(int64_t rank) const {
  return read_file(folder_.file("rank-" + std::to_string(rank) + ".log"));
}

std::vector<double> WorkerWorld::metric(const std::string& name) const {
  std::istringstream lines(read_file(checkpoints_ + "/metrics.jsonl"));
  std::vector<double> values;
  for (std::string text; std::getline(lines, text);) {
    const Result<Json> line = parse_json(text);
    EXPECT_TRUE(line.ok()) << text;
    if (!line.ok() || !line->contains(name)) continue;
    values.push_back(number_or(*line, name, 0));
    if (name == "loss") {
      EXPECT_EQ(int_or(*line, "step", 0), static_cast<int64_t>(values.size()));
    }
  }
  return values;
}

std::string WorkerWorld::checkpoint_folder(int64_t step) const {
  return checkpoints_ + "/" + checkpoint_name(step);
}

std::string WorkerWorld::checkpoint_bytes(int64_t step, std::string_view stem) const {
  return stored_bytes(checkpoint_folder(step), stem);
}

std::vector<std::string> WorkerWorld::checkpoint_folders() const {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints_)) {
    if (entry.path().filename().string().starts_with("step-")) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  return folders;
}

void expect_same_bits_from(WorkerWorld& world, int64_t step) {
  const std::string from = world.checkpoint_folder(step);
  const std::vector<std::string> folders = world.checkpoint_folders();
  ASSERT_TRUE(std::ranges::find(folders, from) != folders.end()) << from;
  ASSERT_LT(from, folders.back()) << "nothing to repeat";
  const std::string expected = stored_bytes(folders.back(), "");
  EXPECT_FALSE(expected.empty());
  const std::vector<double> losses = world.metric("loss");
  for (const std::string& folder : folders) {
    if (folder > from) std::filesystem::remove_all(folder);
  }
  ASSERT_NO_FATAL_FAILURE(world.run());
  const std::string log = world.log(0);
  EXPECT_NE(log.find(from, log.find("resuming from a checkpoint")), std::string::npos) << log;
  EXPECT_TRUE(stored_bytes(folders.back(), "") == expected) << "not the same bits";
  EXPECT_EQ(world.metric("loss"), losses);
}

void expect_same_bits_with_every_optimizer(WorkerWorld::Options options) {
  const OptimizerSpec optimizers[] = {
      {.name = "sgd", .learningRate = 0.1, .weightDecay = 0},
      {.name = "sgd", .learningRate = 0.1, .momentum = 0.9, .weightDecay = 0.01},
      {.name = "sgd", .learningRate = 0.1, .momentum = 0.9, .nesterov = true, .weightDecay = 0},
      {.name = "adagrad", .learningRate = 0.02, .weightDecay = 0.01},
      {.name = "muon", .learningRate = 0.01, .weightDecay = 0.01}};
  options.train.steps = 8;
  options.train.validation = {};
  options.checkpoint_every = 3;
  for (const OptimizerSpec& optimizer : optimizers) {
    SCOPED_TRACE(optimizer.name);
    options.train.optimizer = optimizer;
    options.train.ema = optimizer.nesterov ? 0.9 : 0;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_LT(world.metric("loss").back(), world.metric("loss").front());
    const bool has_state = optimizer.name != "sgd" || optimizer.momentum > 0;
    EXPECT_EQ(world.checkpoint_bytes(8, "optimizer").empty(), !has_state);
    expect_same_bits_from(world, 3);
  }
}

}  // namespace lockstep::train
