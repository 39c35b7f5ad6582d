// Collectives between processes of this machine, in the manner of nccl-tests: latency and bus
// bandwidth by size. Every result is checked. Usage:
//   bench_comm [--ranks 2] [--transport tcp|shm|both] [--op all_reduce|broadcast] [--min 8]
//              [--max 67108864] [--iterations 0] [--pin]
// iterations 0: as many as make up about a second. Transports are interleaved, size by size.
// bus bandwidth = bytes / median time * 2(n-1)/n for all_reduce, * 1 for broadcast.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "common/base/check.h"

namespace lockstep {
namespace {

struct Settings {
  int ranks = 2;
  std::string transport = "both";
  std::string op = "all_reduce";
  int64_t bytes_min = 8;
  int64_t bytes_max = int64_t{64} << 20;
  int iterations = 0;
  bool pin = false;
};

std::optional<Settings> parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--pin") {
      settings.pin = true;
      continue;
    }
    if (i + 1 >= argc) return std::nullopt;
    const std::string value = argv[++i];
    const auto number = std::strtoll(value.c_str(), nullptr, 10);
    if (flag == "--ranks" && number >= 1 && number <= 64) {
      settings.ranks = static_cast<int>(number);
    } else if (flag == "--transport" && (value == "tcp" || value == "shm" || value == "both")) {
      settings.transport = value;
    } else if (flag == "--op" && (value == "all_reduce" || value == "broadcast")) {
      settings.op = value;
    } else if (flag == "--min" && number >= 4) {
      settings.bytes_min = number;
    } else if (flag == "--max" && number >= 4) {
      settings.bytes_max = number;
    } else if (flag == "--iterations" && number >= 0) {
      settings.iterations = static_cast<int>(number);
    } else {
      return std::nullopt;
    }
  }
  return settings;
}

// The options of every rank, with sockets on ports of the system's choice, and shared memory.
std::vector<CommOptions> meet(int ranks, bool shared) {
  std::vector<CommOptions> all(static_cast<size_t>(ranks));
  std::vector<PeerAddress> peers;
  const int memory = ::memfd_create("bench", MFD_CLOEXEC);
  CHECK(memory >= 0 && ::ftruncate(memory, static_cast<off_t>(shm_bytes(ranks))) == 0);
  for (CommOptions& options : all) {
    const auto fd = listen_on("127.0.0.1", 0);
    CHECK(fd.ok());
    sockaddr_in address{};
    socklen_t bytes = sizeof address;
    CHECK(::getsockname(*fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
    options.rank = static_cast<int>(peers.size());
    options.listen_fd = *fd;
    options.shm_fd = shared ? memory : -1;
    options.key = "bench";
    peers.push_back({.host = "127.0.0.1", .port = ntohs(address.sin_port), .node = 0});
  }
  for (CommOptions& options : all) options.peers = peers;
  return all;
}

Status run_once(Communicator& comm, const Settings& settings, std::vector<float>& values) {
  const CommBuffer buffer{.data = values.data(), .count = static_cast<int64_t>(values.size())};
  if (settings.op == "broadcast") return comm.broadcast(buffer, 0);
  return comm.all_reduce(buffer, ReduceOp::kSum);
}

bool result_is_right(Communicator& comm, const Settings& settings, std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(comm.rank() + 1) + static_cast<float>(i % 1000);
  }
  CHECK(run_once(comm, settings, values).ok());
  const auto n = static_cast<float>(comm.size());
  const bool sums = settings.op == "all_reduce";
  for (size_t i = 0; i < values.size(); ++i) {
    const auto base = static_cast<float>(i % 1000);
    if (values[i] != (sums ? n * (n + 1) / 2 + n * base : 1 + base)) return false;
  }
  std::fill(values.begin(), values.end(), 0.f);
  return true;
}

struct Times {
  double min = 0;
  double p50 = 0;
  double p99 = 0;
  int iterations = 0;
};

Times measure(Communicator& comm, const Settings& settings, std::vector<float>& values) {
  const SystemClock clock;
  const auto timed = [&] {
    const TimePoint begin = clock.now();
    CHECK(run_once(comm, settings, values).ok());
    return to_seconds(clock.now() - begin);
  };
  double warm = 0;
  const int warm_ups = settings.iterations > 0 ? 1 : 5;
  for (int i = 0; i < warm_ups; ++i) warm = timed();
  // Rank 0's guess is everyone's.
  const auto warm_of_all = comm.all_gather_value(warm);
  CHECK(warm_of_all.ok());
  const double guess = 1.0 / std::max(1e-7, warm_of_all->front());
  const int iterations = settings.iterations > 0
                             ? settings.iterations
                             : static_cast<int>(std::clamp(guess, 20.0, 20'000.0));
  std::vector<double> seconds;
  CHECK(comm.barrier().ok());
  for (int i = 0; i < iterations; ++i) seconds.push_back(timed());
  std::sort(seconds.begin(), seconds.end());
  return {.min = seconds.front(),
          .p50 = seconds[seconds.size() / 2],
          .p99 = seconds[seconds.size() * 99 / 100],
          .iterations = iterations};
}

void print_line(const Settings& settings, const char* transport, int64_t bytes,
                const Times& times) {
  const double n = settings.ranks;
  const double factor = settings.op == "all_reduce" ? 2 * (n - 1) / n : 1;
  const double algorithm_bandwidth = static_cast<double>(bytes) / times.p50 / 1e9;
  std::printf("%12lld %6s %8d %10.1f %10.1f %10.1f %9.3f %9.3f\n", static_cast<long long>(bytes),
              transport, times.iterations, times.min * 1e6, times.p50 * 1e6, times.p99 * 1e6,
              algorithm_bandwidth, algorithm_bandwidth * factor);
  std::fflush(stdout);
}

void pin_to_core(int rank) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<size_t>(rank % std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))), &cores);
  ::sched_setaffinity(0, sizeof cores, &cores);
}

