// lockstep-bench: measures collectives between processes on this machine (or threads of one
// process), like nccl-tests: time, algorithm and bus bandwidth by size, out-of-place and in-place.
// Each line includes a check of the results. `lockstep bench` starts it; settings.h has its
// arguments.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "agent/comm/gpu/device_communicator.h"
#include "agent/comm/make_communicator.h"
#include "agent/comm/topology.h"
#include "bench/comm/cipher_rate.h"
#include "bench/comm/measure.h"
#include "bench/comm/meeting.h"
#include "bench/comm/settings.h"
#include "common/base/check.h"
#include "common/base/run_main.h"

namespace lockstep::bench {
namespace {

// The table that rank 0 prints, and its JSON.
class Table {
 public:
  explicit Table(const BenchSettings& settings) : settings_(settings) {}

  void head(comm::Collective operation) const {
    std::printf("# %s, %d ranks, %s, %s, algorithm %s%s\n", name_of(operation), settings_.ranks,
                name_of(settings_.type), name_of(settings_.op), name_of(settings_.algorithm),
                settings_.pin ? ", pinned" : "");
    std::printf("# times: medians of the slowest rank's; with a root, after a barrier each\n");
    std::printf("# %-10s %10s %12s %6s %6s %8s | %26s | %26s\n", "", "", "", "", "", "",
                "out of place", "in place");
    std::printf("# %-10s %10s %12s %6s %6s %8s", "size", "backend", "count", "type", "redop",
                "times");
    for (int i = 0; i < 2; ++i) {
      std::printf(" | %9s %7s %7s %6s", "time", "algbw", "busbw", "#wrong");
    }
    std::printf("\n# %-10s %10s %12s %6s %6s %8s", "(B)", "", "(elements)", "", "", "");
    for (int i = 0; i < 2; ++i) std::printf(" | %9s %7s %7s %6s", "(us)", "(GB/s)", "(GB/s)", "");
    std::printf("\n");
    std::fflush(stdout);
  }

  void line(comm::Collective operation, Backend backend, const Measurement (&both)[2]) {
    std::printf("%12lld %10s %12lld %6s %6s %8d", static_cast<long long>(both[0].bytes),
                name_of(backend), static_cast<long long>(both[0].count), name_of(settings_.type),
                name_of(settings_.op), both[0].iterations);
    for (const Measurement& m : both) {
      std::printf(" | %9.2f %7.3f %7.3f %6lld", m.p50_us, m.bandwidth / 1e9, m.bus_bandwidth / 1e9,
                  static_cast<long long>(m.wrong));
    }
    std::printf("\n");
    std::fflush(stdout);
    for (const Measurement& m : both) {
      wrong_ = wrong_ || m.wrong > 0;
      lines_.push_back({{"operation", name_of(operation)},
                        {"backend", name_of(backend)},
                        {"algorithm", name_of(settings_.algorithm)},
                        {"ranks", settings_.ranks},
                        {"inPlace", &m == &both[1]},
                        {"bytes", m.bytes},
                        {"count", m.count},
                        {"type", name_of(settings_.type)},
                        {"reduction", name_of(settings_.op)},
                        {"times", m.iterations},
                        {"minUs", m.min_us},
                        {"p50Us", m.p50_us},
                        {"p99Us", m.p99_us},
                        {"algorithmBandwidth", m.bandwidth},
                        {"busBandwidth", m.bus_bandwidth},
                        {"wrong", m.wrong}});
    }
  }

  // Writes the JSON file if one was asked for. Returns the exit code.
  int end() const {
    if (!settings_.json.empty()) {
      std::ofstream file(settings_.json);
      file << lines_.dump(1) << "\n";
      if (!file.flush()) {
        std::fprintf(stderr, "lockstep-bench: cannot write %s\n", settings_.json.c_str());
        return 1;
      }
    }
    return wrong_ ? 1 : 0;
  }

