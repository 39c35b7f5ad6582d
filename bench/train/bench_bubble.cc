// Measures how long the stages of a pipeline wait for each other.
//
//   bench_bubble [--forward-ms 10] [--stages 2,4,8] [--rounds 3] [--check]
//
// The stages are threads that run real schedules with the real executor and real messages, but
// sleep instead of computing: F for a forward, as long for the part of a backward with the
// gradients of activations, and as long for the gradients of parameters. The idle share is what is
// left of the stages' time from the common begin to the end of the last stage. Prints the median of
// the rounds next to the formula, as a Markdown table. With --check the exit code is 1 if one
// differs by more than 5 % of it.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/parallel/schedule_executor.h"
#include "agent/parallel/stage_links.h"
#include "agent/parallel/step_actions.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/run_main.h"
#include "common/layout/schedule_check.h"
#include "kernels/ops/op_table.h"

namespace lockstep::bench {
namespace {

using parallel::ScheduleExecutor;
using parallel::StageLinks;

constexpr double kDifferenceMax = 0.05;  // of the formula
constexpr size_t kChannelsMax = 4;       // of a stage

struct Options {
  int64_t forward_ms = 10;
  std::vector<int64_t> stages = {2, 4, 8};
  int64_t rounds = 3;
  bool check = false;
};

// How long a rank has slept.
class Sleeper {
 public:
  void sleep(double seconds) {
    const TimePoint begin = clock_.now();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    slept_seconds_ += to_seconds(clock_.now() - begin);
  }
  double slept_seconds() const { return slept_seconds_; }

 private:
  SystemClock clock_;
  double slept_seconds_ = 0;
};

// Seconds of the passes of one chunk.
struct Passes {
  double forward = 0;
  double backward = 0;
  double weights = 0;
};

// One block, whose passes sleep.
class SleepingBatch final : public model::MicroBatch {
 public:
  SleepingBatch(const Passes& passes, Sleeper& sleeper) : passes_(passes), sleeper_(sleeper) {}

  Status begin(const model::PassInput& input) override {
    version_ = input.version;
    return {};
  }
  Status forward(int64_t, std::span<const model::ParamView>) override {
    sleeper_.sleep(passes_.forward);
    return {};
  }
  Status backward(int64_t, std::span<const model::ParamView>, model::GradSink&) override {
    sleeper_.sleep(passes_.backward);
    return {};
  }
  Status backward_weights(int64_t, model::GradSink&) override {
    sleeper_.sleep(passes_.weights);
    return {};
  }
  kernels::View stage_input() const override { return kernels::View(edge_); }
  kernels::View stage_output() const override { return kernels::View(edge_); }
  int64_t input_count() const override { return 1; }
  int64_t output_count() const override { return 1; }
  kernels::View output_gradient() const override { return kernels::View(gradient_); }
  kernels::View input_gradient() const override { return kernels::View(gradient_); }
  int64_t version() const override { return version_; }
  bool trains() const override { return true; }
  Terms losses() const override { return {}; }
  Terms hits() const override { return {}; }

 private:
  Passes passes_;
  Sleeper& sleeper_;
  int64_t version_ = model::kLatestVersion;
  mutable float edge_[1] = {};
  mutable float gradient_[1] = {};
};

class SleepingModel final : public model::Model {
 public:
  // `part` of all parts of the model.
  explicit SleepingModel(int64_t part) : stage_{part, part + 1} {}

  const Stage& stage() const override { return stage_; }
  const ParameterArena& parameters() const override { return arena_; }
  void use_memory(const model::SharedMemory&) override {}
  Result<std::unique_ptr<model::MicroBatch>> new_micro_batch(const ActivationShape&,
                                                             kernels::Workspace) override {
    return internal("[bubble] micro-batches are made elsewhere");
  }
  Result<std::vector<int32_t>> generate(model::ParamStore&,
                                        const model::GenerateOptions&) override {
    return internal("[bubble] there is no text");
  }

