// bench_kernels [--tiny] [--device cpu|cuda] [--threads N] [--seconds S] [--filter TEXT]
//
// On the CPU times the operations on the shapes of the kjv model (B=16, T=256, C=128 and 256) and
// of GPT-2 124M (B=4, T=64). Each matrix product is interleaved with oneDNN called directly, in the
// ways that it has, and compared with the best of them. Medians, with the middle half of the
// samples as spread. Rows of a table on stdout; --tiny runs every line once on small shapes, for
// the tests. On a GPU those of a GPT-2 124M with activations in bf16, 16 x 1024 tokens, the head in
// a chunk of 2048 rows; a sample is as many calls as take a millisecond. Bytes count fp32 there too
// where an operation has it. Exit code 77: this build or machine has no such device.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "bench/kernels/peer.h"
#include "common/base/clock.h"
#include "kernels/device/parallel.h"
#include "tests/kernels/op_cases.h"

namespace lockstep::bench {

namespace {

using namespace op_cases;

constexpr int kNoDevice = 77;

struct Options {
  bool tiny = false;
  DeviceType device = DeviceType::kCpu;
  int threads = 1;
  double seconds = 0.3;  // for each line of the table
  std::string filter;
};

struct Task {
  std::string name;
  std::function<void()> run;
  int calls = 1;  // of the operation in a run
  std::vector<double> seconds = {};
};

struct Spread {
  double low = 0.0;
  double median = 0.0;
  double high = 0.0;
};

Spread spread_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return {seconds[seconds.size() / 4], seconds[seconds.size() / 2],
          seconds[seconds.size() * 3 / 4]};
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// All tasks once in turn, again and again.
void measure(std::vector<Task>& tasks, double seconds) {
  if (seconds > 0.0) {
    for (Task& task : tasks) task.run();
  }
  const double end = now_seconds() + seconds * static_cast<double>(tasks.size());
  do {
    for (Task& task : tasks) {
      const double begin = now_seconds();
      task.run();
      task.seconds.push_back((now_seconds() - begin) / task.calls);
    }
  } while (now_seconds() < end);
}

struct Work {
  double flops = 0.0;
  double bytes = 0.0;
};

void print_row(const std::string& name, const Task& task, const Work& work, double best_peer) {
  const Spread s = spread_of(task.seconds);
  std::printf("%-58s %9.1f us [%9.1f %9.1f]", name.c_str(), s.median * 1e6, s.low * 1e6,
              s.high * 1e6);
  if (work.flops > 0.0) std::printf(" %8.1f GFLOP/s", work.flops / s.median * 1e-9);
  if (work.bytes > 0.0) std::printf(" %8.1f GB/s", work.bytes / s.median * 1e-9);
  if (best_peer > 0.0) std::printf(" %5.1f %% of the best", 100.0 * best_peer / s.median);
  std::printf("\n");
}

// What is timed on.
struct Place {
  const OpTable& ops;
  Stream stream;
  RunOn on;
};

// How many calls make a sample: one on the CPU; on a GPU, which is waited for at its end, enough
// that waiting is little of it.
int calls_of_a_sample(Place& place, const std::function<void()>& call) {
  if (place.on.device.type == DeviceType::kCpu) return 1;
  constexpr double kSampleSeconds = 2e-3;
  constexpr int kTries = 10;
  constexpr double kCallsMax = 1000;
  call();
  CHECK(place.stream.synchronize().ok());
  const double begin = now_seconds();
  for (int i = 0; i < kTries; ++i) call();
  CHECK(place.stream.synchronize().ok());
  const double each = std::max((now_seconds() - begin) / kTries, 1e-9);
  return static_cast<int>(std::clamp(kSampleSeconds / each, 1.0, kCallsMax));
}

Task task_of(const std::string& name, Place& place, const std::function<void()>& call) {
  const int calls = calls_of_a_sample(place, call);
  return {.name = name,
          .run =
              [&place, call, calls] {
                for (int i = 0; i < calls; ++i) call();
                CHECK(place.stream.synchronize().ok());
              },
          .calls = calls};
}

struct Subject {
  OpCase op_case;
  std::vector<Peer> peers;
};

void run_subject(const Subject& subject, Place& place, const Options& options) {
  const OpCase& c = subject.op_case;
  Tensors tensors = make_tensors(c, 1, place.on);
  std::vector<Task> tasks = {
      task_of("forward", place, [&] { c.forward(place.ops, place.stream, tensors); })};
  for (const Peer& peer : subject.peers)
    tasks.push_back({.name = "oneDNN " + peer.name, .run = peer.run});
  measure(tasks, options.seconds);
  double best = 0.0;
  for (size_t i = 1; i < tasks.size(); ++i) {
    const double median = spread_of(tasks[i].seconds).median;
    best = best == 0.0 ? median : std::min(best, median);
  }
  print_row(c.name + " forward", tasks[0], {c.forward_flops, c.forward_bytes}, best);
  for (size_t i = 1; i < tasks.size(); ++i) {
    print_row("    " + tasks[i].name, tasks[i], {c.forward_flops, 0.0}, best);
  }
  if (!c.backward) return;
  add_gradients(c, 1, tensors);
  std::vector<Task> backward = {
      task_of("backward", place, [&] { c.backward(place.ops, place.stream, tensors); })};
  measure(backward, options.seconds);
  // Two products of the same size: twice oneDNN's best time is the bound.
  print_row(c.name + " backward", backward[0], {c.backward_flops, c.backward_bytes}, 2.0 * best);
}

// oneDNN's own beside it on the CPU, where there are threads.
void add_matmul(std::vector<Subject>& subjects, const MatmulSizes& sizes, int threads) {
  subjects.push_back({matmul(sizes), threads == 0
                                         ? std::vector<Peer>{}
                                         : matmul_peers(sizes.shape, sizes.precision, threads)});
}

// The operations of one layer and of both ends, for a model of that size.
struct Model {
  int64_t batch = 0, sequence = 0, width = 0, heads = 0, vocabulary = 0;
  int64_t head_rows = 0;  // of a chunk of the head; 0: all
};

// The precisions in which products are timed: on a GPU that of the activations.
std::vector<Precision> precisions(const Place& place) {
  if (place.on.dtype == DType::kBf16) return {Precision::kBf16};
  if (!cpu_matmul_support().native_bf16) return {Precision::kF32};
  return {Precision::kF32, Precision::kBf16};
}

void add_model(std::vector<Subject>& subjects, const Model& m, const Place& place, int threads) {
  const int64_t rows = m.batch * m.sequence, c = m.width;
  const int64_t head_rows = m.head_rows > 0 ? m.head_rows : rows;
  for (const Precision precision : precisions(place)) {
    for (const auto& [n, k] : {std::pair{3 * c, c}, {c, c}, {4 * c, c}, {c, 4 * c}}) {
      add_matmul(subjects, {.shape = {rows, n, k}, .precision = precision}, threads);
    }
    add_matmul(subjects, {.shape = {head_rows, m.vocabulary, c}, .precision = precision}, threads);
  }
  const AttentionShape shape{.batch = m.batch,
                             .sequence = m.sequence,
                             .heads = m.heads,
                             .head_dim = c / m.heads,
                             .kv_heads = m.heads};
  subjects.push_back({attention(shape), {}});
  subjects.push_back({rotary(shape), {}});
  subjects.push_back({layernorm({.rows = rows, .width = c, .residual = true}), {}});
  subjects.push_back({rmsnorm({.rows = rows, .width = c, .residual = true}), {}});
  subjects.push_back({gelu(rows * 4 * c), {}});
  subjects.push_back({swiglu({.rows = rows, .width = 4 * c}), {}});
  subjects.push_back({embedding({m.batch, m.sequence, c, m.vocabulary}), {}});
  subjects.push_back(
      {classifier({.rows = head_rows, .columns = m.vocabulary, .vocabulary = m.vocabulary}), {}});
  subjects.push_back({add(rows * c), {}});
  const std::vector<int64_t> parameters = {12 * c * c, m.vocabulary * c};
  subjects.push_back({adamw({.counts = parameters}), {}});
  subjects.push_back({squared_norm(parameters), {}});
}

Result<Place> place_of(DeviceType type) {
  const Device device{type, 0};
  const bool is_gpu = type == DeviceType::kCuda;
  if (is_gpu) TRY(describe(device));
  TRY_ASSIGN(const OpTable* ops, device_ops(type));
  TRY_ASSIGN(Stream stream, Stream::create(device));
  return Place{*ops, std::move(stream), {device, is_gpu ? DType::kBf16 : DType::kF32}};
}

std::vector<Subject> subjects_of(const Place& place, const Options& options) {
  std::vector<Subject> subjects;
  const bool is_gpu = place.on.device.type == DeviceType::kCuda;
  const int threads = is_gpu ? 0 : options.threads;
  if (options.tiny) {
    add_model(subjects, {1, 8, 32, 2, 48}, place, threads);
  } else if (is_gpu) {
    add_model(subjects, {16, 1024, 768, 12, 50304, 2048}, place, threads);
  } else {
    add_model(subjects, {16, 256, 128, 4, 256}, place, threads);
    add_model(subjects, {16, 256, 256, 8, 256}, place, threads);
    add_model(subjects, {4, 64, 768, 12, 50257}, place, threads);
  }
  return subjects;
}

int run(const Options& options) {
  Result<Place> place = place_of(options.device);
  if (!place.ok()) {
    std::fprintf(stderr, "bench_kernels: %s\n", place.error().message.c_str());
    return kNoDevice;
  }
  set_threads(options.threads);
  const MatmulSupport support = cpu_matmul_support();
  std::printf("operations: %s; products: %s, %s, bf16 %s; %d threads\n", cpu_ops_isa(),
              support.library.c_str(), support.isa.c_str(), support.native_bf16 ? "native" : "no",
              options.threads);
  for (const Subject& subject : subjects_of(*place, options)) {
    if (subject.op_case.name.find(options.filter) == std::string::npos) continue;
    run_subject(subject, *place, options);
  }
  return 0;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--tiny") {
      options.tiny = true;
      options.seconds = 0.0;
      continue;
    }
    if (name == "--device" &&
        (value == std::string_view("cpu") || value == std::string_view("cuda"))) {
      options.device = value == std::string_view("cuda") ? DeviceType::kCuda : DeviceType::kCpu;
    } else if (name == "--threads") {
      options.threads = std::max(1, std::atoi(value));
    } else if (name == "--seconds") {
      options.seconds = std::atof(value);
    } else if (name == "--filter") {
      options.filter = value;
    } else {
      std::fprintf(stderr,
                   "bench_kernels [--tiny] [--device cpu|cuda] [--threads N] [--seconds S] "
                   "[--filter TEXT]\n");
      std::exit(2);
    }
    ++i;
  }
  return options;
}

}  // namespace

}  // namespace lockstep::bench

int main(int argc, char** argv) {
  return lockstep::bench::run(lockstep::bench::parse(argc, argv));
}
