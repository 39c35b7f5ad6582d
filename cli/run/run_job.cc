#include "cli/run/run_job.h"

#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>

#include "cli/run/job_file.h"
#include "cli/run/local_run.h"
#include "cli/run/worker_check.h"
#include "common/api/yaml.h"
#include "local/node/gpu_pool.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

void print_error(const std::string& text) {
  std::fprintf(stderr, "%s%s", text.c_str(), text.ends_with('\n') ? "" : "\n");
}

std::string default_output(const std::string& job_name, const Clock& clock) {
  std::time_t seconds = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(clock.wall_now()));
  std::tm local{};
  localtime_r(&seconds, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  return "lockstep-runs/" + job_name + "-" + stamp;
}

// Creates the folder and writes the job into it, which shows that it is writable.
Result<std::string> prepare_output(std::string folder, const TrainingJob& job) {
  std::error_code error;
  folder = fs::absolute(folder, error).lexically_normal().string();
  fs::create_directories(folder, error);
  if (error)
    return unavailable("the output folder " + folder + " can't be created: " + error.message());
  Status written = local::write_file(folder + "/job.json", to_json(job).dump(2) + "\n");
  if (!written.ok())
    return unavailable("the output folder can't be written to: " + written.error().message);
  return folder;
}

}  // namespace

int run_job(const RunOptions& options, const Clock& clock) {
  Result<LocalJob> read = read_local_job(options.file, options.program_folder);
  if (!read.ok()) {
    print_error(read.error().message);
    return kExitBadInput;
  }
  TrainingJob& job = read->job;
  const Problems gpus = gpu_problems(job.spec, std::ssize(local::computer_gpus()));
  if (!gpus.empty()) {
    print_error(to_error(gpus).message);
    return kExitBadInput;
  }
  for (const std::string& warning : read->warnings) print_error("warning: " + warning);
  for (const std::string& note : read->notes) print_error(note);
  std::string folder =
      options.output.empty() ? default_output(job.metadata.name, clock) : options.output;
  Result<std::string> output = prepare_output(folder, job);
  if (!output.ok()) {
    print_error(output.error().message);
    return kExitBadInput;
  }
  if (job.spec.checkpoint.path.empty()) job.spec.checkpoint.path = *output + "/checkpoints";
  LocalRun run(clock, {.job = job,
                       .output = *output,
                       .program_folder = options.program_folder,
                       .json = options.json});
  return run.run();
}

Status put_job_on_stdin(const std::string& file) {
  TRY_ASSIGN(const Json document, read_document(file));
  TRY_ASSIGN(const TrainingJob job, valid_training_job_from_json(document));
  if (!job.spec.train) {
    return invalid(
        "spec.train: missing, expected a job with it, because nobody knows the memory "
        "of a command");
  }
  return put_on_stdin(job);
}

int validate_files(const std::vector<std::string>& files, const std::string& program_folder) {
  const int64_t gpus = std::ssize(local::computer_gpus());
  int exit_code = 0;
  for (const std::string& file : files) {
    Result<LocalJob> read = read_local_job(file, program_folder);
    if (!read.ok()) {
      print_error(file + ":\n" + read.error().message);
      exit_code = kExitBadInput;
      continue;
    }
    for (const std::string& warning : read->warnings) print_error(file + ": warning: " + warning);
    for (const std::string& lack : gpu_problems(read->job.spec, gpus))
      print_error(file + ": warning: " + lack);
    for (const std::string& note : read->notes) print_error(file + ": " + note);
    print_error(file + ": valid");
  }
  return exit_code;
}

}  // namespace lockstep::cli
