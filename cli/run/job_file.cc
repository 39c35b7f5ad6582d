#include "cli/run/job_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "cli/run/local_template.h"
#include "cli/run/worker_check.h"
#include "common/api/problems.h"
#include "common/api/yaml.h"
#include "controller/plan/names.h"
#include "controller/plan/pod_template.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

void make_absolute(std::string& path, const fs::path& folder) {
  if (path.empty() || fs::path(path).is_absolute()) return;
  path = (folder / path).lexically_normal().string();
}

// Looks for something to read; the worker checks its content.
Problems check_text(const std::string& path) {
  const std::string at = "spec.train.data.path: ";
  std::error_code error;
  fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    return {at + path + " does not exist, expected a file or folder with the data"};
  if (access(path.c_str(), R_OK) != 0) return {at + path + " is not readable by this user"};
  if (fs::is_regular_file(status)) {
    if (fs::file_size(path, error) == 0)
      return {at + path + " is empty, expected a file with data"};
    return {};
  }
  if (!fs::is_directory(status))
    return {at + path + " is neither a file nor a folder, expected one of them"};
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.is_regular_file(error)) return {};
  }
  return {at + "the folder " + path + " contains no files, expected files with data"};
}

// A field that names a file.
struct FileField {
  const char* path;
  const std::string& file;
  const char* expected;
};

Problems check_file(const FileField& field) {
  if (field.file.empty()) return {};
  const std::string found = std::string(field.path) + ": " + field.file;
  std::error_code error;
  const fs::file_status status = fs::status(field.file, error);
  if (!fs::exists(status)) return {found + " does not exist, expected " + field.expected};
  if (!fs::is_regular_file(status)) return {found + " is not a file, expected " + field.expected};
  if (access(field.file.c_str(), R_OK) != 0) return {found + " is not readable by this user"};
  return {};
}

// The folder of a scratch file.
Problems check_folder(const char* path, const std::string& folder) {
  if (folder.empty()) return {};
  const std::string found = std::string(path) + ": " + folder;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return {found + " is not a folder, expected one"};
  if (access(folder.c_str(), W_OK) != 0) return {found + " is not writable by this user"};
  return {};
}

std::vector<std::string> local_warnings(const TrainingJobSpec& spec) {
  std::vector<std::string> warnings;
  if (!spec.image.empty())
    warnings.push_back(
        "spec.image: ignored, because a local node has no images: it runs the programs in the "
        "folder "
        "of `lockstep`");
  for (std::string& warning : local_template_warnings(spec.podTemplate))
    warnings.push_back(std::move(warning));
  return warnings;
}

// Rejects settings that would make a local job wait forever: nobody else can act on it.
Problems check_local(const TrainingJob& job) {
  Problems problems;
  const std::string& manager = job.spec.managedBy;
  if (!manager.empty() && manager != plan::kControllerName)
    problems.push_back("spec.managedBy: found " + manager + ", expected " + plan::kControllerName +
                       " or nothing, because a local run has no other controller");
  if (job.spec.suspend)
    problems.push_back(
        "spec.suspend: found true, expected false, because a local run can't be resumed");
  for (std::string& problem : local_template_problems(job)) problems.push_back(std::move(problem));
  return problems;
}

// The pods of a job share this machine, so each process gets an equal part of its CPUs. With more
// threads than CPUs, threads would wait for each other at every barrier.
void share_cpus(TrainingJobSpec& spec) {
  if (spec.threadsPerProcess > 0) return;
  const int64_t cpus = std::max<int64_t>(1, std::thread::hardware_concurrency());
  spec.threadsPerProcess = std::max<int64_t>(1, cpus / (spec.nodes * processes_per_node(spec)));
}

// Looks for the files of data and weights and the folder for scratch, then has the worker check
// their content.
Problems check_files(const std::string& program_folder, LocalJob& local) {
  const TrainSpec& train = *local.job.spec.train;
  Problems problems;
  if (!train.data.path.empty()) problems = check_text(train.data.path);
  const FileField files[] = {
      {"spec.train.data.pieces", train.data.pieces, "a table of pieces from lockstep tokenize"},
      {"spec.train.data.features", train.data.features, "a .npy file"},
      {"spec.train.data.targets", train.data.targets, "a .npy file"},
      {"spec.train.model.weights.path", train.model.weights.path, "a safetensors file"}};
  for (const FileField& field : files) {
    for (std::string& problem : check_file(field)) problems.push_back(std::move(problem));
  }
  for (std::string& problem :
       check_folder("spec.parallelism.offloadPath", local.job.spec.parallelism.offloadPath)) {
    problems.push_back(std::move(problem));
  }
  if (!problems.empty()) return problems;
  Result<WorkerCheck> found = check_with_worker(program_folder, local.job);
  if (!found.ok()) {
    local.warnings.push_back("data and weights were not read: " + found.error().message);
    return {};
  }
  local.notes = std::move(found->notes);
  return std::move(found->problems);
}

// Makes a program run, and be looked up, in its document's folder.
void run_in(const fs::path& folder, TrainingJobSpec& spec) {
  Json container = {{"name", plan::kNodeContainer},
                    {"workingDir", folder.lexically_normal().string()}};
  Json with_folder = {{"spec", {{"containers", Json::array({std::move(container)})}}}};
  plan::merge_template(with_folder, spec.podTemplate);
  spec.podTemplate = std::move(with_folder);
}

}  // namespace

Problems gpu_problems(const TrainingJobSpec& spec, int64_t gpus) {
  const int64_t wanted = spec.nodes * spec.gpusPerNode;
  if (wanted <= gpus) return {};
  const auto number = [](int64_t value) { return std::to_string(value); };
  std::string of_nodes = number(spec.gpusPerNode);
  if (spec.nodes > 1)
    of_nodes += " for each of " + number(spec.nodes) + " nodes are " + number(wanted);
  return {"spec.gpusPerNode: " + of_nodes + ", but this machine has " +
          (gpus == 0   ? "no GPU"
           : gpus == 1 ? "1 GPU"
                       : number(gpus) + " GPUs") +
          (gpus / spec.nodes > 0 ? ", expected at most " + number(gpus / spec.nodes)
                                 : ", expected 0 (the CPU)")};
}

Result<LocalJob> read_local_job(const std::string& file, const std::string& program_folder) {
  TRY_ASSIGN(Json document, read_document(file));
  LocalJob local;
  TrainingJob& job = local.job;
  TRY_ASSIGN(job, valid_training_job_from_json(document));
  if (Problems problems = check_local(job); !problems.empty()) return to_error(problems);
  std::error_code error;
  fs::path folder = fs::absolute(fs::path(file), error).parent_path();
  make_absolute(job.spec.checkpoint.path, folder);
  make_absolute(job.spec.parallelism.offloadPath, folder);
  if (job.spec.train) {
    make_absolute(job.spec.train->data.path, folder);
    make_absolute(job.spec.train->data.pieces, folder);
    make_absolute(job.spec.train->data.features, folder);
    make_absolute(job.spec.train->data.targets, folder);
    make_absolute(job.spec.train->model.weights.path, folder);
  }
  share_cpus(job.spec);
  if (job.spec.train) {
    const Problems problems = check_files(program_folder, local);
    if (!problems.empty()) return to_error(problems);
  }
  for (std::string& warning : local_warnings(job.spec))
    local.warnings.push_back(std::move(warning));
  if (!job.spec.command.empty()) run_in(folder, job.spec);
  return local;
}

}  // namespace lockstep::cli
