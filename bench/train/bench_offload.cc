// bench_offload [--device cpu|cuda] [--in file|pinned] [--folder DIR] [--mib N] [--threads N]
//               [--steps N]
//
// Compares AdamW whose states are streamed through two buffers (agent/parallel/offload) with AdamW
// on the device, in turns. Each state has --mib MiB, and so have parameters and gradients. The
// states are in a scratch file in --folder (default: that for temporary files), or with --in pinned
// in page-locked memory.
//
// Prints one line of JSON on stdout; times are medians of all steps but the first.
//   copySeconds         the time of streaming without computing: next to it, streamedSeconds shows
//                       how much is hidden
//   waitedPercent       time in which nothing was computed, as a part of the streamed time
//   farBytesPerSecond   bytes read from and written to far memory per second of streaming
//   residentBytes       growth of the process's memory from before the streamed updates, buffers
//                       excluded
// Exit code 77: this build or machine has no such device.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "agent/parallel/offload/offloaded_tensors.h"
#include "common/base/json.h"
#include "common/base/run_main.h"
#include "kernels/device/parallel.h"
#include "kernels/ops/op_table.h"

namespace lockstep::bench {
namespace {

constexpr int kNoDevice = 77;
constexpr size_t kStates = 2;

struct OffloadSettings {
  kernels::Device device;
  bool in_file = true;
  std::string folder;
  int64_t mib = 256;
  int threads = 1;
  int64_t steps = 9;

  size_t bytes() const { return static_cast<size_t>(mib) << 20; }
  int64_t count() const { return static_cast<int64_t>(bytes() / sizeof(float)); }
};

Result<int64_t> positive(const std::string& flag, const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value > 0) return value;
  return invalid(flag + ": a number from 1 expected, got " + text);
}

Result<OffloadSettings> parse(int argc, char** argv) {
  std::map<std::string, std::string> given{{"--device", "cpu"}, {"--in", "file"},
                                           {"--folder", ""},    {"--mib", "256"},
                                           {"--threads", "1"},  {"--steps", "9"}};
  for (int i = 1; i < argc; i += 2) {
    const auto flag = given.find(argv[i]);
    if (flag == given.end() || i + 1 == argc) {
      return invalid("a flag and its value expected, got " + std::string(argv[i]));
    }
    flag->second = argv[i + 1];
  }
  OffloadSettings settings{.in_file = given["--in"] == "file", .folder = given["--folder"]};
  if (given["--device"] == "cuda") settings.device.type = kernels::DeviceType::kCuda;
  TRY_ASSIGN(settings.mib, positive("--mib", given["--mib"]));
  TRY_ASSIGN(settings.steps, positive("--steps", given["--steps"]));
  TRY_ASSIGN(const int64_t threads, positive("--threads", given["--threads"]));
  settings.threads = static_cast<int>(threads);
  return settings;
}

// VmRSS, in bytes.
int64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib << 10;
  }
  return 0;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// An optimizer's memory: the states are in `near` or in `far`.
struct Memory {
  kernels::Buffer parameters, gradients;
  std::vector<kernels::Buffer> near;
  std::vector<kernels::PinnedBuffer> pinned;
  std::vector<parallel::FarMemory> far;

  Status allocate(const OffloadSettings& settings) {
    TRY_ASSIGN(parameters, kernels::Buffer::allocate(settings.device, settings.bytes()));
    TRY_ASSIGN(gradients, kernels::Buffer::allocate(settings.device, settings.bytes()));
    return {};
  }
  Status add_near(const OffloadSettings& settings) {
    TRY_ASSIGN(near.emplace_back(), kernels::Buffer::allocate(settings.device, settings.bytes()));
    return {};
  }
  Status add_far(const OffloadSettings& settings) {
    if (settings.in_file) {
      TRY_ASSIGN(far.emplace_back(),
                 parallel::FarMemory::in_file({.folder = settings.folder,
                                               .by = "a state",
                                               .bytes = static_cast<int64_t>(settings.bytes())}));
      return {};
    }
    TRY_ASSIGN(pinned.emplace_back(),
               kernels::PinnedBuffer::allocate(settings.device, settings.bytes()));
    far.emplace_back(kernels::Workspace{pinned.back().data(), settings.bytes()});
    return {};
  }
  kernels::UpdatedTensor tensor(const OffloadSettings& settings) const {
    kernels::UpdatedTensor tensor{.parameter = parameters.f32(),
                                  .gradient = gradients.f32(),
                                  .count = settings.count(),
                                  .weight_decay = 0.1f};
    for (size_t k = 0; k < kStates; ++k) {
      tensor.states[k] = far.empty() ? near[k].f32() : far[k].data();
    }
    return tensor;
  }
};

// The two buffers of the pieces.
struct Pieces {
  std::vector<kernels::Buffer> device;
  std::vector<kernels::PinnedBuffer> pinned;
  parallel::PieceMemory memory;

