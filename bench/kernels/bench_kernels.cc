// bench_kernels [--tiny] [--device cpu|cuda] [--dtype bf16|fp32] [--threads N] [--seconds S]
//               [--filter TEXT] [--attention BxTxNHxHD[xKVH],... [--by own|cudnn]]
//               [--json FILE]
//
// Prints a roofline: a row for each operation of OpTable, with its time, the bytes that it must
// move, the operations that it must do (counted from sizes and dtypes, work.h), and its share of
// the device's peak. The peaks are measured first, in the same run, and printed next to the
// datasheet's: memory (a copy, or our scale if that is faster) and products in fp32 and bf16. The
// bound of a row is the largest of bytes / memory, products / products and other arithmetic / fp32
// products. Rows that fit into a cache can be above 100 %.
//
// On the CPU it runs the shapes of the kjv model (B=16, T=256, C=128 and 256) and of GPT-2 124M
// (B=4, T=64), with bf16 weights too if the CPU multiplies them, and compares each product with
// direct calls of oneDNN, interleaved. On a GPU it runs GPT-2 124M, B=64, T=1024, with the head in
// chunks of 8192 rows and activations in --dtype (bf16), timed by the device's clock; a sample is
// as many calls as take two milliseconds. Convolutions run once more by cuDNN. With --attention it
// runs only these shapes, forward and backward, with our kernels or cuDNN's.
//
// Times are medians, with the middle half of the samples as spread, from --seconds (0.3) of samples
// per row. --tiny runs every row once on small shapes, for the tests. --json appends one object per
// line: first the device, then each row as it is measured. Exit codes: 1 if a row failed; 77 if
// this build or machine has no such device; 78 if none failed, but cuDNN is missing or does not
// support a shape.
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include "bench/kernels/options.h"
#include "bench/kernels/peaks.h"
#include "bench/kernels/peer.h"
#include "bench/kernels/rows.h"
#include "bench/kernels/timing.h"
#include "common/base/json.h"
#include "common/base/run_main.h"
#include "kernels/device/parallel.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::bench {

namespace {

constexpr int kNoDevice = 77;
constexpr int kNoCudnn = 78;

class Bench {
 public:
  Bench(BenchDevice& bench_device, const KernelOptions& options)
      : bench_device_(bench_device), options_(options) {
    if (!options.json.empty()) json_.open(options.json, std::ios::app);
  }

  Status measure_device();
  // Whether it went well.
  bool measure(const Row& row);
  // Why it is not measured.
  void leave_out(const Row& row, const Error& reason);

 private:
  Status measure_or_fail(const Row& row);
  void print(const Row& row, const Work& work, const Spread& time, double best_peer);
  void write(const Json& line) {
    if (json_.is_open()) json_ << dump_json(line) << std::endl;
  }
  SampleOptions samples() const { return {.seconds = options_.seconds}; }

