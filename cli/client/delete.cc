#include "cli/client/command.h"
#include "cli/client/job_documents.h"
#include "cli/client/wait_condition.h"

namespace lockstep::cli {
namespace {

struct DeleteOptions {
  ConnectionFlags flags;
  std::vector<std::string> names;
  std::vector<std::string> files;
  std::string selector;
  bool all = false;
  bool wait = true;
  bool ignore_missing = false;
  std::string cascade = "background";
  std::string timeout = "0";
};

Result<std::vector<JobName>> listed_jobs(Connection& connection, const std::string& selector) {
  ApiCall call{.path = jobs_path(connection.namespace_())};
  if (!selector.empty()) call.query["labelSelector"] = selector;
  TRY_ASSIGN(const Json list, connection.call(call));
  std::vector<JobName> jobs;
  const Json* items = find_member(list, "items");
  if (items == nullptr || !items->is_array()) return jobs;
  for (const Json& item : *items) {
    jobs.push_back({connection.namespace_(), meta_text(item, "name")});
  }
  return jobs;
}

std::string policy(const std::string& cascade) {
  return cascade == "foreground" ? "Foreground" : cascade == "orphan" ? "Orphan" : "Background";
}

// Returns whether the job existed.
Result<bool> delete_one(Connection& connection, const DeleteOptions& options, const JobName& job) {
  const Result<Json> answer =
      connection.call({.method = "DELETE",
                       .path = job_path(job.namespace_, job.name),
                       .body = {{"kind", "DeleteOptions"},
                                {"apiVersion", "v1"},
                                {"propagationPolicy", policy(options.cascade)}}});
  if (!answer.ok()) {
    if (answer.error().code == Code::kNotFound && options.ignore_missing) return false;
    return answer.error();
  }
  print("trainingjob.lockstep.dev \"" + job.name + "\" deleted\n");
  return true;
}

Result<int> delete_jobs(Connection& connection, const DeleteOptions& options,
                        std::vector<JobName> jobs) {
  TRY_ASSIGN(const Duration timeout, parse_duration(options.timeout));
  if (options.all || !options.selector.empty()) {
    TRY_ASSIGN(jobs, listed_jobs(connection, options.selector));
    if (jobs.empty()) print("No resources found\n");
  }
  int code = 0;
  std::vector<JobName> waited;
  for (JobName& job : jobs) {
    if (job.namespace_.empty()) job.namespace_ = connection.namespace_();
    const Result<bool> was_there = delete_one(connection, options, job);
    if (!was_there.ok()) code = print_error(was_there.error());
    if (was_there.ok() && *was_there) waited.push_back(job);
  }
  std::optional<TimePoint> until;
  if (timeout > Duration{0}) until = connection.clock().now() + timeout;
  for (const JobName& job : waited) {
    if (!options.wait) break;
    std::string why;
    TRY_ASSIGN(const int one,
               wait_for_job(connection, job, {.deletion = true, .type = ""}, until, why));
    if (one == kExitTimeout) {
      std::fprintf(stderr, "error: timed out waiting for the deletion of trainingjobs/%s\n",
                   job.name.c_str());
    }
    code = std::max(code, one);
  }
  return code;
}

void run_delete(ClientContext context, const DeleteOptions& options) {
  const int ways = static_cast<int>(!options.names.empty()) +
                   static_cast<int>(!options.files.empty()) +
                   static_cast<int>(options.all || !options.selector.empty());
  if (ways != 1) {
    std::fprintf(stderr, "error: expected exactly one of NAME..., -f FILE, -l SELECTOR or --all\n");
    context.exit_code = 2;
    return;
  }
  std::vector<JobName> jobs;
  for (const std::string& name : options.names) jobs.push_back({"", name});
  if (!options.files.empty()) {
    const Result<std::vector<JobDocument>> documents = read_job_documents(options.files, true);
    if (!documents.ok()) {
      std::fprintf(stderr, "%s\n", documents.error().message.c_str());
      context.exit_code = 2;
      return;
    }
    for (const JobDocument& one : *documents) {
      const std::string own = meta_text(one.document, "namespace");
      const std::string& asked = options.flags.namespace_;
      jobs.push_back({asked.empty() ? own : asked, meta_text(one.document, "name")});
    }
  }
  run_client(context, options.flags,
             [&](Connection& connection) { return delete_jobs(connection, options, jobs); });
}

}  // namespace

void add_delete(CLI::App& app, ClientContext context) {
  const auto options = std::make_shared<DeleteOptions>();
  CLI::App* command = app.add_subcommand("delete", "Delete jobs and their pods");
  command->add_option("NAME", options->names, "Names of jobs");
  command->add_option("-f,--filename", options->files, "Delete the jobs in this file; -: stdin");
  command->add_option("-l,--selector", options->selector,
                      "Delete the jobs with these labels, such as team=a,tier!=b");
  command->add_flag("--all", options->all, "Delete all jobs of the namespace");
  command->add_flag("--wait,!--no-wait", options->wait,
                    "Wait until the jobs are gone (default: true)");
  command->add_flag("--ignore-not-found", options->ignore_missing,
                    "Do not fail if a job does not exist");
  command->add_option("--cascade", options->cascade, "How to delete the pods of the jobs")
      ->check(CLI::IsMember({"background", "foreground", "orphan"}))
      ->capture_default_str();
  command->add_option("--timeout", options->timeout, "Timeout of --wait; 0: no limit")
      ->capture_default_str();
  add_connection_flags(*command, options->flags);
  command->callback([options, context] { run_delete(context, *options); });
}

}  // namespace lockstep::cli
