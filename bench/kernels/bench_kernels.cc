// bench_kernels [--tiny] [--device cpu|cuda] [--threads N] [--seconds S] [--filter TEXT]
//
// Times the operations on the shapes of the kjv model (B=16, T=256, C=128 and 256) and of GPT-2
// 124M (B=4, T=64). Each matrix product is interleaved with oneDNN called directly, in the ways
// that it has, and compared with the best of them. Medians, with the middle half of the samples as
// spread. Rows of a table on stdout; --tiny runs every line once on small shapes, for the tests.
// Exit code 77: this build or machine has no such device.
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
      task.seconds.push_back(now_seconds() - begin);
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

struct Subject {
  OpCase op_case;
  std::vector<Peer> peers;
};

void run_subject(const Subject& subject, const Options& options) {
  const OpCase& c = subject.op_case;
  Stream stream;
  Tensors tensors = make_tensors(c, 1);
  std::vector<Task> tasks = {{"forward", [&] { c.forward(cpu_ops(), stream, tensors); }}};
  for (const Peer& peer : subject.peers) tasks.push_back({"oneDNN " + peer.name, peer.run});
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
  std::vector<Task> backward = {{"backward", [&] { c.backward(cpu_ops(), stream, tensors); }}};
  measure(backward, options.seconds);
  // Two products of the same size: twice oneDNN's best time is the bound.
  print_row(c.name + " backward", backward[0], {c.backward_flops, c.backward_bytes}, 2.0 * best);
}

void add_matmul(std::vector<Subject>& subjects, const MatmulSizes& sizes, int threads) {
  subjects.push_back({matmul(sizes), matmul_peers(sizes.shape, sizes.precision, threads)});
}

// The operations of one layer and of both ends, for a model of that size.
struct Model {
  int64_t batch = 0, sequence = 0, width = 0, heads = 0, vocabulary = 0;
};

void add_model(std::vector<Subject>& subjects, const Model& m, int threads) {
  const int64_t rows = m.batch * m.sequence, c = m.width;
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    if (precision == Precision::kBf16 && !cpu_matmul_support().native_bf16) continue;
    for (const auto& [n, k] :
         {std::pair{3 * c, c}, {c, c}, {4 * c, c}, {c, 4 * c}, {m.vocabulary, c}}) {
      add_matmul(subjects, {.shape = {rows, n, k}, .precision = precision}, threads);
    }
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
      {classifier({.rows = rows, .columns = m.vocabulary, .vocabulary = m.vocabulary}), {}});
  subjects.push_back({add(rows * c), {}});
  const std::vector<int64_t> parameters = {12 * c * c, m.vocabulary * c};
  subjects.push_back({adamw({.counts = parameters}), {}});
  subjects.push_back({squared_norm(parameters), {}});
}

int run(const Options& options) {
  if (options.device != DeviceType::kCpu) {
    std::fprintf(stderr, "bench_kernels: operations of a GPU are not in this version\n");
    return kNoDevice;
  }
  set_threads(options.threads);
  const MatmulSupport support = cpu_matmul_support();
  std::printf("operations: %s; products: %s, %s, bf16 %s; %d threads\n", cpu_ops_isa(),
              support.library.c_str(), support.isa.c_str(), support.native_bf16 ? "native" : "no",
              options.threads);
  std::vector<Subject> subjects;
  if (options.tiny) {
    add_model(subjects, {1, 8, 32, 2, 48}, options.threads);
  } else {
    add_model(subjects, {16, 256, 128, 4, 256}, options.threads);
    add_model(subjects, {16, 256, 256, 8, 256}, options.threads);
    add_model(subjects, {4, 64, 768, 12, 50257}, options.threads);
  }
  for (const Subject& subject : subjects) {
    if (subject.op_case.name.find(options.filter) == std::string::npos) continue;
    run_subject(subject, options);
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