  BenchDevice& bench_device_;
  const KernelOptions& options_;
  Peaks peaks_;
  std::ofstream json_;
};

Json json_of(const Peaks& peaks) {
  return {{"bytesPerSecond", peaks.bytes},
          {"fp32FlopsPerSecond", peaks.f32_flops},
          {"bf16FlopsPerSecond", peaks.bf16_flops}};
}

Status Bench::measure_device() {
  TRY_ASSIGN(const kernels::DeviceInfo info, kernels::describe(bench_device_.device()));
  PeakSizes sizes;
  if (bench_device_.on_cpu()) sizes = {.copied_bytes = 256 << 20, .product = {1024, 1024, 1024}};
  if (options_.tiny) sizes = {.copied_bytes = 4096, .product = {32, 32, 32}};
  TRY_ASSIGN(peaks_, measure_peaks(bench_device_, sizes, samples()));
  const Peaks sheet = datasheet_peaks(info.name);
  std::printf(
      "%s: measured %.1f GB/s, products %.1f GFLOP/s in fp32, %.1f in bf16; "
      "datasheet %.0f GB/s, bf16 %.0f GFLOP/s (0: not known)\n",
      info.name.c_str(), peaks_.bytes * 1e-9, peaks_.f32_flops * 1e-9, peaks_.bf16_flops * 1e-9,
      sheet.bytes * 1e-9, sheet.bf16_flops * 1e-9);
  Json head = {{"device", info.name}, {"measured", json_of(peaks_)}, {"datasheet", json_of(sheet)}};
  if (bench_device_.on_cpu()) {
    const kernels::MatmulSupport support = kernels::cpu_matmul_support();
    std::printf("operations: %s; products: %s, %s, bf16 %s; %d threads\n", kernels::cpu_ops_isa(),
                support.library.c_str(), support.isa.c_str(), support.native_bf16 ? "native" : "no",
                options_.threads);
    head["threads"] = options_.threads;
  }
  write(head);
  return {};
}

bool Bench::measure(const Row& row) {
  const Status status = measure_or_fail(row);
  if (status.ok()) return true;
  std::printf("%s %s FAILED: %s\n", row.op.c_str(), row.sizes.c_str(),
              status.error().message.c_str());
  write({{"op", row.op}, {"sizes", row.sizes}, {"error", status.error().message}});
  return false;
}

void Bench::leave_out(const Row& row, const Error& reason) {
  std::printf("%s %s left out: %s\n", row.op.c_str(), row.sizes.c_str(), reason.message.c_str());
  write({{"op", row.op}, {"sizes", row.sizes}, {"leftOut", reason.message}});
}

Status Bench::measure_or_fail(const Row& row) {
  Memory memory(bench_device_);
  const Call call = row.prepare(memory);
  TRY(memory.status());
  std::vector<Peer> peers;
  if (bench_device_.on_cpu() && row.product) {
    TRY_ASSIGN(peers, matmul_peers(*row.product, row.precision, options_.threads));
  }
  std::vector<std::function<void()>> calls = {call.run};
  for (const Peer& peer : peers) calls.push_back(peer.run);
  TRY_ASSIGN(const std::vector<Spread> times, sample(bench_device_, calls, samples()));
  double best = 0.0;
  for (size_t i = 1; i < times.size(); ++i) {
    best = best == 0.0 ? times[i].median : std::min(best, times[i].median);
  }
  print(row, call.work, times[0], best);
  for (size_t i = 1; i < times.size(); ++i) {
    std::printf("    %-58s %9.1f us [%9.1f %9.1f]\n", ("oneDNN " + peers[i - 1].name).c_str(),
                times[i].median * 1e6, times[i].low * 1e6, times[i].high * 1e6);
  }
  return {};
}

void Bench::print(const Row& row, const Work& work, const Spread& time, double best_peer) {
  const Bound bound = bound_of(work, peaks_);
  const double percent = 100.0 * bound.seconds / time.median;
  std::printf("%-62s %9.1f us [%9.1f %9.1f] %8.1f GB/s %10.1f GFLOP/s %6.1f %% of %s",
              (row.op + " " + row.sizes).c_str(), time.median * 1e6, time.low * 1e6,
              time.high * 1e6, work.bytes / time.median * 1e-9,
              (work.product_flops + work.other_flops) / time.median * 1e-9, percent, bound.by);
  if (best_peer > 0.0) std::printf(", %.1f %% of oneDNN's best", 100.0 * best_peer / time.median);
  std::printf("\n");
  Json line = {{"op", row.op},
               {"sizes", row.sizes},
               {"seconds", time.median},
               {"secondsMiddleHalf", {time.low, time.high}},
               {"bytes", work.bytes},
               {"productFlops", work.product_flops},
               {"factors", work.factors == kernels::DType::kBf16 ? "bf16" : "fp32"},
               {"otherFlops", work.other_flops},
               {"boundSeconds", bound.seconds},
               {"boundBy", bound.by},
               {"percentOfBound", percent}};
  if (best_peer > 0.0) line["oneDnnSeconds"] = best_peer;
  write(line);
}

// Sizes of GPT-2 124M but for the batch; its 50257 tokens filled up to a multiple of 64.
Model gpt2(int64_t batch, int64_t sequence, int64_t head_rows) {
  return {.batch = batch,
          .sequence = sequence,
          .width = 768,
          .heads = 12,
          .layers = 12,
          .vocabulary = 50257,
          .columns = 50304,
          .head_rows = head_rows};
}

Model kjv(int64_t width) {
  return {.batch = 16,
          .sequence = 256,
          .width = width,
          .heads = width / 32,
          .layers = 4,
          .vocabulary = 256,
          .columns = 256,
          .head_rows = 16 * 256};
}

constexpr Model kTiny{.batch = 1,
                      .sequence = 8,
                      .width = 32,
                      .heads = 2,
                      .layers = 2,
                      .vocabulary = 45,
                      .columns = 48,
                      .head_rows = 4};
// With heads that the tensor cores' kernels take, and more rows than a tile of theirs.
constexpr Model kTinyOnGpu{.batch = 1,
                           .sequence = 72,
                           .width = 128,
                           .heads = 2,
                           .layers = 1,
                           .vocabulary = 300,
                           .columns = 320,
                           .head_rows = 24};

std::vector<Row> gpu_rows(const KernelOptions& options) {
  Model model = options.tiny ? kTinyOnGpu : gpt2(64, 1024, 8192);
  model.dtype = options.dtype;
  model.precision =
      options.dtype == kernels::DType::kBf16 ? kernels::Precision::kBf16 : kernels::Precision::kF32;
  std::vector<Row> rows = rows_of(model);
  Result<std::vector<Row>> more = cudnn_conv_rows(model, {kernels::DeviceType::kCuda, 0});
  if (!more.ok()) {
    std::printf("no convolutions by cuDNN: %s\n", more.error().message.c_str());
    return rows;
  }
  for (Row& row : *more) rows.push_back(std::move(row));
  return rows;
}

std::vector<Row> cpu_rows(const KernelOptions& options) {
  std::vector<Row> rows;
  const auto add = [&](std::vector<Row> more) {
    for (Row& row : more) rows.push_back(std::move(row));
  };
  const std::vector<Model> models = options.tiny
                                        ? std::vector<Model>{kTiny}
                                        : std::vector<Model>{kjv(128), kjv(256), gpt2(4, 64, 256)};
  for (Model model : models) {
    add(rows_of(model));
    model.precision = kernels::Precision::kBf16;
    if (kernels::cpu_matmul_support().native_bf16) add(matmul_rows(model));
  }
  return rows;
}

// Counts of the rows that --filter selects.
struct Counts {
  int failed = 0;
  int left_out = 0;
};

Counts measure_all(Bench& bench, const KernelOptions& options, const std::vector<Row>& rows,
                   const Status& can = {}) {
  Counts counts;
  for (const Row& row : rows) {
    const std::string name = row.op + " " + row.sizes;
    if (name.find(options.filter) == std::string::npos) continue;
    if (can.ok()) {
      counts.failed += bench.measure(row) ? 0 : 1;
    } else {
      bench.leave_out(row, can.error());
      ++counts.left_out;
    }
  }
  return counts;
}

Status can_measure(const kernels::AttentionShape& shape, kernels::Device device,
                   kernels::AttentionBy by) {
  if (by == kernels::AttentionBy::kOwn) return {};
  if (device.type == kernels::DeviceType::kCpu) return unavailable("[cudnn] a GPU expected");
  TRY(kernels::dnn::prepare_attention(device, shape));
  return {};
}

Counts measure_shapes(Bench& bench, const BenchDevice& bench_device, const KernelOptions& options) {
  const kernels::DType dtype = bench_device.on_cpu() ? kernels::DType::kF32 : options.dtype;
  Counts all;
  for (const kernels::AttentionShape& shape : options.attention) {
    const Counts counts = measure_all(bench, options, attention_rows(shape, dtype, options.by),
                                      can_measure(shape, bench_device.device(), options.by));
    all = {all.failed + counts.failed, all.left_out + counts.left_out};
  }
  return all;
}

int fail(const Error& error, int code) {
  std::fprintf(stderr, "bench_kernels: %s\n", error.message.c_str());
  return code;
}

int run(int argc, char** argv) {
  const Result<KernelOptions> options = parse_kernel_options(argc, argv);
  if (!options.ok()) return fail(options.error(), 2);
  if (!kernels::cpu_level_cap().ok()) return fail(kernels::cpu_level_cap().error(), 2);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a row that was measured is seen whatever comes then
  Result<BenchDevice> bench_device = open_bench_device(options->device);
  if (!bench_device.ok()) return fail(bench_device.error(), kNoDevice);
  kernels::set_threads(options->threads);
  Bench bench(*bench_device, *options);
  if (const Status status = bench.measure_device(); !status.ok()) return fail(status.error(), 1);
  const Counts counts =
      options->attention.empty()
          ? measure_all(bench, *options,
                        bench_device->on_cpu() ? cpu_rows(*options) : gpu_rows(*options))
          : measure_shapes(bench, *bench_device, *options);
  return counts.failed > 0 ? 1 : counts.left_out > 0 ? kNoCudnn : 0;
}

}  // namespace

}  // namespace lockstep::bench

int main(int argc, char** argv) {
  return lockstep::run_main("bench_kernels", lockstep::bench::run, argc, argv);
}
