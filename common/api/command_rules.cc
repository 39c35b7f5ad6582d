#include "common/api/command_rules.h"

#include <algorithm>

#include "common/api/training_job_fields.h"

namespace lockstep {
namespace {

// TF_CONFIG names every rank, and Linux limits an environment variable to 128 KiB (execve(2)).
constexpr int64_t kTensorflowWorldMax = 2048;

void check_words(const std::vector<std::string>& command, Problems& problems) {
  if (command.front().empty()) {
    problems.push_back("spec.command[0]: found \"\", expected a program");
  }
  size_t bytes = 0;
  for (const std::string& word : command) bytes += word.size() + 1;
  if (bytes > kCommandBytesMax) {
    problems.push_back("spec.command: " + std::to_string(bytes) + " bytes, expected at most " +
                       std::to_string(kCommandBytesMax) + " (put a script into the image)");
  }
}

void check_variables(const TrainingJobSpec& spec, Problems& problems) {
  const std::vector<std::string>& variables = spec.rendezvous.variables;
  for (size_t i = 0; i < variables.size(); ++i) {
    const std::string path = "spec.rendezvous.variables[" + std::to_string(i) + "]: ";
    const auto end = variables.begin() + static_cast<std::ptrdiff_t>(i);
    if (variables[i].empty()) {
      problems.push_back(path + "found \"\", expected jax, tensorflow or mpi");
    } else if (std::find(variables.begin(), end, variables[i]) != end) {
      problems.push_back(path + in_quotes(variables[i]) + " is listed twice");
    }
    const int64_t world = spec.nodes * processes_per_node(spec);
    if (variables[i] == "tensorflow" && world > kTensorflowWorldMax) {
      problems.push_back(path + "TF_CONFIG of " + std::to_string(world) +
                         " ranks exceeds the size of an environment variable, expected at most " +
                         std::to_string(kTensorflowWorldMax) + " ranks");
    }
  }
}

template <class T>
void refuse_unless_default(const T& value, const T& fallback, const char* path,
                           Problems& problems) {
  if (value == fallback) return;
  problems.push_back(
      std::string(path) + ": found " + dump_json(Json(value)) +
      ", which is only valid with spec.train; omit the field, because a command does this itself");
}

}  // namespace

Problems command_problems(const TrainingJobSpec& spec) {
  Problems problems;
  if (spec.command.empty()) return problems;
  const TrainingJobSpec unset;
  check_words(spec.command, problems);
  check_variables(spec, problems);
  refuse_unless_default(spec.parallelism.tensor, unset.parallelism.tensor,
                        "spec.parallelism.tensor", problems);
  refuse_unless_default(spec.parallelism.pipeline, unset.parallelism.pipeline,
                        "spec.parallelism.pipeline", problems);
  refuse_unless_default(spec.parallelism.sharding, unset.parallelism.sharding,
                        "spec.parallelism.sharding", problems);
  refuse_unless_default(spec.checkpoint.everySteps, unset.checkpoint.everySteps,
                        "spec.checkpoint.everySteps", problems);
  refuse_unless_default(spec.checkpoint.atEnd, unset.checkpoint.atEnd, "spec.checkpoint.atEnd",
                        problems);
  refuse_unless_default(spec.checkpoint.keep, unset.checkpoint.keep, "spec.checkpoint.keep",
                        problems);
  refuse_unless_default(spec.rendezvous.timeoutSeconds, unset.rendezvous.timeoutSeconds,
                        "spec.rendezvous.timeoutSeconds", problems);
  return problems;
}

}  // namespace lockstep
