#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/client/command.h"
#include "cli/client/status_page.h"
#include "cli/client/wait_condition.h"
#include "controller/plan/names.h"

namespace lockstep::cli {
namespace {

struct StatusOptions {
  ConnectionFlags flags;
  std::string name;
  std::string format;
  bool watch = false;
  bool stuck = false;
};

int columns() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

// Returns the items of a list; appends an error to `trouble`.
Json items_of(Connection& connection, const ApiCall& call, std::string& trouble) {
  const Result<Json> list = connection.call(call);
  if (!list.ok()) {
    trouble += (trouble.empty() ? "" : "; ") + list.error().message;
    return Json::array();
  }
  const Json* items = find_member(*list, "items");
  return items != nullptr && items->is_array() ? *items : Json::array();
}

// Returns events about the job itself; servers that ignore the selector also send others.
Json events_of(Connection& connection, const TrainingJob& job, std::string& trouble) {
  ApiCall call{.path = core_path(job.metadata.namespace_, "events")};
  call.query["fieldSelector"] =
      "involvedObject.kind=TrainingJob,involvedObject.name=" + job.metadata.name;
  Json own = Json::array();
  for (const Json& event : items_of(connection, call, trouble)) {
    const Json* object = find_member(event, "involvedObject");
    if (object == nullptr || string_or(*object, "name", "") != job.metadata.name) continue;
    const std::string uid = string_or(*object, "uid", "");
    if (uid.empty() || uid == job.metadata.uid) own.push_back(event);
  }
  return own;
}

Result<std::string> page_of(Connection& connection, const Json& object) {
  StatusInput input{.now = connection.clock().wall_now(), .width = columns()};
  TRY_ASSIGN(input.job, stored_training_job_from_json(object));
  ApiCall pods{.path = core_path(input.job.metadata.namespace_, "pods")};
  pods.query["labelSelector"] = std::string(plan::kJobNameLabel) + "=" + input.job.metadata.name;
  input.pods = items_of(connection, pods, input.trouble);
  input.events = events_of(connection, input.job, input.trouble);
  return status_page(input);
}

// Prints the page until the job has ended: every second on a terminal, elsewhere for each change.
Result<int> watch_status(Connection& connection, const StatusOptions& options) {
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  const ApiCall get{.path = job_path(connection.namespace_(), options.name)};
  std::string version;
  while (true) {
    TRY_ASSIGN(const Json object, connection.call(get));
    TRY_ASSIGN(const std::string page, page_of(connection, object));
    if (is_terminal) {
      print("\x1b[H\x1b[2J" + page);
    } else if (meta_text(object, "resourceVersion") != version) {
      print((version.empty() ? "" : "---\n") + page);
    }
    version = meta_text(object, "resourceVersion");
    TRY_ASSIGN(const TrainingJob job, stored_training_job_from_json(object));
    if (!ending_of(job.status).empty()) return 0;
    connection.run_until([] { return false; }, connection.clock().now() + std::chrono::seconds(1));
  }
}

Result<int> stuck(Connection& connection, const StatusOptions& options) {
  if (options.watch || !options.format.empty()) {
    return invalid(
        "--stuck: can't be combined with -w or -o; programs should read the condition Stuck");
  }
  TRY_ASSIGN(const Json object,
             connection.call({.path = job_path(connection.namespace_(), options.name)}));
  TRY_ASSIGN(const TrainingJob job, stored_training_job_from_json(object));
  print(stuck_page(job, connection.clock().wall_now()));
  return 0;
}

Result<int> status(Connection& connection, const StatusOptions& options) {
  if (options.stuck) return stuck(connection, options);
  TRY_ASSIGN(const OutputFormat format, output_format(options.format));
  const bool is_page = format == OutputFormat::kTable || format == OutputFormat::kWide;
  if (options.watch && is_page) return watch_status(connection, options);
  if (options.watch) return invalid("--watch: can't be combined with -o json, yaml or name");
  TRY_ASSIGN(const Json object,
             connection.call({.path = job_path(connection.namespace_(), options.name)}));
  if (!is_page) {
    print(document_text(object, format));
    return 0;
  }
  TRY_ASSIGN(const std::string page, page_of(connection, object));
  print(page);
  return 0;
}

}  // namespace

void add_status(CLI::App& app, ClientContext context) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* command = app.add_subcommand(
      "status", "Show one job: progress, last failure, conditions, pods, events");
  command->add_option("NAME", options->name, "Name of the job")->required();
  command->add_option("-o,--output", options->format, "Output format: json, yaml or name");
  command->add_flag("-w,--watch", options->watch, "Refresh until the job has ended");
  command->add_flag("--stuck", options->stuck,
                    "Show which rank the others wait for, if any, and in which operation");
  add_connection_flags(*command, options->flags);
  command->callback([options, context] {
    run_client(context, options->flags,
               [options](Connection& connection) { return status(connection, *options); });
  });
}

}  // namespace lockstep::cli
