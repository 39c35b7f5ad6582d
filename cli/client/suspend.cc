#include <algorithm>

#include "cli/client/command.h"
#include "common/api/training_job.h"

namespace lockstep::cli {
namespace {

struct ChangeOptions {
  ConnectionFlags flags;
  std::vector<std::string> names;
  int64_t nodes = 0;
};

// Checks that the job may have that many nodes: a server without CEL rules would take any number,
// and the job would fail.
Status check_nodes(Connection& connection, const std::string& name, const Json& nodes) {
  TRY_ASSIGN(const Json stored, connection.call({.path = job_path(connection.namespace_(), name)}));
  TRY_ASSIGN(TrainingJob job, stored_training_job_from_json(stored));
  const Problems before = validate(job);
  job.spec.nodes = nodes.get<int64_t>();
  Problems problems = validate(job);
  std::erase_if(problems, [&](const std::string& problem) {
    return std::ranges::find(before, problem) != before.end();
  });
  return problems.empty() ? Status() : Status(to_error(problems));
}

Result<int> change(Connection& connection, const std::vector<std::string>& names, const Json& spec,
                   const char* word) {
  for (const std::string& name : names) {
    if (spec.contains("nodes")) TRY(check_nodes(connection, name, spec["nodes"]));
  }
  for (const std::string& name : names) {
    TRY_ASSIGN(const Json changed, patch_job(connection, name, {{"spec", spec}}));
    print("trainingjob.lockstep.dev/" + meta_text(changed, "name") + " " + word + "\n");
  }
  return 0;
}

void add_change(CLI::App& app, ClientContext context, const char* name, const char* description,
                const char* word, const std::function<Json(const ChangeOptions&)>& spec) {
  const auto options = std::make_shared<ChangeOptions>();
  CLI::App* command = app.add_subcommand(name, description);
  command->add_option("NAME", options->names, "Names of jobs")->required();
  if (std::string(name) == "scale") {
    command->add_option("--nodes", options->nodes, "New number of nodes")
        ->required()
        ->check(CLI::Range(1, 1'000'000));
  }
  add_connection_flags(*command, options->flags);
  command->callback([options, context, word, spec] {
    run_client(context, options->flags, [&](Connection& connection) {
      return change(connection, options->names, spec(*options), word);
    });
  });
}

}  // namespace

void add_suspend(CLI::App& app, ClientContext context) {
  add_change(app, context, "suspend", "End the pods of jobs but keep the jobs", "suspended",
             [](const ChangeOptions&) {
               return Json{{"suspend", true}};
             });
  add_change(app, context, "resume", "Continue suspended jobs from their checkpoints", "resumed",
             [](const ChangeOptions&) {
               return Json{{"suspend", false}};
             });
  add_change(app, context, "scale", "Change the number of a job's nodes", "scaled",
             [](const ChangeOptions& options) {
               return Json{{"nodes", options.nodes}};
             });
}

}  // namespace lockstep::cli
