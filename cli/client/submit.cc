#include "cli/client/command.h"
#include "cli/client/job_documents.h"
#include "cli/client/log_follower.h"
#include "cli/client/wait_condition.h"

namespace lockstep::cli {
namespace {

struct SubmitOptions {
  ConnectionFlags flags;
  std::vector<std::string> files;
  std::string format;
  std::string dry_run = "none";
  bool wait = false;
  bool follow = false;
  std::string timeout = "0";
};

// Returns the namespace for the document. If it names one itself, --namespace must not differ.
Result<std::string> namespace_for(const Connection& connection, const SubmitOptions& options,
                                  const JobDocument& job) {
  const std::string own = meta_text(job.document, "namespace");
  if (own.empty()) return connection.namespace_();
  if (!options.flags.namespace_.empty() && options.flags.namespace_ != own) {
    return invalid(job.file + ": metadata.namespace: " + own + ", but --namespace is " +
                   options.flags.namespace_ + "; expected the same namespace, or only one of them");
  }
  return own;
}

Result<Json> create(Connection& connection, const ClientContext& context, const JobDocument& job,
                    const std::string& in, bool is_dry) {
  ApiCall call{.method = "POST", .path = jobs_path(in), .body = job.document};
  call.query["fieldManager"] = "lockstep-submit";
  if (is_dry) call.query["dryRun"] = "All";
  Result<Json> created = connection.call(call);
  if (created.ok() || created.error().code != Code::kConflict) return created;
  const std::string name = meta_text(job.document, "name");
  return conflict(created.error().message + "\nTo run it again: " + context.environment.program +
                  " delete " + name + " -n " + in +
                  ", then submit it; to change the existing job: kubectl apply -f " + job.file);
}

// Waits until the job has ended; follows its logs if asked to.
Result<int> wait_until_ended(Connection& connection, const SubmitOptions& options,
                             const JobName& job) {
  TRY_ASSIGN(const Duration timeout, parse_duration(options.timeout));
  std::optional<TimePoint> until;
  if (timeout > Duration{0}) until = connection.clock().now() + timeout;
  if (options.follow) TRY(follow_logs(connection, job, {.follow = true}, until));
  std::string why;
  TRY_ASSIGN(const int code, wait_for_job(connection, job, {.type = "Complete"}, until, why));
  if (code == 0) print("trainingjob.lockstep.dev/" + job.name + " is Complete\n");
  if (code == kExitEnded) std::fprintf(stderr, "error: %s\n", why.c_str());
  if (code == kExitTimeout) {
    std::fprintf(stderr, "error: timed out waiting for trainingjobs/%s to end\n", job.name.c_str());
  }
  return code;
}

Result<int> submit(Connection& connection, const ClientContext& context,
                   const SubmitOptions& options, const std::vector<JobDocument>& jobs) {
  TRY_ASSIGN(const OutputFormat format, output_format(options.format));
  const bool is_dry = options.dry_run == "server";
  for (const JobDocument& job : jobs) {
    TRY_ASSIGN(const std::string in, namespace_for(connection, options, job));
    TRY_ASSIGN(const Json created, create(connection, context, job, in, is_dry));
    const bool in_words = format == OutputFormat::kTable || format == OutputFormat::kWide;
    const std::string words = "trainingjob.lockstep.dev/" + meta_text(created, "name") +
                              " created" + (is_dry ? " (server dry run)" : "") + "\n";
    print(in_words ? words : document_text(created, format));
  }
  if (is_dry || (!options.wait && !options.follow)) return 0;
  int code = 0;
  for (const JobDocument& job : jobs) {
    TRY_ASSIGN(const std::string in, namespace_for(connection, options, job));
    TRY_ASSIGN(const int one,
               wait_until_ended(connection, options, {in, meta_text(job.document, "name")}));
    code = std::max(code, one);
  }
  return code;
}

void run_submit(ClientContext context, const SubmitOptions& options) {
  const Result<std::vector<JobDocument>> jobs = read_job_documents(options.files);
  if (!jobs.ok()) {
    std::fprintf(stderr, "%s\n", jobs.error().message.c_str());
    context.exit_code = 2;
    return;
  }
  if (options.dry_run == "client") {
    for (const JobDocument& job : *jobs) {
      print("trainingjob.lockstep.dev/" + meta_text(job.document, "name") + " created (dry run)\n");
    }
    return;
  }
  run_client(context, options.flags,
             [&](Connection& connection) { return submit(connection, context, options, *jobs); });
}

}  // namespace

void add_submit(CLI::App& app, ClientContext context) {
  const auto options = std::make_shared<SubmitOptions>();
  CLI::App* command = app.add_subcommand("submit", "Create jobs in a cluster");
  command->add_option("FILE", options->files, "TrainingJob files in YAML or JSON; -: stdin")
      ->required();
  command
      ->add_option("--dry-run", options->dry_run,
                   "client: only check the files here; server: let the server check them too")
      ->check(CLI::IsMember({"none", "client", "server"}))
      ->capture_default_str();
  command->add_flag("--wait", options->wait, "Wait until the jobs have ended");
  command->add_flag("-f,--follow", options->follow,
                    "Print the logs of the jobs until they have ended");
  command->add_option("--timeout", options->timeout, "Timeout of --wait and --follow; 0: no limit")
      ->capture_default_str();
  command->add_option("-o,--output", options->format, "Print the created jobs: json, yaml or name");
  add_connection_flags(*command, options->flags);
  command->footer(
      "submit never changes an existing job: it fails and says what to do.\n"
      "Paths in a job are paths in its pods.\n"
      "Exit codes: 0 created (with --wait: Complete); 1 error; 2 bad input, nothing was created;\n"
      "3 a job that was waited for failed or was deleted; 4 timeout.");
  command->callback([options, context] { run_submit(context, *options); });
}

}  // namespace lockstep::cli
