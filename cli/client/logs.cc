#include "cli/client/command.h"
#include "cli/client/log_follower.h"

namespace lockstep::cli {
namespace {

struct LogsOptions {
  ConnectionFlags flags;
  std::string name;
  LogFollowOptions logs;
};

Result<TrainingJob> read_job(Connection& connection, const std::string& name) {
  TRY_ASSIGN(const Json object, connection.call({.path = job_path(connection.namespace_(), name)}));
  return stored_training_job_from_json(object);
}

Result<int> logs(Connection& connection, LogsOptions options) {
  if (options.logs.rank) {
    TRY_ASSIGN(const TrainingJob job, read_job(connection, options.name));
    TRY_ASSIGN(options.logs.node, node_of_rank(job, *options.logs.rank));
  }
  TRY(follow_logs(connection, {connection.namespace_(), options.name}, options.logs));
  return 0;
}

}  // namespace

void add_logs(CLI::App& app, ClientContext context) {
  const auto options = std::make_shared<LogsOptions>();
  CLI::App* command = app.add_subcommand("logs", "Print the output of a job's ranks");
  command->add_option("NAME", options->name, "Name of the job")->required();
  command->add_flag("-f,--follow", options->logs.follow, "Follow the logs until the job has ended");
  command->add_option("--rank", options->logs.rank, "Only this rank")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--node", options->logs.node, "Only the node with this index")
      ->check(CLI::NonNegativeNumber)
      ->excludes("--rank");
  command
      ->add_flag("-p,--previous", options->logs.previous,
                 "Logs of the pods that the current ones replaced, if those still exist")
      ->excludes("--follow");
  command->add_option("--tail", options->logs.tail, "Only this many last lines of each node")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--timestamps", options->logs.timestamps, "Prefix each line with its time");
  add_connection_flags(*command, options->flags);
  command->footer(
      "Lines of several nodes are merged by time; each starts with the index of its node.");
  command->callback([options, context] {
    run_client(context, options->flags,
               [options](Connection& connection) { return logs(connection, *options); });
  });
}

}  // namespace lockstep::cli