 private:
  const BenchSettings& settings_;
  nlohmann::json lines_ = nlohmann::json::array();
  bool wrong_ = false;
};

// This rank's communicators, one per backend.
using World = std::vector<std::unique_ptr<comm::Communicator>>;

// CUDA does not survive a fork, so this process must not initialise it: a short-lived child does.
int count_gpus() {
  const pid_t pid = ::fork();
  CHECK(pid >= 0);
  if (pid == 0) ::_exit(std::min(kernels::device_count(kernels::DeviceType::kCuda), 255));
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

// Returns the device whose memory this rank uses with the backend.
kernels::Device device_of(Backend backend, int rank) {
  if (!needs_gpu(backend)) return {};
  return {kernels::DeviceType::kCuda,
          rank % std::max(1, kernels::device_count(kernels::DeviceType::kCuda))};
}

// Returns a communicator for GPU memory if the backend is for GPUs, else `comm` itself.
Result<std::unique_ptr<comm::Communicator>> on_gpus(Backend backend,
                                                    std::unique_ptr<comm::Communicator> comm) {
  if (!needs_gpu(backend)) return comm;
  const kernels::Device device = device_of(backend, comm->rank());
  return comm::make_device_communicator(
      std::move(comm),
      {.device = device,
       .backend = backend == Backend::kNccl ? comm::DeviceBackendKind::kNccl
                                            : comm::DeviceBackendKind::kHostMemory});
}

Status measure_all(const BenchSettings& settings, const World& world, Table& table) {
  const bool tells = world.front()->rank() == 0;
  for (const comm::Collective operation : settings.operations) {
    if (tells) table.head(operation);
    const bool sizeless = operation == comm::Collective::kBarrier;
    const int64_t last = sizeless ? settings.bytes_min : settings.bytes_max;
    for (int64_t bytes = settings.bytes_min; bytes <= last; bytes *= settings.factor) {
      for (size_t i = 0; i < world.size(); ++i) {
        Measurement both[2];
        for (const bool in_place : {false, true}) {
          TRY_ASSIGN(both[in_place ? 1 : 0],
                     measure(*world[i], settings,
                             {.operation = operation,
                              .bytes = bytes,
                              .in_place = in_place,
                              .device = device_of(settings.backends[i], world[i]->rank())}));
        }
        if (tells) table.line(operation, settings.backends[i], both);
      }
    }
  }
  return {};
}

int tell_topology(const BenchSettings& settings, const World& world) {
  for (size_t i = 0; i < world.size(); ++i) {
    const Result<std::string> table = comm::topology_table(*world[i]);
    if (!table.ok()) {
      std::fprintf(stderr, "lockstep-bench: %s\n", table.error().message.c_str());
      return 1;
    }
    if (world[i]->rank() != 0) continue;
    std::printf("# topology, %d ranks, %s\n%s", settings.ranks, name_of(settings.backends[i]),
                table->c_str());
  }
  return 0;
}

int run_rank(const BenchSettings& settings, int rank, World world,
             const std::vector<std::vector<comm::CommOptions>>& meetings) {
  if (settings.pin) pin_to_core(rank);
  // Process backends form their communicators here. With threads, `world` already has one.
  for (size_t i = 0; i < meetings.size(); ++i) {
    auto comm = comm::make_communicator(meetings[i][static_cast<size_t>(rank)]);
    if (comm.ok()) comm = on_gpus(settings.backends[i], std::move(*comm));
    if (!comm.ok()) {
      std::fprintf(stderr, "lockstep-bench: %s\n", comm.error().message.c_str());
      return 1;
    }
    world.push_back(std::move(*comm));
  }
  if (settings.topology) return tell_topology(settings, world);
  Table table(settings);
  const Status status = measure_all(settings, world, table);
  if (!status.ok()) {
    std::fprintf(stderr, "lockstep-bench: rank %d: %s\n", rank, status.error().message.c_str());
    return 1;
  }
  return rank == 0 ? table.end() : 0;
}

int run_processes(const BenchSettings& settings) {
  std::vector<std::vector<comm::CommOptions>> meetings;
  for (const Backend backend : settings.backends) meetings.push_back(meet(backend, settings.ranks));
  std::vector<pid_t> children;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    const pid_t pid = ::fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      const int code = run_rank(settings, rank, {}, meetings);
      std::fflush(stdout);
      ::_exit(code);
    }
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

int run_threads(const BenchSettings& settings) {
  auto world = comm::make_thread_world(settings.ranks);
  if (!world.ok()) {
    std::fprintf(stderr, "lockstep-bench: %s\n", world.error().message.c_str());
    return 1;
  }
  std::vector<int> codes(static_cast<size_t>(settings.ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      World own;
      own.push_back(std::move((*world)[static_cast<size_t>(rank)]));
      codes[static_cast<size_t>(rank)] = run_rank(settings, rank, std::move(own), {});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(codes.begin(), codes.end());
}

// Removes the backends that need a GPU if there is none, and reports them on stderr.
void skip_without_gpu(BenchSettings& settings) {
  std::vector<Backend>& backends = settings.backends;
  if (std::none_of(backends.begin(), backends.end(), needs_gpu) || count_gpus() > 0) return;
  for (const Backend backend : backends) {
    if (!needs_gpu(backend)) continue;
    std::fprintf(stderr, "lockstep-bench: skipped: --backend %s needs a GPU, but there is none\n",
                 name_of(backend));
  }
  std::erase_if(backends, needs_gpu);
}

bool is_encrypted(Backend backend) {
  return backend == Backend::kEncryptedTcp;
}

// Tells the bound of encrypted traffic. Removes its backend in a build that cannot encrypt, and
// says why on stderr.
void tell_cipher(BenchSettings& settings) {
  std::vector<Backend>& backends = settings.backends;
  if (std::none_of(backends.begin(), backends.end(), is_encrypted)) return;
  const Result<CipherRate> rate = measure_cipher();
  if (rate.ok()) {
    std::printf("# AES-128-GCM on one core: %.2f GB/s to encrypt, %.2f GB/s to decrypt\n",
                rate->sealed / 1e9, rate->opened / 1e9);
    std::fflush(stdout);
    return;
  }
  std::fprintf(stderr, "lockstep-bench: skipped: --backend tcp-encrypted: %s\n",
               rate.error().message.c_str());
  std::erase_if(backends, is_encrypted);
}

constexpr int kSkipped = 77;

int run(BenchSettings settings) {
  skip_without_gpu(settings);
  tell_cipher(settings);
  if (settings.backends.empty()) return kSkipped;
  if (settings.backends == std::vector<Backend>{Backend::kThreads}) return run_threads(settings);
  for (const Backend backend : settings.backends) {
    if (backend != Backend::kThreads) continue;
    std::fprintf(stderr,
                 "lockstep-bench: --backend threads cannot be combined with other backends\n");
    return 2;
  }
  return run_processes(settings);
}

}  // namespace
}  // namespace lockstep::bench

namespace {

int program(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments == std::vector<std::string>{"--help"}) {
    std::printf("%s", lockstep::bench::kBenchUsage);
    return 0;
  }
  const auto settings = lockstep::bench::parse_settings(arguments);
  if (!settings.ok()) {
    std::fprintf(stderr, "lockstep-bench: %s\n%s", settings.error().message.c_str(),
                 lockstep::bench::kBenchUsage);
    return 2;
  }
  return lockstep::bench::run(*settings);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-bench", program, argc, argv);
}
