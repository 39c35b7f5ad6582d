#include "tests/agent/comm/fault_world.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <thread>

#include "agent/comm/make_communicator.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "tests/agent/comm/cases.h"
#include "tests/agent/comm/small_frames.h"

namespace lockstep::test {
namespace {

using std::chrono::seconds;

enum class Order : int { kListen, kWork };
struct Message {
  Order order = Order::kListen;
  int node = 0;
  int size = 0;
  uint64_t round = 0;
  uint64_t seed = 0;
  int64_t limit_nanoseconds = 0;
  Limits limits;
  int memory = -1;  // a descriptor of the test process
  int ports[FaultWorld::kRanksMax] = {};
  int nodes[FaultWorld::kRanksMax] = {};
};

template <class T>
bool send_to(int pipe, const T& value) {
  return ::send(pipe, &value, sizeof value, MSG_NOSIGNAL) == sizeof value;
}
template <class T>
bool receive_from(int pipe, T& value) {
  return ::recv(pipe, &value, sizeof value, MSG_WAITALL) == sizeof value;
}
bool is_readable(int pipe) {
  pollfd readable{.fd = pipe, .events = POLLIN, .revents = 0};
  return ::poll(&readable, 1, 60'000) == 1;
}

int count_entries(const char* folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

int count_memories() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("memfd:comm-faults") != std::string::npos ? 1 : 0;
  }
  return count;
}

// Resources that a process holds.
struct Holdings {
  int descriptors = count_entries("/proc/self/fd");
  int threads = count_entries("/proc/self/task");
  int mappings = count_memories();
  int64_t heap_bytes = static_cast<int64_t>(::mallinfo2().uordblks);
};

comm::Algorithm any_algorithm(comm::Collective kind, const comm::Communicator& comm,
                              Random& random) {
  const auto drawn = static_cast<comm::Algorithm>(random.below(comm::kAlgorithms));
  return has_algorithm(kind, drawn, comm.hosts().host) ? drawn : comm::Algorithm::kAuto;
}

// Returns any case in the group; some exceed what the links hold.
Case any_case(comm::Collective kind, const comm::Communicator& comm, Random& random) {
  const auto size = static_cast<uint64_t>(comm.size());
  const uint64_t most = random.below(8) == 0 ? 19 : 15;
  const auto type = static_cast<comm::DataType>(random.below(comm::kDataTypes));
  const uint64_t bytes = 1 + random.below(uint64_t{4} << (1 + random.below(most)));
  return {.kind = kind,
          .op = static_cast<comm::ReduceOp>(random.below(comm::kReduceOps)),
          .type = type,
          .shape = {.world = comm.size()},
          .count = static_cast<int64_t>(1 + bytes / comm::data_type_bytes(type)),
          .algorithm = any_algorithm(kind, comm, random),
          .in_place = random.below(2) == 1,
          .root = static_cast<int>(random.below(size)),
          .seed = random.below(uint64_t{1} << 40)};
}

// Runs some operations in a row that all ranks draw from one seed: collectives of the world and a
// message to the next rank, issued together, and concurrently one of this rank's sub-group.
Status run_step(comm::Communicator& comm, comm::Communicator& group, Random& random) {
  constexpr comm::Collective kKinds[] = {
      comm::Collective::kAllReduce, comm::Collective::kReduceScatter, comm::Collective::kAllGather,
      comm::Collective::kAllToAll,  comm::Collective::kBroadcast,     comm::Collective::kReduce,
      comm::Collective::kGather,    comm::Collective::kScatter,       comm::Collective::kBarrier};
  std::vector<std::unique_ptr<Part>> parts;
  std::vector<comm::Call> calls;
  const auto add = [&](comm::Collective kind) {
    parts.push_back(std::make_unique<Part>(any_case(kind, comm, random), comm.rank()));
    for (const comm::Call& call : parts.back()->calls()) calls.push_back(call);
  };
  for (uint64_t i = 1 + random.below(4); i > 0; --i) add(kKinds[random.below(std::size(kKinds))]);
  add(comm::Collective::kSend);
  // The sub-groups draw the same too, whatever their sizes.
  const uint64_t elements = 1 + random.below(30'000);
  const uint64_t seed = random.below(uint64_t{1} << 40);
  Part of_group({.kind = comm::Collective::kAllReduce,
                 .type = comm::DataType::kF32,
                 .shape = {.world = group.size()},
                 .count = static_cast<int64_t>(elements),
                 .seed = seed},
                group.rank());
  comm::Work concurrent = group.start(of_group.calls());
  TRY(comm.run(calls));
  TRY(concurrent.wait());
  for (const auto& part : parts) TRY(part->check());
  return of_group.check();
}

Status work(const comm::CommOptions& options, uint64_t seed, std::atomic<uint64_t>& steps,
            int& suspect) {
  TRY_ASSIGN(const std::unique_ptr<comm::Communicator> comm, comm::make_communicator(options));
  Random random(seed);
  const int colours = 1 + static_cast<int>(random.below(3));
  Status status;
  {
    auto group = comm->split(comm->rank() % colours, -comm->rank());
    if (!group.ok()) status = group.error();
    while (status.ok()) {
      status = run_step(*comm, **group, random);
      if (status.ok()) steps.fetch_add(1);
    }
  }
  suspect = comm->suspect();
  return status;
}

// With a program's first thread a sanitizer starts one of its own. It is not the rank's, so no
// count may include it. A joined thread may stay visible for a moment.
void begin_sanitizers_thread() {
  pid_t id = 0;
  std::thread([&id] { id = ::gettid(); }).join();
  const std::string seen_as = "/proc/self/task/" + std::to_string(id);
  while (std::filesystem::exists(seen_as)) std::this_thread::yield();
}

// Joined threads may stay visible for a moment.
Holdings holdings_once_quiet(int threads) {
  const SystemClock clock;
  const TimePoint deadline = clock.now() + seconds(10);
  Holdings now;
  while (now.threads > threads && clock.now() < deadline) {
    std::this_thread::yield();
    now = Holdings();
  }
  return now;
}

}  // namespace

struct FaultWorld::Shared {
  struct Rank {
    alignas(64) std::atomic<uint64_t> steps;
    alignas(64) std::array<std::byte, CollectiveBoard::kBytes> board;
  };
  std::array<Rank, kRanksMax> ranks;
};

FaultWorld::FaultWorld(Options options) : options_(std::move(options)) {
  CHECK(options_.size <= kRanksMax);
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  shared_ = static_cast<Shared*>(memory);
  ranks_.resize(static_cast<size_t>(options_.size));
  for (int rank = 0; rank < options_.size; ++rank) {
    boards_.emplace_back(shared_->ranks[static_cast<size_t>(rank)].board.data());
    start(rank);
  }
}

FaultWorld::~FaultWorld() {
  for (int rank = 0; rank < options_.size; ++rank) end(rank);
  for (const int fd : memory_) ::close(fd);
  ::munmap(shared_, sizeof(Shared));
}

void FaultWorld::start(int rank) {
  std::fflush(nullptr);  // otherwise the child prints buffered output again
  int ends[2];
  CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const pid_t pid = ::fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    for (const Rank& other : ranks_) {
      if (other.pipe >= 0) ::close(other.pipe);
    }
    for (const int fd : memory_) ::close(fd);
    ::close(ends[0]);
    serve(rank, ends[1]);
  }
  ::close(ends[1]);
  ranks_[static_cast<size_t>(rank)] = {.pid = pid, .pipe = ends[0]};
}

// An idle process exits once its pipe is closed, with a status other than 0 if a sanitizer has
// found something.
void FaultWorld::end(int rank) {
  Rank& one = ranks_[static_cast<size_t>(rank)];
  ::close(std::exchange(one.pipe, -1));
  int status = 0;
  ::waitpid(one.pid, &status, 0);
  const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  EXPECT_TRUE(is_killed || status == 0)
      << "the process of rank " << rank << " ended with status " << status;
}

void FaultWorld::replace(int rank) {
  send_signal(rank, SIGKILL);
  end(rank);
  start(rank);
}

void FaultWorld::send_signal(int rank, int signal) const {
  ::kill(ranks_[static_cast<size_t>(rank)].pid, signal);
}

uint64_t FaultWorld::steps(int rank) const {
  return shared_->ranks[static_cast<size_t>(rank)].steps.load();
}

bool FaultWorld::begin(const Round& round) {
  for (const int fd : memory_) ::close(fd);
  memory_.clear();
  Message message{.size = options_.size,
                  .round = ++round_,
                  .seed = round.seed,
                  .limit_nanoseconds = round.limit.count(),
                  .limits = round.limits};
  std::array<int, kRanksMax> memory_of_node{};
  memory_of_node.fill(-1);
  for (int rank = 0; rank < options_.size; ++rank) {
    const auto i = static_cast<size_t>(rank);
    new (&shared_->ranks[i]) Shared::Rank();
    message.nodes[i] = round.nodes[i];
    message.node = round.nodes[i];
    if (!send_to(ranks_[i].pipe, message)) return false;
    int& memory = memory_of_node[static_cast<size_t>(round.nodes[i])];
    if (memory >= 0) continue;
    memory = ::memfd_create("comm-faults", MFD_CLOEXEC);
    memory_.push_back(memory);
  }
  for (int rank = 0; rank < options_.size; ++rank) {
    const auto i = static_cast<size_t>(rank);
    if (!is_readable(ranks_[i].pipe) || !receive_from(ranks_[i].pipe, message.ports[i])) {
      return false;
    }
  }
  message.order = Order::kWork;
  for (int rank = 0; rank < options_.size; ++rank) {
    const auto i = static_cast<size_t>(rank);
    message.memory = memory_of_node[static_cast<size_t>(round.nodes[i])];
    if (!send_to(ranks_[i].pipe, message)) return false;
  }
  return true;
}

FaultReport FaultWorld::report(int rank) const {
  const int pipe = ranks_[static_cast<size_t>(rank)].pipe;
  FaultReport report;
  if (!is_readable(pipe) || !receive_from(pipe, report)) return {};
  return report;
}

void FaultWorld::serve(int rank, int pipe) const {
  if (options_.prepare) options_.prepare(rank);
  auto& own = shared_->ranks[static_cast<size_t>(rank)];
  CollectiveBoard board(own.board.data());
  begin_sanitizers_thread();
  const Holdings before;
  int listener = -1;
  for (Message message; receive_from(pipe, message);) {
    if (message.order == Order::kListen) {
      const auto made = comm::listen_on(options_.host_of(message.node), 0);
      CHECK(made.ok());
      listener = *made;
      if (!send_to(pipe, *comm::port_of(listener))) break;
      continue;
    }
    const std::string memory =
        "/proc/" + std::to_string(::getppid()) + "/fd/" + std::to_string(message.memory);
    FaultReport report{.heard = true};
    Error error;
    {
      comm::CommOptions options{.rank = rank,
                                .listen_fd = listener,
                                .shm_fd = ::open(memory.c_str(), O_RDWR | O_CLOEXEC),
                                .job_uid = "faults",
                                .round = message.round,
                                .world_hash = std::to_string(message.seed),
                                .key = "key",
                                .board = &board,
                                .limits = message.limits,
                                .operation_limit = Duration(message.limit_nanoseconds)};
      for (int peer = 0; peer < message.size; ++peer) {
        options.peers.push_back({.host = options_.host_of(message.nodes[peer]),
                                 .port = message.ports[peer],
                                 .node = message.nodes[peer]});
      }
      const int memory_fd = options.shm_fd;
      error = work(options, message.seed, own.steps, report.suspect).error();
      ::close(memory_fd);
    }
    report.at_nanoseconds = SystemClock().now().time_since_epoch().count();
    report.code = static_cast<int>(error.code);
    std::strncpy(report.message, error.message.c_str(), sizeof report.message - 1);
    const Holdings after = holdings_once_quiet(before.threads);
    report.descriptors = after.descriptors - before.descriptors;
    report.threads = after.threads - before.threads;
    report.mappings = after.mappings - before.mappings;
    report.heap_bytes = after.heap_bytes - before.heap_bytes;
    if (!send_to(pipe, report)) break;
  }
  std::exit(0);
}

}  // namespace lockstep::test
