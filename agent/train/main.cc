#include <charconv>
#include <csignal>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "agent/train/checkpoint/file_io.h"
#include "agent/train/clicks/click_generator.h"
#include "agent/train/input_check.h"
#include "agent/train/job_plan.h"
#include "agent/train/memory_report.h"
#include "agent/train/memory_table.h"
#include "agent/train/next_round.h"
#include "agent/train/progress_reporter.h"
#include "agent/train/servers/served_worker.h"
#include "agent/train/servers/server_process.h"
#include "agent/train/weights/export_weights.h"
#include "agent/train/worker.h"
#include "common/api/worker_config.h"
#include "common/base/clock.h"
#include "common/base/core_dumps.h"
#include "common/base/descriptors.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/run_main.h"
#include "kernels/ops/cpu_level.h"

namespace lockstep::train {
namespace {

constexpr char kUsage[] =
    "usage: lockstep-worker --config FILE\n"
    "       lockstep-worker check JOB\n"
    "       lockstep-worker clicks FILE ROWS KEYS SEED\n"
    "       lockstep-worker export CHECKPOINT OUTPUT PRECISION FILE_BYTES_MAX parameters|averages\n"
    "       lockstep-worker plan [JOB] [GIGABYTES...]\n";
constexpr size_t kConfigBytesMax = 16u << 20;

Result<std::optional<ProgressPage>> attach_page(const WorkerConfig& config) {
  if (config.progress_fd < 0) return std::optional<ProgressPage>();
  TRY_ASSIGN(ProgressPage page, ProgressPage::attach(static_cast<int>(config.progress_fd)));
  return std::optional<ProgressPage>(std::move(page));
}

int bad_config(const Error& error) {
  log_error("bad configuration", {{"reason", error.message}});
  return kExitBadConfig;
}

int cannot_begin(const Error& error) {
  log_error("cannot begin the next round", {{"reason", error.message}});
  return kExitOwnError;
}

int run_round(const WorkerConfig& config, ProgressReporter& progress) {
  const SystemClock clock;
  const Pause pause = [](Duration duration) { std::this_thread::sleep_for(duration); };
  progress.enter(WorkerPhase::kStarting);
  if (has_servers(config.world)) {
    const int64_t workers =
        config.world.world_size() - static_cast<int64_t>(server_count(config.world));
    const bool is_server = config.rank >= workers;
    if (is_server) return ServerProcess(config, progress, {clock, real_file_system(), pause}).run();
    return ServedWorker(config, progress, {clock, real_file_system(), pause}).run();
  }
  return Worker(config, progress, {clock, real_file_system(), pause}).run();
}

int run(const std::string& path) {
  if (!kernels::cpu_level_cap().ok()) return bad_config(kernels::cpu_level_cap().error());
  Result<WorkerConfig> config = read_worker_config(path);
  if (!config.ok()) return bad_config(config.error());
  Result<std::optional<ProgressPage>> page = attach_page(*config);
  if (!page.ok()) return bad_config(page.error());
  ProgressReporter progress(std::move(*page), config->world.round);
  forbid_core_dumps_of_readable_process();  // it has the job's token
  raise_descriptor_limit();                 // two connections to every other rank
  int exit_code = run_round(*config, progress);
  while (may_stay(*config, exit_code, progress)) {
    Result<std::optional<WorkerConfig>> next = await_next_round(*config, exit_code);
    if (!next.ok() && next.error().code == Code::kInvalid) return bad_config(next.error());
    if (!next.ok()) return cannot_begin(next.error());
    if (!*next) return exit_code;
    config = std::move(**next);
    progress.begin_round(config->world.round);
    exit_code = run_round(*config, progress);
  }
  return exit_code;
}

Result<TrainingJob> read_job(const std::string& path) {
  TRY_ASSIGN(const std::string text, read_small_file(path, kConfigBytesMax));
  TRY_ASSIGN(const Json document, parse_json(text, {.bytes_max = kConfigBytesMax}));
  return valid_training_job_from_json(document);
}

// Prints on stdout what the job's processes take, and a warning if this machine has less.
void tell_memory(const JobPlan& plan) {
  std::printf("memory: %s\n", memory_line(plan).c_str());
  for (const MemoryLimit& limit : limits_here(plan)) {
    if (!fits(plan, limit)) std::printf("warning: %s\n", fit_text(plan, limit).c_str());
  }
}

// Checks a job's data and weights for `lockstep validate` and `lockstep run`. Returns 0 after
// tell_memory(), or 2 after printing one problem a line on stdout. For a file that is not a valid
// job in JSON, returns 2 and prints nothing there.
int run_check(const std::string& path) {
  const Result<TrainingJob> job = read_job(path);
  if (!job.ok()) return bad_config(job.error());
  if (!job->spec.train) return 0;
  Problems problems = input_problems(*job->spec.train);
  if (is_click_family(job->spec.train->model.family)) {
    for (const std::string& problem : problems) std::printf("%s\n", problem.c_str());
    return problems.empty() ? 0 : kExitBadConfig;
  }
  const Result<JobPlan> plan = plan_job(job->spec);
  if (!plan.ok()) problems.push_back(plan.error().message);
  for (const std::string& problem : problems) std::printf("%s\n", problem.c_str());
  if (!problems.empty()) return kExitBadConfig;
  tell_memory(*plan);
  return 0;
}

// Returns nothing for wrong words. 0 bytes are no limit.
std::optional<ExportOptions> export_options(std::string_view precision, std::string_view bytes,
                                            std::string_view kind) {
  ExportOptions options;
  if (kind != "parameters" && kind != "averages") return std::nullopt;
  if (kind == "averages") options.kind = WeightsKind::kAverages;
  if (precision != "fp32" && precision != "bf16") return std::nullopt;
  if (precision == "bf16") options.dtype = kernels::DType::kBf16;
  const auto [stop, error] = std::from_chars(bytes.begin(), bytes.end(), options.file_bytes_max);
  if (stop != bytes.end() || error != std::errc()) return std::nullopt;
  return options;
}

// Exports weights for `lockstep export`, which checks the command line. Returns 0; 2 if the user
// can correct the problem; else 1.
int run_export(const std::string& from, const std::string& to, const ExportOptions& options) {
  const Result<ExportedWeights> done = export_weights(from, to, options);
  if (!done.ok()) {
    std::fprintf(stderr, "%s\n", done.error().message.c_str());
    const Code code = done.error().code;
    return code == Code::kInvalid || code == Code::kNotFound ? kExitBadConfig : 1;
  }
  const std::string files =
      done->files > 1 ? " in " + std::to_string(done->files) + " files" : std::string();
  std::printf("%s: %lld parameters in %lld tensors%s, of step %lld (%s)\n", to.c_str(),
              static_cast<long long>(done->parameters), static_cast<long long>(done->tensors),
              files.c_str(), static_cast<long long>(done->step), done->checkpoint.c_str());
  return 0;
}

// Writes a click log for `lockstep clicks`. Returns 0; -1 for wrong arguments; else 1.
int run_clicks(std::span<char* const> words) {
  ClickGeneratorOptions options{.path = words[0]};
  int64_t numbers[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    const std::string_view text = words[i + 1];
    const auto [stop, error] = std::from_chars(text.begin(), text.end(), numbers[i]);
    if (stop != text.end() || error != std::errc() || numbers[i] < 1) return -1;
  }
  constexpr int64_t kMost = int64_t{1} << 31;
  if (numbers[0] > kMost || numbers[1] > kMost) return -1;
  options.rows = numbers[0];
  options.keys = numbers[1];
  options.seed = static_cast<uint64_t>(numbers[2]);
  const Result<GeneratedClicks> done = generate_clicks(options);
  if (!done.ok()) {
    std::fprintf(stderr, "%s\n", done.error().message.c_str());
    return 1;
  }
  std::printf("%s: %lld rows, %lld clicks; best possible log loss %.5f, of the last tenth %.5f\n",
              words[0], static_cast<long long>(done->rows), static_cast<long long>(done->clicks),
              done->log_loss, done->log_loss_of_last_tenth);
  return 0;
}

// Returns nothing for a text that is not a size.
std::optional<int64_t> gigabytes_from(std::string_view text) {
  int64_t size = 0;
  const auto [stop, error] = std::from_chars(text.begin(), text.end(), size);
  const bool is_number = stop == text.end() && error == std::errc();
  return is_number && size >= 1 && size <= 1'000'000 ? std::optional(size) : std::nullopt;
}

// Prints the memory of a job, and whether it fits into these sizes; without any, into this machine.
int run_job_plan(const std::string& path, const std::vector<int64_t>& gigabytes) {
  const Result<TrainingJob> job = read_job(path);
  if (!job.ok()) return bad_config(job.error());
  if (!job->spec.train) return bad_config(invalid("spec.train: missing, expected a job with it"));
  if (is_click_family(job->spec.train->model.family)) {
    return bad_config(invalid("spec.train.model.family: a plan of the memory of " +
                              job->spec.train->model.family + " is not in this version"));
  }
  const Result<JobPlan> plan = plan_job(job->spec);
  if (!plan.ok()) return bad_config(plan.error());
  std::vector<MemoryLimit> limits;
  for (const int64_t size : gigabytes) {
    limits.push_back({std::to_string(size) + " GB", static_cast<uint64_t>(size) * 1'000'000'000});
  }
  if (limits.empty()) limits = limits_here(*plan);
  std::fputs(memory_report(*plan, limits).c_str(), stdout);
  return 0;
}

// Prints the memory of a job, or which models fit on GPUs of these sizes; -1 for wrong arguments.
int run_plan(std::span<char* const> words) {
  const bool has_job = !gigabytes_from(words.front()).has_value();
  std::vector<int64_t> gigabytes;
  for (const char* text : words.subspan(has_job ? 1 : 0)) {
    const std::optional<int64_t> size = gigabytes_from(text);
    if (!size) return -1;
    gigabytes.push_back(*size);
  }
  if (has_job) return run_job_plan(words.front(), gigabytes);
  std::fputs(memory_table(gigabytes).c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace lockstep::train

namespace {

int program(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  lockstep::set_log_options({.program = "lockstep-worker"});
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::fputs(lockstep::train::kUsage, stdout);
    return 0;
  }
  if (argc == 3 && std::string_view(argv[1]) == "check") return lockstep::train::run_check(argv[2]);
  if (argc == 7 && std::string_view(argv[1]) == "export") {
    const auto options = lockstep::train::export_options(argv[4], argv[5], argv[6]);
    if (options) return lockstep::train::run_export(argv[2], argv[3], *options);
  }
  if (argc == 6 && std::string_view(argv[1]) == "clicks") {
    const int code = lockstep::train::run_clicks({argv + 2, 4});
    if (code >= 0) return code;
  }
  if (argc > 2 && std::string_view(argv[1]) == "plan") {
    const int code = lockstep::train::run_plan({argv + 2, static_cast<size_t>(argc - 2)});
    if (code >= 0) return code;
  }
  if (argc != 3 || std::string_view(argv[1]) != "--config") {
    std::fputs(lockstep::train::kUsage, stderr);
    return lockstep::kExitBadConfig;
  }
  return lockstep::train::run(argv[2]);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-worker", program, argc, argv);
}