 private:
  Stage stage_;
  ParameterArena arena_;
  float gradient_[1] = {};
};

class NoParameters final : public model::ParamStore {
 public:
  void prefetch(const model::BlockUse&) override {}
  Result<std::span<const model::ParamView>> get(const model::BlockUse&) override {
    return std::span<const model::ParamView>();
  }
  void release(const model::BlockUse&) override {}
};

class NoGradients final : public parallel::StepSink {
 public:
  void begin_step(const kernels::OpTable&) override {}
  void enable_reduction() override {}
  Status finish() override { return {}; }
  Status wait() override { return {}; }
  float* buffer(int64_t) override { return nullptr; }
  Status ready(int64_t) override { return {}; }
  Status end_micro_batch() override { return {}; }
};

class EndlessFeed final : public parallel::BatchFeed {
 public:
  Result<std::optional<parallel::DeviceBatch>> next() override {
    return std::optional(parallel::DeviceBatch{.rows = 1, .counted = 0});
  }
};

struct Case {
  PipelineShape shape;
  int64_t steps = 1;  // without an empty pipeline between them, if steps overlap
};

struct RankTime {
  TimePoint begin{};
  TimePoint end{};
  double slept_seconds = 0;
};

Status run_stage(const Case& run, const Passes& passes, comm::Communicator& world, RankTime& time) {
  const PipelineShape& shape = run.shape;
  const SystemClock clock;
  kernels::Stream stream;
  Sleeper sleeper;
  std::vector<float> messages(kChannelsMax * static_cast<size_t>(kChannelSlots));
  StageLinks links;
  TRY(parallel::make_stage_links(world,
                                 {.is_ring = shape.chunks > 1,
                                  .message_bytes = sizeof(float),
                                  .memory = {messages.data(), messages.size() * sizeof(float)}},
                                 kernels::cpu_ops(), stream, links));
  std::vector<std::unique_ptr<SleepingModel>> models;
  std::vector<ScheduleExecutor::Chunk> chunks;
  const int64_t in_flight = in_flight_bound(shape, world.rank());
  for (int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    models.push_back(std::make_unique<SleepingModel>(shape.part(world.rank(), chunk)));
    chunks.push_back({*models.back(), {}, {.input = 1, .output = 1}});
    for (int64_t i = 0; i < in_flight; ++i) {
      chunks.back().micro_batches.push_back(std::make_unique<SleepingBatch>(passes, sleeper));
    }
  }
  NoParameters store;
  NoGradients sink;
  parallel::StepValues values, host_values;
  parallel::StepScalars scalars({.device = &values, .pinned = &host_values});
  const std::unique_ptr<parallel::StepTimer> timer = parallel::make_step_timer(stream, clock);
  std::vector<char> data(static_cast<size_t>(in_flight));
  ScheduleExecutor::Options options{
      .batch = {},
      .micro_batches = shape.micro_batches,
      .samples = std::vector<int64_t>(static_cast<size_t>(shape.micro_batches), 1),
      .splits_backward = gradients_in(shape) == ActionKind::kBackwardWeights};
  for (char& place : data) options.data.push_back({&place, 0});
  ScheduleExecutor executor(options, std::move(chunks),
                            {store, sink, scalars, kernels::cpu_ops(), stream, *timer, links});
  const auto actions = parallel::make_step_actions(shape, world.rank());
  EndlessFeed feed;
  TRY(world.barrier());
  time.begin = clock.now();
  for (int64_t step = 1; step <= run.steps; ++step) {
    TRY(timer->begin(nullptr));
    const std::vector<Action>& list = actions->of(step, run.steps);
    TRY(executor.announce(list));
    TRY(executor.run(1, list, feed, [] { return Status(); }));
  }
  time.end = clock.now();
  time.slept_seconds = sleeper.slept_seconds();
  return links.wait();
}

// Returns the share of the stages' time in which they wait.
Result<double> measure(const Case& run, const Passes& passes) {
  const auto stages = static_cast<size_t>(run.shape.stages);
  TRY_ASSIGN(const auto world, comm::make_thread_world(static_cast<int>(stages)));
  std::vector<RankTime> times(stages);
  std::vector<Status> results(stages);
  {
    std::vector<std::jthread> ranks;
    for (size_t rank = 0; rank < stages; ++rank) {
      ranks.emplace_back(
          [&, rank] { results[rank] = run_stage(run, passes, *world[rank], times[rank]); });
    }
  }
  double slept = 0;
  TimePoint begin = times[0].begin, end = times[0].end;
  for (size_t rank = 0; rank < stages; ++rank) {
    TRY(results[rank]);
    slept += times[rank].slept_seconds;
    begin = std::max(begin, times[rank].begin);
    end = std::max(end, times[rank].end);
  }
  return 1 - slept / (to_seconds(end - begin) * static_cast<double>(stages));
}

// docs/parallelism.md; F = B - W = W.
double formula(const Case& run) {
  const PipelineShape& shape = run.shape;
  const auto p = static_cast<double>(shape.stages);
  const auto m = static_cast<double>(shape.micro_batches);
  switch (shape.kind) {
    case PipelineKind::kNaive:
      return 1 - 1 / p;
    case PipelineKind::kInterleaved:
      return (p - 1) / (static_cast<double>(shape.chunks) * m + p - 1);
    case PipelineKind::kZeroBubble:
      return (p - 1) / (3 * m + p - 1);  // (p - 1) (F + B - W) idle, with B of activations alone
    case PipelineKind::kPipeDream:
      return (p - 1) / (m * static_cast<double>(run.steps) + p - 1);
    default:
      return (p - 1) / (m + p - 1);
  }
}

std::vector<Case> cases(int64_t stages) {
  const int64_t m = 2 * stages;
  std::vector<Case> found;
  for (const PipelineKind kind :
       {PipelineKind::kNaive, PipelineKind::kGpipe, PipelineKind::kOneForwardOneBackward,
        PipelineKind::kInterleaved, PipelineKind::kZeroBubble}) {
    const int64_t chunks = kind == PipelineKind::kInterleaved ? 2 : 1;
    found.push_back({{.kind = kind, .stages = stages, .micro_batches = m, .chunks = chunks}});
  }
  found.push_back(
      {{.kind = PipelineKind::kPipeDream, .stages = stages, .micro_batches = 1}, 3 * stages});
  return found;
}

Result<bool> measure_all(const Options& options) {
  bool is_close = true;
  std::printf(
      "| schedule | stages | micro-batches | steps | formula | measured | difference |\n"
      "|---|---|---|---|---|---|---|\n");
  const double seconds = static_cast<double>(options.forward_ms) / 1000;
  for (const int64_t stages : options.stages) {
    for (const Case& each : cases(stages)) {
      const auto chunks = static_cast<double>(each.shape.chunks);
      const bool is_split = gradients_in(each.shape) == ActionKind::kBackwardWeights;
      const Passes passes{.forward = seconds / chunks,
                          .backward = (is_split ? 1 : 2) * seconds / chunks,
                          .weights = seconds};
      std::vector<double> shares;
      for (int64_t round = 0; round < options.rounds; ++round) {
        TRY_ASSIGN(const double share, measure(each, passes));
        shares.push_back(share);
      }
      std::ranges::sort(shares);
      const double measured = shares[shares.size() / 2];
      const double expected = formula(each);
      const double difference = measured / expected - 1;
      is_close = is_close && std::abs(difference) <= kDifferenceMax;
      std::printf("| %s | %lld | %lld | %lld | %.1f %% | %.1f %% | %+.1f %% |\n",
                  std::string(pipeline_kind_name(each.shape.kind)).c_str(),
                  static_cast<long long>(stages), static_cast<long long>(each.shape.micro_batches),
                  static_cast<long long>(each.steps), 100 * expected, 100 * measured,
                  100 * difference);
    }
  }
  return is_close;
}

Result<int64_t> number(const std::string& flag, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value > 0 && value <= 1000) {
    return value;
  }
  return invalid(flag + ": expected a number from 1 to 1000, found " + std::string(text));
}

Result<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--check") {
      options.check = true;
      continue;
    }
    const std::string_view text = i + 1 < argc ? argv[++i] : "";
    if (flag == "--forward-ms") {
      TRY_ASSIGN(options.forward_ms, number(flag, text));
    } else if (flag == "--rounds") {
      TRY_ASSIGN(options.rounds, number(flag, text));
    } else if (flag == "--stages") {
      options.stages.clear();
      for (size_t begin = 0; begin <= text.size(); begin = text.find(',', begin) + 1) {
        TRY_ASSIGN(const int64_t stages,
                   number(flag, text.substr(begin, text.find(',', begin) - begin)));
        if (stages < 2) return invalid("--stages: expected 2 or more");
        options.stages.push_back(stages);
        if (text.find(',', begin) == text.npos) break;
      }
    } else {
      return invalid("unknown option " + flag);
    }
  }
  return options;
}

int run(int argc, char** argv) {
  const Result<Options> options = parse(argc, argv);
  const Result<bool> is_close = options.ok() ? measure_all(*options) : options.error();
  if (!is_close.ok()) {
    std::fprintf(stderr, "bench_bubble: %s\n", is_close.error().message.c_str());
    return 1;
  }
  return options->check && !*is_close ? 1 : 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  return lockstep::run_main("bench_bubble", lockstep::bench::run, argc, argv);
}