  Status allocate(const OffloadSettings& settings) {
    const size_t bytes = parallel::piece_buffer_bytes(kStates, settings.count());
    const bool is_staged = settings.in_file && settings.device.type == kernels::DeviceType::kCuda;
    for (size_t i = 0; i < 2; ++i) {
      TRY_ASSIGN(device.emplace_back(), kernels::Buffer::allocate(settings.device, bytes));
      memory.device[i] = device[i].workspace();
      if (!is_staged) continue;
      TRY_ASSIGN(pinned.emplace_back(), kernels::PinnedBuffer::allocate(settings.device, bytes));
      memory.pinned[i] = {pinned[i].data(), bytes};
    }
    return {};
  }
};

class Bench {
 public:
  explicit Bench(const OffloadSettings& settings) : settings_(settings) {}

  Result<Json> run() {
    TRY_ASSIGN(stream_, kernels::Stream::create(settings_.device));
    TRY_ASSIGN(ops_, kernels::device_ops(settings_.device.type));
    for (Memory* memory : {&whole_, &offloaded_}) TRY(memory->allocate(settings_));
    for (size_t k = 0; k < kStates; ++k) {
      TRY(whole_.add_near(settings_));
      TRY(offloaded_.add_far(settings_));
    }
    TRY(pieces_.allocate(settings_));
    const kernels::UpdatedTensor far = offloaded_.tensor(settings_);
    TRY_ASSIGN(auto tensors, parallel::OffloadedTensors::create(
                                 stream_, {.states = {&offloaded_.far[0], &offloaded_.far[1]}},
                                 {&far, 1}, pieces_.memory, clock_));
    return measure(tensors);
  }

 private:
  void update(int64_t step, std::span<const kernels::UpdatedTensor> tensors) {
    ops_->adamw(stream_, {.tensors = tensors, .learning_rate = 1e-4f, .step = step});
  }
  Status update_whole(int64_t step) {
    const kernels::UpdatedTensor tensor = whole_.tensor(settings_);
    update(step, {&tensor, 1});
    return stream_.synchronize();
  }

  // The costs of one run of the pieces.
  Result<parallel::OffloadCounts> stream(parallel::OffloadedTensors& tensors,
                                         const parallel::OffloadedTensors::Visit& visit) {
    const parallel::OffloadCounts before = tensors.counts();
    TRY(tensors.visit(visit));
    const parallel::OffloadCounts& after = tensors.counts();
    return parallel::OffloadCounts{.seconds = after.seconds - before.seconds,
                                   .waited_seconds = after.waited_seconds - before.waited_seconds};
  }

  Result<Json> measure(parallel::OffloadedTensors& tensors) {
    using Tensors = std::span<const kernels::UpdatedTensor>;
    const int64_t resident = resident_bytes();
    std::vector<double> whole, streamed, waited, copied;
    for (int64_t step = 1; step <= settings_.steps + 1; ++step) {
      const TimePoint begin = clock_.now();
      TRY(update_whole(step));
      const TimePoint end = clock_.now();
      TRY_ASSIGN(const parallel::OffloadCounts counts, stream(tensors, [&](Tensors some) {
                   update(step, some);
                   return Status();
                 }));
      TRY_ASSIGN(const parallel::OffloadCounts idle,
                 stream(tensors, [](Tensors) { return Status(); }));
      if (step == 1) continue;
      whole.push_back(to_seconds(end - begin));
      streamed.push_back(counts.seconds);
      waited.push_back(counts.waited_seconds);
      copied.push_back(idle.seconds);
    }
    const double far_bytes = 2.0 * kStates * static_cast<double>(settings_.bytes());
    return Json{{"program", "bench_offload"},
                {"device", settings_.device.type == kernels::DeviceType::kCuda ? "cuda" : "cpu"},
                {"in", settings_.in_file ? "file" : "pinned"},
                {"threads", settings_.threads},
                {"parameters", settings_.count()},
                {"wholeSeconds", median(whole)},
                {"streamedSeconds", median(streamed)},
                {"copySeconds", median(copied)},
                {"waitedPercent", 100 * median(waited) / median(streamed)},
                {"farBytesPerSecond", far_bytes / median(streamed)},
                {"residentBytes", resident_bytes() - resident}};
  }

  const OffloadSettings settings_;
  const SystemClock clock_;
  const kernels::OpTable* ops_ = nullptr;
  kernels::Stream stream_;
  Memory whole_;
  Memory offloaded_;
  Pieces pieces_;
};

int fail(const Error& error) {
  std::fprintf(stderr, "bench_offload: %s\n", error.message.c_str());
  return 1;
}

int run(int argc, char** argv) {
  const Result<OffloadSettings> settings = parse(argc, argv);
  if (!settings.ok()) return fail(settings.error());
  if (kernels::device_count(settings->device.type) == 0) return kNoDevice;
  kernels::set_threads(settings->threads);
  const Result<Json> found = Bench(*settings).run();
  if (!found.ok()) return fail(found.error());
  std::puts(dump_json(*found).c_str());
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  return lockstep::run_main("bench_offload", lockstep::bench::run, argc, argv);
}
