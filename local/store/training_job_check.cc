#include "local/store/training_job_check.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "common/api/training_job.h"
#include "local/store/storage.h"

namespace lockstep::local {
namespace {

bool is_training_job(const ResourceType& type) {
  return type.custom && type.kind == kKind && type.api_version() == kApiVersion;
}

// Returns the controller's words, `path: problem`.
std::set<std::string> problems_of(const Json& object) {
  const Result<TrainingJob> job = stored_training_job_from_json(object);
  if (job.ok()) {
    const Problems problems = validate(*job);
    return {problems.begin(), problems.end()};
  }
  std::set<std::string> lines;
  const std::string& text = job.error().message;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.insert(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

StatusCause cause_of(const std::string& problem) {
  const size_t colon = problem.find(": ");
  if (colon == std::string::npos) return {"FieldValueInvalid", problem, "spec"};
  return {"FieldValueInvalid", problem.substr(colon + 2), problem.substr(0, colon)};
}

}  // namespace

std::optional<ApiResponse> check_training_job(const Write& write, const Json* old,
                                              const Json& object) {
  if (!is_training_job(*write.path.type) || !write.path.subresource.empty()) return std::nullopt;
  std::set<std::string> problems = problems_of(object);
  if (problems.empty()) return std::nullopt;
  if (old != nullptr) {
    for (const std::string& known : problems_of(*old)) problems.erase(known);
  }
  std::vector<StatusCause> causes;
  for (const std::string& problem : problems) causes.push_back(cause_of(problem));
  if (causes.empty()) return std::nullopt;
  return invalid_object(*write.path.type, string_or(metadata_of(object), "name", ""), causes);
}

}  // namespace lockstep::local