struct Contender {
  const char* transport;
  std::vector<CommOptions> options;
};

int run_rank(const Settings& settings, int rank, std::vector<Contender>& contenders) {
  if (settings.pin) pin_to_core(rank);
  std::vector<std::unique_ptr<Communicator>> made;
  for (Contender& contender : contenders) {
    auto comm = make_communicator(contender.options[static_cast<size_t>(rank)]);
    if (!comm.ok()) {
      std::fprintf(stderr, "bench_comm: %s\n", comm.error().message.c_str());
      return 1;
    }
    made.push_back(std::move(*comm));
  }
  for (int64_t bytes = settings.bytes_min; bytes <= settings.bytes_max; bytes *= 4) {
    std::vector<float> values(static_cast<size_t>(bytes) / sizeof(float));
    for (size_t i = 0; i < made.size(); ++i) {
      if (!result_is_right(*made[i], settings, values)) {
        std::fprintf(stderr, "bench_comm: rank %d: wrong result, %s, %lld bytes\n", rank,
                     contenders[i].transport, static_cast<long long>(bytes));
        return 1;
      }
      const Times times = measure(*made[i], settings, values);
      if (rank == 0) print_line(settings, contenders[i].transport, bytes, times);
    }
  }
  return 0;
}

int run(const Settings& settings) {
  std::vector<Contender> contenders;
  if (settings.transport != "tcp") contenders.push_back({"shm", meet(settings.ranks, true)});
  if (settings.transport != "shm") contenders.push_back({"tcp", meet(settings.ranks, false)});
  std::printf("# %s, %d processes, f32%s\n", settings.op.c_str(), settings.ranks,
              settings.pin ? ", pinned" : "");
  std::printf("%12s %6s %8s %10s %10s %10s %9s %9s\n", "bytes", "over", "runs", "min us", "p50 us",
              "p99 us", "alg GB/s", "bus GB/s");
  std::fflush(stdout);
  std::vector<pid_t> children;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    const pid_t pid = ::fork();
    CHECK(pid >= 0);
    if (pid == 0) ::_exit(run_rank(settings, rank, contenders));
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

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const auto settings = lockstep::parse(argc, argv);
  if (!settings) {
    std::fprintf(stderr,
                 "usage: bench_comm [--ranks N] [--transport tcp|shm|both] "
                 "[--op all_reduce|broadcast] [--min BYTES] [--max BYTES] [--iterations N] "
                 "[--pin]\n");
    return 2;
  }
  return lockstep::run(*settings);
}
