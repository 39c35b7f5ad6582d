// bench_step [--preset kjv|gpt2-124m|...|tiny] [--precision fp32|bf16] [--device cpu|cuda]
//            [--layers N] [--width N] [--heads N] [--vocabulary N]
//            [--attention own|cudnn] [--threads N] [--ranks N] [--batch N] [--accumulate N]
//            [--context N] [--warmup N] [--steps N] [--tokens FILE] [--weights FILE] [--rate X]
//            [--curve yes|no] [--peak N] [--algorithms first|measured]
//            [--exchange allReduce|firstRank|host] [--transport tcp|shared] [--timeline FOLDER]
//
// Measures tokens/s of whole optimizer steps (data, forward, backward, communication, update) with
// the worker's own code on random tokens. The model is kjv, or a GPT-2 with a batch of 4 x 64 per
// rank, unless --batch and --context say otherwise; --layers, --width, --heads and --vocabulary
// replace the preset's dimensions. --ranks starts N processes that communicate
// over TCP on loopback, or through shared memory. --exchange host needs shared memory. In addition:
//   on a GPU in bf16  measures the GPU's peak rate with products of N x N x N (--peak, 8192;
//                     0: not measured)
//   on the CPU        compares the FLOP rate of the model's products with the rate that oneDNN
//                     reaches on the largest of them, measured in turns with the steps while the
//                     other ranks wait
//
// With --tokens (u16 token ids), a file of batch x accumulate x context + 1 tokens, each step sees
// the whole file. With --weights (safetensors, Hugging Face's names), another program can start
// from the same parameters, so that loss curves can be compared. --curve yes adds the loss of every
// step, warm-up included, and a digest of the final parameters. --algorithms chooses the algorithms
// of CUDA's products (kernels/ops/blas/blas.h). --timeline records all steps, at most 1000, and
// writes the recording at the end.
//
// Prints one line of JSON on stdout: medians, with the middle half as their spread.
//   partSeconds         the parts of a step. On a GPU they are timed by events of the compute
//                       stream (agent/parallel/step_timer.h), and add up to less than stepSeconds
//   firstStepSeconds    since program start, including the start of CUDA and its libraries and the
//                       creation of the model. It excludes the GPU's peak, which is measured after
//                       the steps, when the model's memory is free again
//   timelineSeconds     to compare clocks and write the recording; 0 without --timeline
//   recordSeconds       to add one record to it; 0 without --timeline
//   libraryMemoryBytes  GPU memory that CUDA and cuBLASLt took during training, in addition to
//                       memoryBytes; compose.cc keeps a reserve for it
//   bytesPerStep        payload bytes of a counted step: the most that a rank sends and receives,
//   and
//                       all that ranks copy to and from shared memory themselves. gradientBytes:
//                       the size of the gradients, padding included
// Exit code 77: this build or machine has no such device. 78: there is no cuDNN for --attention
// cudnn, or it does not support the model's attention.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/model/transformer/gpt.h"
#include "agent/train/data/token_windows.h"
#include "agent/train/device_choice.h"
#include "agent/train/forming.h"
#include "agent/train/matmul_peak.h"
#include "agent/train/timeline.h"
#include "agent/train/train_step.h"
#include "agent/train/weights/import_weights.h"
#include "bench/kernels/peer.h"
#include "bench/train/record_cost.h"
#include "bench/train/step_options.h"
#include "common/api/step_number_table.h"
#include "common/base/json.h"
#include "common/base/random.h"
#include "common/base/run_main.h"
#include "common/base/sha256.h"
#include "common/layout/cost.h"
#include "common/layout/device_peak.h"
#include "kernels/device/parallel.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::bench {
namespace {

constexpr int kNoDevice = 77;
constexpr int kNoCudnn = 78;

// The precision that products have: bf16 falls back to fp32 on a CPU that cannot multiply it.
kernels::Precision computed_in(const StepOptions& options) {
  const bool native = options.device.type == kernels::DeviceType::kCuda ||
                      kernels::cpu_matmul_support().native_bf16;
  return native ? options.precision : kernels::Precision::kF32;
}

struct Spread {
  double low = 0;
  double median = 0;
  double high = 0;
};

Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {values[values.size() / 4], values[values.size() / 2], values[values.size() * 3 / 4]};
}

