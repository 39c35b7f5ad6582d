// bench_step [--preset kjv|gpt2-124m|tiny] [--threads N] [--ranks N] [--precision fp32|bf16]
//            [--warmup N] [--steps N]
//
// Tokens/s of whole optimizer steps (data, forward, backward, communication, update) of the
// worker's own code on random tokens: the kjv model, or GPT-2 124M with a batch of 4 x 64 a rank.
// With
// --ranks, so many processes over TCP on loopback. Also the products' floating-point operations as
// a part of what oneDNN itself reaches on the model's largest product, measured in turn with the
// steps (while the other ranks wait). One line of JSON on stdout: medians, with the middle half as
// spread.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/model/init.h"
#include "agent/train/forming.h"
#include "agent/train/train_step.h"
#include "bench/kernels/peer.h"
#include "common/base/random.h"
#include "common/layout/cost.h"
#include "kernels/device/parallel.h"

namespace lockstep::bench {
namespace {

struct Options {
  std::string preset = "kjv";
  std::string precision = "fp32";
  int threads = 1;
  int ranks = 1;
  int warmup = 3;
  int steps = 20;
};

struct Workload {
  ModelConfig config;
  int64_t batch = 1;  // sequences of a rank
  int64_t context = 1;
};

struct Spread {
  double low = 0;
  double median = 0;
  double high = 0;
};

Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {values[values.size() / 4], values[values.size() / 2], values[values.size() * 3 / 4]};
}

Result<Workload> workload_of(const Options& options) {
  if (options.preset == "kjv") return Workload{{4, 128, 4, 128, 256}, 16 / options.ranks, 128};
  if (options.preset == "tiny") return Workload{{2, 32, 2, 16, 256}, 4 / options.ranks, 16};
  TRY_ASSIGN(const ModelConfig config, model_preset(options.preset));
  return Workload{config, 4, 64};
}

Result<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const char* value = argv[i + 1];
    if (flag == "--preset")
      options.preset = value;
    else if (flag == "--precision")
      options.precision = value;
    else if (flag == "--threads")
      options.threads = std::atoi(value);
    else if (flag == "--ranks")
      options.ranks = std::atoi(value);
    else if (flag == "--warmup")
      options.warmup = std::atoi(value);
    else if (flag == "--steps")
      options.steps = std::atoi(value);
    else
      return invalid("unknown flag " + std::string(flag));
  }
  if (argc % 2 == 0 || options.threads < 1 || options.ranks < 1 || options.ranks > 4 ||
      options.steps < 1 || options.warmup < 0) {
    return invalid("expected flags with values in range");
  }
  return options;
}

Result<int> port_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return errno_error("[bench] getsockname", errno);
  }
  return static_cast<int>(ntohs(address.sin_port));
}

// Forks the other ranks, before any thread or library of computation has started.
Result<CommOptions> spread_out(int ranks, std::vector<pid_t>& children) {
  CommOptions options{.job_uid = "bench", .round = 1, .world_hash = "bench", .key = "bench"};
  std::vector<int> listeners;
  for (int rank = 0; rank < ranks; ++rank) {
    TRY_ASSIGN(const int fd, listen_on("127.0.0.1", 0));
    TRY_ASSIGN(const int port, port_of(fd));
    listeners.push_back(fd);
    options.peers.push_back({"127.0.0.1", port, rank});
  }
  for (int rank = 1; rank < ranks && options.rank == 0; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) return errno_error("[bench] fork", errno);
    if (pid == 0) options.rank = rank;
    if (pid > 0) children.push_back(pid);
  }
  if (options.rank != 0) children.clear();
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank != options.rank) close(listeners[static_cast<size_t>(rank)]);
  }
  options.listen_fd = listeners[static_cast<size_t>(options.rank)];
  return options;
}

std::string write_tokens(const Workload& work, int rank) {
  std::string path = (std::filesystem::temp_directory_path() /
                      ("lockstep-bench-" + std::to_string(getpid()) + "-" + std::to_string(rank)))
                         .string();
  Random random(1);
  std::vector<uint16_t> tokens(200'000);
  for (uint16_t& token : tokens) {
    token = static_cast<uint16_t>(random.below(static_cast<uint64_t>(work.config.vocabulary)));
  }
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(tokens.size() * sizeof(uint16_t)));
  return path;
}

struct Measured {
  std::vector<double> step_seconds;
  std::vector<double> hidden;         // part of each step that is not communication left over
  std::vector<double> product_rates;  // FLOP/s of oneDNN itself, best way each time
};

class Bench {
 public:
  Bench(const Options& options, const Workload& work) : options_(options), work_(work) {}

  Result<Measured> run(const CommOptions& comm) {
    TRY_ASSIGN(const std::unique_ptr<Communicator> world, make_communicator(comm));
    const Precision precision = options_.precision == "bf16" ? Precision::kBf16 : Precision::kF32;
    TRY_ASSIGN(const std::unique_ptr<Composition> model,
               Composition::create({.config = work_.config,
                                    .mesh = {.data = options_.ranks},
                                    .micro_batch = work_.batch,
                                    .sequence = work_.context,
                                    .bucket_bytes = 4 << 20,
                                    .optimizer = {},
                                    .precision = precision},
                                   *world));
    TRY_ASSIGN(const HostState state, model->state_on_host());
    initialise_arena(work_.config, model->store().arena(), {}, 1, state.parameters);
    TRY(model->take_state(state));
    TRY(model->broadcast_state(false));
    const std::string path = write_tokens(work_, comm.rank);
    Result<Measured> measured = time_steps(*model, *world, path, precision);
    std::filesystem::remove(path);
    return measured;
  }

