#include "cli/client/command.h"
#include "cli/client/wait_condition.h"

namespace lockstep::cli {
namespace {

struct WaitOptions {
  ConnectionFlags flags;
  std::vector<std::string> names;
  std::string condition = "Complete";
  std::string timeout = "0";
};

Result<int> wait(Connection& connection, const WaitOptions& options) {
  TRY_ASSIGN(const WaitCondition what, parse_wait_condition(options.condition));
  TRY_ASSIGN(const Duration timeout, parse_duration(options.timeout));
  std::optional<TimePoint> until;
  if (timeout > Duration{0}) until = connection.clock().now() + timeout;
  int code = 0;
  for (const std::string& name : options.names) {
    std::string why;
    TRY_ASSIGN(const int one,
               wait_for_job(connection, {connection.namespace_(), name}, what, until, why));
    if (one == 0) print("trainingjob.lockstep.dev/" + name + " condition met\n");
    if (one == kExitEnded) std::fprintf(stderr, "error: %s\n", why.c_str());
    if (one == kExitTimeout) {
      std::fprintf(stderr, "error: timed out waiting for %s on trainingjobs/%s\n",
                   options.condition.c_str(), name.c_str());
    }
    code = std::max(code, one);
  }
  return code;
}

}  // namespace

void add_wait(CLI::App& app, ClientContext context) {
  const auto options = std::make_shared<WaitOptions>();
  CLI::App* command = app.add_subcommand("wait", "Wait until jobs reach a condition");
  command->add_option("NAME", options->names, "Names of jobs")->required();
  command
      ->add_option("--for", options->condition,
                   "Condition: Complete, Failed, Running, Suspended, Ready=False, ...; or delete")
      ->capture_default_str();
  command
      ->add_option("--timeout", options->timeout,
                   "Timeout for all jobs together, such as 10m; 0: no limit")
      ->capture_default_str();
  add_connection_flags(*command, options->flags);
  command->footer(
      "Exit codes: 0 condition met; 1 error; 2 bad input; 3 a job ended otherwise or was deleted;\n"
      "4 timeout.");
  command->callback([options, context] {
    run_client(context, options->flags,
               [options](Connection& connection) { return wait(connection, *options); });
  });
}

}  // namespace lockstep::cli
