#include "cli/client/job_documents.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "common/api/training_job.h"
#include "common/api/yaml.h"
#include "controller/kube/bearer_token_file.h"

namespace lockstep::cli {
namespace {

constexpr size_t kBytesMax = 8u << 20;

Result<std::string> read_input() {
  std::string text;
  char bytes[65536];
  while (true) {
    const ssize_t got = ::read(0, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("stdin", errno);
    if (got == 0) return text;
    text.append(bytes, static_cast<size_t>(got));
    if (text.size() > kBytesMax)
      return invalid("found more than 8 MiB, expected a smaller document");
  }
}

// Adds the document, or its items if it is a list.
void add(const std::string& file, Json document, std::vector<JobDocument>& out) {
  const Json* items = find_member(document, "items");
  if (!string_or(document, "kind", "").ends_with("List") || items == nullptr ||
      !items->is_array()) {
    out.push_back({file, std::move(document)});
    return;
  }
  for (const Json& item : *items) out.push_back({file, item});
}

// Returns the problem with the document; empty if there is none.
std::string problem_of(const Json& document, bool names_only) {
  const std::string kind = string_or(document, "kind", "");
  const std::string version = string_or(document, "apiVersion", "");
  if (kind != kKind || version != kApiVersion) {
    return "found " + (kind.empty() ? "no kind" : kind + " of " + version) + ", expected " + kKind +
           " of " + kApiVersion + " (use kubectl for other objects)";
  }
  if (names_only) {
    const Json* meta = find_member(document, "metadata");
    const bool has_name = meta != nullptr && !string_or(*meta, "name", "").empty();
    return has_name ? "" : "metadata.name: missing, expected the name of a job";
  }
  const Result<TrainingJob> job = valid_training_job_from_json(document);
  return job.ok() ? "" : job.error().message;
}

}  // namespace

Result<std::vector<JobDocument>> read_job_documents(const std::vector<std::string>& files,
                                                    bool names_only) {
  std::vector<JobDocument> all;
  std::string problems;
  for (const std::string& file : files) {
    const std::string shown = file == "-" ? "stdin" : file;
    Result<std::string> text = file == "-" ? read_input() : kube::read_small_file(file, kBytesMax);
    if (!text.ok()) return invalid(shown + ": " + text.error().message);
    Result<std::vector<Json>> documents =
        documents_from_yaml(*text, 1000, {.bytes_max = kBytesMax, .values_max = 500'000});
    if (!documents.ok()) return invalid(shown + ": " + documents.error().message);
    if (documents->empty()) return invalid(shown + ": found no document, expected a TrainingJob");
    const size_t first = all.size();
    for (Json& document : *documents) add(shown, std::move(document), all);
    for (size_t i = first; i < all.size(); ++i) {
      const std::string problem = problem_of(all[i].document, names_only);
      if (problem.empty()) continue;
      const std::string which =
          all.size() - first > 1 ? ", document " + std::to_string(i - first + 1) : "";
      problems += (problems.empty() ? "" : "\n") + shown + which + ":\n" + problem;
    }
  }
  if (!problems.empty()) return invalid(problems);
  return all;
}

}  // namespace lockstep::cli