 private:
  Result<Measured> time_steps(Composition& model, Communicator& world, const std::string& path,
                              Precision precision) {
    TRY_ASSIGN(const TokenSource source,
               TokenSource::open({path, TokenWidth::kU16, work_.config.vocabulary}));
    TRY_ASSIGN(const DataSplit split,
               split_data({.tokens = source.count(), .context = work_.context}, path));
    const BatchShape batch{.micro = work_.batch, .data_size = options_.ranks};
    BatchLoader loader(source, split, {.shape = batch, .data_rank = world.rank()});
    ExitReason reason;
    const SystemClock clock;
    TRY_ASSIGN(TrainStep step,
               TrainStep::create(
                   {.batch = batch,
                    .context = work_.context,
                    .schedule = {.kind = ScheduleKind::kConstant, .peak = 1e-4, .steps = 1'000'000},
                    .clip_norm = 1.0},
                   {model, world, loader, reason, clock}));
    const MatmulShape largest{work_.batch * work_.context, 4 * work_.config.width,
                              work_.config.width};
    std::vector<Peer> peers;
    if (world.rank() == 0) peers = matmul_peers(largest, precision, options_.threads);
    Measured measured;
    for (int64_t i = 1; i <= options_.warmup + options_.steps; ++i) {
      TRY_ASSIGN(const TrainStep::Outcome outcome, step.run(i, false));
      const double rate = best_rate(peers, largest, clock);
      TRY(world.barrier());
      if (i <= options_.warmup) continue;
      const StepSeconds& seconds = outcome.metrics.seconds;
      measured.step_seconds.push_back(seconds.total);
      measured.hidden.push_back(1 - seconds.communication / seconds.total);
      measured.product_rates.push_back(rate);
    }
    return measured;
  }

  static double best_rate(const std::vector<Peer>& peers, const MatmulShape& shape,
                          const Clock& clock) {
    constexpr int kTimes = 10;
    const auto flops = static_cast<double>(2 * shape.m * shape.n * shape.k * kTimes);
    double best = 0;
    for (const Peer& peer : peers) {
      const TimePoint begin = clock.now();
      for (int i = 0; i < kTimes; ++i) peer.run();
      best = std::max(best, flops / to_seconds(clock.now() - begin));
    }
    return best;
  }

  Options options_;
  Workload work_;
};

void print(const Options& options, const Workload& work, const Measured& measured) {
  const Spread seconds = spread_of(measured.step_seconds);
  const double tokens = static_cast<double>(work.batch * work.context * options.ranks);
  const double flops = flops_per_token(work.config, work.context, FlopsFormula::kProducts);
  const double rate = flops * tokens / seconds.median / options.ranks;
  const double peak = spread_of(measured.product_rates).median;
  std::printf(
      "{\"program\":\"bench_step\",\"preset\":\"%s\",\"precision\":\"%s\",\"threads\":%d,"
      "\"ranks\":%d,\"parameters\":%lld,\"tokensPerStep\":%.0f,\"stepSeconds\":%.6f,"
      "\"stepSecondsMiddleHalf\":[%.6f,%.6f],\"tokensPerSecond\":%.1f,"
      "\"productFlopsPerToken\":%.0f,\"gigaFlopsPerRank\":%.2f,\"oneDnnGigaFlops\":%.2f,"
      "\"percentOfOneDnn\":%.1f,\"percentNotWaiting\":%.1f}\n",
      options.preset.c_str(), options.precision.c_str(), options.threads, options.ranks,
      static_cast<long long>(parameter_count(work.config)), tokens, seconds.median, seconds.low,
      seconds.high, tokens / seconds.median, flops, rate * 1e-9, peak * 1e-9,
      peak > 0 ? 100 * rate / peak : 0.0, 100 * spread_of(measured.hidden).median);
}

int fail(const Error& error) {
  std::fprintf(stderr, "bench_step: %s\n", error.message.c_str());
  return 1;
}

int run(int argc, char** argv) {
  const Result<Options> options = parse(argc, argv);
  if (!options.ok()) return fail(options.error());
  const Result<Workload> work = workload_of(*options);
  if (!work.ok()) return fail(work.error());
  std::vector<pid_t> children;
  const Result<CommOptions> comm = spread_out(options->ranks, children);
  if (!comm.ok()) return fail(comm.error());
  set_threads(options->threads);
  const Result<Measured> measured = Bench(*options, *work).run(*comm);
  if (measured.ok() && comm->rank == 0) print(*options, *work, *measured);
  int code = measured.ok() ? 0 : fail(measured.error());
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) code = 1;
  }
  return code;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  return lockstep::bench::run(argc, argv);
}