// Returns the spread of one part's times over all steps.
Spread spread_of(const std::vector<StepNumbers>& steps, StepNumber::Value part) {
  std::vector<double> values;
  for (const StepNumbers& step : steps) values.push_back(*(step.*part));
  return spread_of(std::move(values));
}

Result<int> port_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return errno_error("[bench] getsockname", errno);
  }
  return static_cast<int>(ntohs(address.sin_port));
}

// Forks the other ranks and returns this process's options. Must run before any thread or compute
// library starts.
Result<comm::CommOptions> spread_out(const StepOptions& step, std::vector<pid_t>& children) {
  comm::CommOptions options{.job_uid = "bench", .round = 1, .world_hash = "bench", .key = "bench"};
  const int ranks = step.ranks;
  if (step.shares_memory) {
    options.shm_fd = memfd_create("bench", MFD_CLOEXEC);
    if (options.shm_fd < 0) return errno_error("[bench] memfd_create", errno);
  }
  std::vector<int> listeners;
  for (int rank = 0; rank < ranks; ++rank) {
    TRY_ASSIGN(const int fd, comm::listen_on("127.0.0.1", 0));
    TRY_ASSIGN(const int port, port_of(fd));
    listeners.push_back(fd);
    options.peers.push_back({"127.0.0.1", port, step.shares_memory ? 0 : rank});
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

// Payload bytes: the most of a rank, and of all ranks.
struct Moved {
  uint64_t sent_max = 0;
  uint64_t received_max = 0;
  uint64_t shared = 0;
};

struct Measured {
  std::vector<StepNumbers> steps;
  std::vector<double> product_rates;  // FLOP/s of oneDNN itself, its fastest variant each time
  std::vector<double> losses;         // of every step, warm-up included
  std::string parameters;             // digest of the final parameters
  double first_step_seconds = 0;      // since program start
  double timeline_seconds = 0;        // to write the recording
  double record_seconds = 0;          // to add a record
  double matmul_peak = 0;             // peak FLOP/s of products on the GPU; 0: not measured
  uint64_t memory_bytes = 0;          // the model's and all that its training needs
  Moved moved;                        // in all counted steps
  uint64_t gradient_bytes = 0;        // of the arena
  uint64_t library_bytes = 0;         // GPU memory taken during training beyond memory_bytes
};

class Bench {
 public:
  // `began` is when the program started.
  Bench(const StepOptions& options, const Workload& work, TimePoint began)
      : options_(options), work_(work), began_(began) {}

  Result<Measured> run(const comm::CommOptions& comm) {
    Measured measured;
    TRY(train(comm, measured));
    const int64_t edge = options_.peak;
    if (!on_cpu() && options_.precision == kernels::Precision::kBf16 && edge > 0) {
      TRY_ASSIGN(measured.matmul_peak,
                 train::matmul_peak(options_.device, {.shape = {edge, edge, edge}}, clock_));
    }
    return measured;
  }

 private:
  parallel::ComposeOptions composed(const comm::CommOptions& comm) const {
    parallel::ComposeOptions composed{
        .design = work_.config, .mesh = {.data = options_.ranks}, .optimizer = {}};
    composed.micro_batches = options_.accumulate;
    composed.micro_batch = work_.batch;
    composed.sequence = work_.context;
    composed.bucket_bytes = 4 << 20;
    composed.precision = options_.precision;
    composed.exchange = options_.exchange;
    composed.attention = options_.attention;
    composed.device = options_.device;
    composed.shared = {.fd = comm.shm_fd, .offset = comm::shm_bytes(options_.ranks)};
    return composed;
  }

  Status train(const comm::CommOptions& comm, Measured& measured) {
    TRY_ASSIGN(const kernels::DeviceMemory before, kernels::memory_of(options_.device));
    TRY_ASSIGN(const std::unique_ptr<comm::Communicator> world, comm::make_communicator(comm));
    TRY_ASSIGN(const std::unique_ptr<parallel::Composition> model,
               parallel::Composition::create(composed(comm), *world, clock_));
    TRY(begin_parameters(*model, comm.rank == 0));
    measured.memory_bytes = model->memory().device.bytes;
    if (!options_.tokens.empty()) {
      TRY(time_steps(*model, *world, options_.tokens, measured));
    } else {
      const std::string path = write_tokens(work_, comm.rank);
      const Status timed = time_steps(*model, *world, path, measured);
      std::filesystem::remove(path);
      TRY(timed);
    }
    TRY_ASSIGN(const kernels::DeviceMemory after, kernels::memory_of(options_.device));
    const uint64_t taken = before.free_bytes - std::min(before.free_bytes, after.free_bytes);
    measured.library_bytes = taken - std::min(taken, measured.memory_bytes);
    return {};
  }

  Status begin_parameters(parallel::Composition& model, bool is_first) const {
    if (options_.weights.empty()) {
      TRY(model.initialise(1));
      return model.broadcast_state(0);
    }
    if (!is_first) return model.load_parameters(nullptr);
    TRY_ASSIGN(train::WeightsSource weights,
               train::WeightsSource::open(options_.weights, work_.config));
    return model.load_parameters(&weights);
  }

  static Result<std::string> digest(parallel::Composition& model) {
    const parallel::ValueRun parameters{model.state().parameters, model.state().arena->count};
    Sha256 sha;
    TRY(model.transfer().read({&parameters, 1}, [&](std::span<const float> values) {
      sha.update(values.data(), values.size_bytes());
      return Status();
    }));
    return hex(sha.finish());
  }

  Status time_steps(parallel::Composition& model, comm::Communicator& world,
                    const std::string& path, Measured& measured) {
    TRY_ASSIGN(const train::TokenSource source,
               train::TokenSource::open({path, train::TokenWidth::kU16, work_.config.vocabulary}));
    TRY_ASSIGN(const train::DataSplit split,
               train::split_data({.tokens = source.count(), .context = work_.context}, path));
    const train::BatchShape batch{
        .micro = work_.batch, .accumulation = options_.accumulate, .data_size = options_.ranks};
    const train::TokenWindows windows(source, split);
    train::BatchLoader loader(windows, {.shape = batch, .data_rank = world.rank()});
    TRY_ASSIGN(train::TrainStep step,
               train::TrainStep::create({.schedule = {.kind = optim::ScheduleKind::kConstant,
                                                      .peak = options_.rate,
                                                      .steps = 1'000'000},
                                         .clip_norm = 1.0},
                                        {model, loader}));
    const kernels::MatmulShape largest{work_.batch * work_.context, 4 * work_.config.width,
                                       work_.config.width};
    std::vector<Peer> peers;
    if (world.rank() == 0 && on_cpu()) {
      TRY_ASSIGN(peers, matmul_peers(largest, computed_in(options_), options_.threads));
    }
    measured.gradient_bytes = static_cast<uint64_t>(model.state().arena->count) * sizeof(float);
    RankBytes before = bytes_of(model, world);
    std::optional<train::Timeline> timeline;
    const int64_t last = options_.warmup + options_.steps;
    if (!options_.timeline.empty()) {
      timeline.emplace(train::Timeline::Options{.spec = {.everySteps = last, .steps = last},
                                                .folder = options_.timeline},
                       world, clock_);
    }
    for (int64_t i = 1; i <= last; ++i) {
      TRY_ASSIGN(const train::TrainStep::Outcome outcome,
                 step.run({.step = i, .timeline = timeline ? timeline->recorder_of(i) : nullptr}));
      if (i == 1) measured.first_step_seconds = to_seconds(clock_.now() - began_);
      measured.losses.push_back(outcome.numbers.loss.value_or(0));
      const double rate = best_rate(peers, largest, clock_);
      TRY(world.barrier());
      if (i == options_.warmup) before = bytes_of(model, world);
      if (i <= options_.warmup) continue;
      measured.steps.push_back(outcome.numbers);
      measured.product_rates.push_back(rate);
    }
    TRY_ASSIGN(measured.moved, moved_since(before, model, world));
    const TimePoint trained = clock_.now();
    if (timeline) TRY(timeline->step_done(last));
    measured.timeline_seconds = to_seconds(clock_.now() - trained);
    if (timeline) measured.record_seconds = seconds_per_record(clock_);
    if (options_.curve) {
      TRY_ASSIGN(measured.parameters, digest(model));
    }
    return {};
  }

  struct RankBytes {
    uint64_t sent = 0;
    uint64_t received = 0;
    uint64_t shared = 0;
  };

  static RankBytes bytes_of(const parallel::Composition& model, const comm::Communicator& world) {
    const comm::Traffic traffic = world.traffic();
    const auto shared = model.shared_traffic();
    return {traffic.bytes_sent, traffic.bytes_received, shared.bytes_written + shared.bytes_read};
  }

  static Result<Moved> moved_since(const RankBytes& before, const parallel::Composition& model,
                                   comm::Communicator& world) {
    const RankBytes now = bytes_of(model, world);
    const RankBytes mine{now.sent - before.sent, now.received - before.received,
                         now.shared - before.shared};
    TRY_ASSIGN(const std::vector<RankBytes> ranks, world.all_gather_value(mine));
    Moved moved;
    for (const RankBytes& rank : ranks) {
      moved.sent_max = std::max(moved.sent_max, rank.sent);
      moved.received_max = std::max(moved.received_max, rank.received);
      moved.shared += rank.shared;
    }
    return moved;
  }

  static double best_rate(const std::vector<Peer>& peers, const kernels::MatmulShape& shape,
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

  bool on_cpu() const { return options_.device.type == kernels::DeviceType::kCpu; }

  StepOptions options_;
  Workload work_;
  SystemClock clock_;
  TimePoint began_;
};

void add_device(const StepOptions& options, const Measured& measured, Json& json) {
  const Result<kernels::DeviceInfo> info = kernels::describe(options.device);
  if (info.ok()) json["name"] = info->name;
  Json peaks = Json::object();
  const double datasheet = info.ok() ? datasheet_flops_per_second(info->name) : 0;
  if (datasheet > 0) peaks["datasheet"] = datasheet;
  if (measured.matmul_peak > 0) peaks["measured"] = measured.matmul_peak;
  json["peakFlopsPerSecond"] = std::move(peaks);
  json["libraryMemoryBytes"] = measured.library_bytes;
  const bool is_measured = options.algorithms == kernels::blas::AlgorithmChoice::kMeasured;
  json["algorithms"] = is_measured ? "measured" : "first";
}

Json parts_of(const std::vector<StepNumbers>& steps) {
  Json parts = Json::object();
  for (const StepNumber& number : step_number_table()) {
    if (std::string_view(number.metric.labels[0].name ? number.metric.labels[0].name : "") !=
        "part") {
      continue;
    }
    const auto part = std::get<StepNumber::Value>(number.member);
    parts[number.metric.labels[0].value] = spread_of(steps, part).median;
  }
  return parts;
}

// Returns the percentage of a step not spent on communication that backward did not hide.
double percent_not_waiting(const std::vector<StepNumbers>& steps) {
  std::vector<double> values;
  for (const StepNumbers& step : steps) {
    values.push_back(1 - *step.communication_seconds / *step.step_seconds);
  }
  return 100 * spread_of(std::move(values)).median;
}

Json report(const StepOptions& options, const Workload& work, const Measured& measured) {
  const Spread seconds = spread_of(measured.steps, &StepNumbers::step_seconds);
  const double tokens =
      static_cast<double>(work.batch * work.context * options.accumulate * options.ranks);
  const auto flops = [&](FlopsFormula formula) {
    return flops_per_token(work.config, work.context, formula);
  };
  const double rate = flops(FlopsFormula::kProducts) * tokens / seconds.median / options.ranks;
  const double peak = spread_of(measured.product_rates).median;
  const auto steps = static_cast<uint64_t>(options.steps);
  Json json = {{"program", "bench_step"},
               {"preset", options.preset},
               {"precision", options.precision == kernels::Precision::kBf16 ? "bf16" : "fp32"},
               {"computedIn", computed_in(options) == kernels::Precision::kBf16 ? "bf16" : "fp32"},
               {"attention", options.attention == kernels::AttentionBy::kCudnn ? "cudnn" : "own"},
               {"device", options.device.type == kernels::DeviceType::kCuda ? "cuda" : "cpu"},
               {"threads", options.threads},
               {"ranks", options.ranks},
               {"exchange", exchange_name(options.exchange)},
               {"transport", options.shares_memory ? "shared" : "tcp"},
               {"bytesPerStep",
                {{"sentMax", measured.moved.sent_max / steps},
                 {"receivedMax", measured.moved.received_max / steps},
                 {"shared", measured.moved.shared / steps}}},
               {"gradientBytes", measured.gradient_bytes},
               {"batch", work.batch},
               {"accumulate", options.accumulate},
               {"context", work.context},
               {"parameters", parameter_count(work.config)},
               {"tokensPerStep", tokens},
               {"stepSeconds", seconds.median},
               {"stepSecondsMiddleHalf", {seconds.low, seconds.high}},
               {"partSeconds", parts_of(measured.steps)},
               {"firstStepSeconds", measured.first_step_seconds},
               {"timelineSeconds", measured.timeline_seconds},
               {"recordSeconds", measured.record_seconds},
               {"memoryBytes", measured.memory_bytes},
               {"tokensPerSecond", tokens / seconds.median},
               {"productFlopsPerToken", flops(FlopsFormula::kProducts)},
               {"palmFlopsPerToken", flops(FlopsFormula::kPalm)},
               {"causalFlopsPerToken", flops(FlopsFormula::kCausal)},
               {"gigaFlopsPerRank", rate * 1e-9},
               {"oneDnnGigaFlops", peak * 1e-9},
               {"percentOfOneDnn", peak > 0 ? 100 * rate / peak : 0.0},
               {"percentNotWaiting", percent_not_waiting(measured.steps)}};
  if (options.device.type == kernels::DeviceType::kCuda) add_device(options, measured, json);
  if (options.curve) {
    json["losses"] = measured.losses;
    json["parametersSha256"] = measured.parameters;
  }
  return json;
}

// Ranks are forked, and CUDA does not survive a fork: several ranks run only on the CPU.
Status check_device(const StepOptions& options) {
  if (options.device.type == kernels::DeviceType::kCpu) return {};
  if (options.ranks > 1) return unavailable("--ranks 1 expected with --device cuda");
  TRY(kernels::device_ops(options.device.type));
  TRY(train::rank_device_here(options.device.index));
  return {};
}

Status check_cudnn(const StepOptions& options, const Workload& work) {
  if (options.attention != kernels::AttentionBy::kCudnn) return {};
  if (options.device.type == kernels::DeviceType::kCpu)
    return unavailable("[cudnn] a GPU expected");
  TRY(kernels::dnn::prepare_attention(
      options.device, model::attention_shape(work.config, {}, work.batch, work.context)));
  return {};
}

int fail(const Error& error, int code = 1) {
  std::fprintf(stderr, "bench_step: %s\n", error.message.c_str());
  return code;
}

int run(int argc, char** argv) {
  const TimePoint began = SystemClock().now();
  const Result<StepOptions> options = parse_step_options(argc, argv);
  if (!options.ok()) return fail(options.error());
  if (!kernels::cpu_level_cap().ok()) return fail(kernels::cpu_level_cap().error());
  const Result<Workload> work = workload_of(*options);
  if (!work.ok()) return fail(work.error());
  if (const Status there = check_device(*options); !there.ok()) {
    return fail(there.error(), kNoDevice);
  }
  if (const Status can = check_cudnn(*options, *work); !can.ok()) {
    return fail(can.error(), kNoCudnn);
  }
  std::vector<pid_t> children;
  const Result<comm::CommOptions> comm = spread_out(*options, children);
  if (!comm.ok()) return fail(comm.error());
  kernels::set_threads(options->threads);
  kernels::blas::set_algorithm_choice(options->algorithms);
  const Result<Measured> measured = Bench(*options, *work, began).run(*comm);
  if (measured.ok() && comm->rank == 0) {
    std::puts(dump_json(report(*options, *work, *measured)).c_str());
  }
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
  return lockstep::run_main("bench_step", lockstep::bench::run, argc, argv);
}
