#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "agent/train/checkpoint/file_io.h"
#include "agent/train/gpu_monitor.h"
#include "common/api/worker_config.h"
#include "common/base/json.h"

// A replacement for lockstep-worker on a machine with a GPU, called with `--config FILE`. Monitors
// the GPU at 0000:41:00.0 like the worker, and waits for SIGTERM. With the job name "fail" it exits
// with 1 as soon as its page has an Xid.

namespace {

using namespace lockstep;

volatile sig_atomic_t stopped = 0;

Result<WorkerConfig> read_config(const char* path) {
  TRY_ASSIGN(const std::string text, train::read_small_file(path, 1 << 20));
  TRY_ASSIGN(const Json document, parse_json(text));
  return worker_config_from_json(document);
}

int run(const WorkerConfig& config, ProgressPage& page) {
  ProgressNumbers numbers;
  numbers.round = static_cast<uint64_t>(config.world.round);
  numbers.phase = WorkerPhase::kTraining;
  numbers.step = 0;
  page.write(numbers);
  std::optional<train::GpuMonitor> monitor;
  monitor.emplace(
      train::GpuMonitor::Options{
          .gpu = {.name = "NVIDIA H200", .bus = "0000:41:00.0", .uuid = {0x12, 0x34}},
          .interval = std::chrono::milliseconds(10)},
      page.gpu());
  GpuNumbers gpu;
  const bool fails = config.job_name == "fail";
  while (stopped == 0 && !(fails && page.gpu().read(gpu) && gpu.xids[0].count > 0)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  monitor.reset();
  return stopped != 0 ? kExitStopped : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return kExitBadConfig;
  signal(SIGTERM, [](int) { stopped = 1; });
  const auto config = read_config(argv[2]);
  if (!config.ok()) return kExitBadConfig;
  auto page = ProgressPage::attach(static_cast<int>(config->progress_fd));
  return page.ok() ? run(*config, *page) : kExitBadConfig;
}
