// bench_collectives_ranks: runs the ranks of one library; measure.py gives them their turns.
//
//   bench_collectives_ranks lockstep-shm|lockstep-tcp|gloo --ranks N --socket PATH --folder DIR
//   mpirun -n N bench_collectives_ranks mpi --socket PATH
//   bench_collectives_ranks --libraries        # lists this build's libraries, one per line
//
// Each rank is a process (forked here, or started by mpirun) with its own connection to the socket.
// --pin: pins rank r to core r. --loans BYTES: ranks that share memory lend moves of at least this
// size, whatever a loan costs on this machine; 0: they never lend.
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "bench/collectives/library.h"
#include "bench/collectives/turns.h"
#include "bench/comm/meeting.h"
#include "common/base/check.h"
#include "common/base/run_main.h"

namespace lockstep::bench {
namespace {

struct Arguments {
  std::string library;
  int ranks = 2;
  std::string socket;
  std::string folder;
  bool pin = false;
  std::optional<size_t> loan_bytes;
};

int complain(const std::string& message) {
  std::fprintf(stderr, "bench_collectives_ranks: %s\n", message.c_str());
  return 2;
}

int connect_to(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(fd >= 0);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

int serve(const Arguments& arguments, Result<std::unique_ptr<Library>> library) {
  if (!library.ok()) return complain(library.error().message);
  const int fd = connect_to(arguments.socket);
  if (fd < 0) return complain("cannot connect to " + arguments.socket);
  return serve_turns(fd, **library);
}

// Pins before joining, so that the library's threads inherit the core.
Result<std::unique_ptr<Library>> join(const Arguments& arguments,
                                      const comm::CommOptions& meeting) {
  if (arguments.pin) pin_to_core(meeting.rank);
  if (arguments.library == "gloo") {
    return join_gloo({.rank = meeting.rank, .size = arguments.ranks, .folder = arguments.folder});
  }
  TRY_ASSIGN(auto comm, comm::make_communicator(meeting));
  return use_lockstep(std::move(comm));
}

void set_loans(comm::CommLimits& limits, size_t from) {
  limits.loan_cost_max = from > 0 ? std::numeric_limits<double>::infinity() : 0;
  limits.loans = {.min = from, .max = std::numeric_limits<size_t>::max()};
  limits.one_way_loans = limits.loans;
  limits.one_way_loans_sharing_cores = limits.loans;
}

int fork_ranks(const Arguments& arguments) {
  const bool in_memory = arguments.library == "lockstep-shm";
  auto meetings = meet(in_memory ? Backend::kSharedMemory : Backend::kTcp, arguments.ranks);
  std::vector<pid_t> children;
  for (comm::CommOptions& meeting : meetings) {
    if (arguments.loan_bytes) set_loans(meeting.limits, *arguments.loan_bytes);
    const pid_t pid = ::fork();
    CHECK(pid >= 0);
    if (pid == 0) std::exit(serve(arguments, join(arguments, meeting)));
    children.push_back(pid);
  }
  int worst = 0;
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) worst = 1;
  }
  return worst;
}

Result<std::unique_ptr<Library>> join_started(const Arguments& arguments) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr) return invalid("mpi: start it with mpirun");
  if (arguments.pin) pin_to_core(std::atoi(rank));
  return join_mpi();
}

int run(const std::vector<std::string>& words) {
  Arguments arguments;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const auto value = [&] { return i + 1 < words.size() ? words[++i] : std::string(); };
    if (word == "--pin") {
      arguments.pin = true;
    } else if (word == "--ranks") {
      arguments.ranks = std::atoi(value().c_str());
    } else if (word == "--loans") {
      arguments.loan_bytes = static_cast<size_t>(std::atoll(value().c_str()));
    } else if (word == "--socket") {
      arguments.socket = value();
    } else if (word == "--folder") {
      arguments.folder = value();
    } else {
      arguments.library = word;
    }
  }
  if (arguments.ranks < 1 || arguments.ranks > 64) return complain("--ranks must be from 1 to 64");
  if (arguments.library == "mpi") return serve(arguments, join_started(arguments));
  for (const char* known : {"lockstep-shm", "lockstep-tcp", "gloo"}) {
    if (arguments.library == known) return fork_ranks(arguments);
  }
  return complain("unknown library '" + arguments.library +
                  "', expected lockstep-shm, lockstep-tcp, gloo or mpi");
}

}  // namespace
}  // namespace lockstep::bench

namespace {

int program(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words == std::vector<std::string>{"--libraries"}) {
    std::printf("lockstep-shm\nlockstep-tcp\n");
    if (lockstep::bench::has_gloo()) std::printf("gloo\n");
    if (lockstep::bench::has_mpi()) std::printf("mpi\n");
    return 0;
  }
  return lockstep::bench::run(words);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("bench_collectives_ranks", program, argc, argv);
}
