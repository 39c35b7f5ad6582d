#include "cli/client/command.h"

#include <signal.h>

#include <cstdio>

namespace lockstep::cli {

void add_client_commands(CLI::App& app, ClientContext context) {
  add_submit(app, context);
  add_list(app, context);
  add_status(app, context);
  add_logs(app, context);
  add_wait(app, context);
  add_suspend(app, context);
  add_delete(app, context);
  add_machine(app, context);
  add_completion(app, context);
}

void add_connection_flags(CLI::App& command, ConnectionFlags& flags, bool has_namespace) {
  const char* const group = "Cluster";
  if (has_namespace) {
    command
        .add_option("-n,--namespace", flags.namespace_, "Namespace (default: that of the context)")
        ->group(group);
  }
  command
      .add_option("--context", flags.context,
                  "Context of the kubeconfig (default: its current context)")
      ->group(group);
  command
      .add_option("--cluster", flags.cluster,
                  "Cluster of the kubeconfig (default: that of the context)")
      ->group(group);
  command.add_option("--user", flags.user, "User of the kubeconfig (default: that of the context)")
      ->group(group);
  command
      .add_option("--kubeconfig", flags.kubeconfig,
                  "Kubeconfig file (default: the files in KUBECONFIG, or ~/.kube/config)")
      ->group(group);
  command.add_option("--request-timeout", flags.request_timeout, "Timeout of one request; 0: 1h")
      ->capture_default_str()
      ->group(group);
}

void run_client(ClientContext context, const ConnectionFlags& flags,
                const std::function<Result<int>(Connection&)>& body) {
  ::signal(SIGPIPE, SIG_DFL);
  Result<std::unique_ptr<Connection>> connection =
      Connection::open(context.environment, flags, context.clock);
  if (!connection.ok()) {
    context.exit_code = print_error(connection.error());
    return;
  }
  const Result<int> code = body(**connection);
  context.exit_code = code.ok() ? *code : print_error(code.error());
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string meta_text(const Json& object, const char* key) {
  const Json* meta = find_member(object, "metadata");
  return meta == nullptr ? "" : string_or(*meta, key, "");
}

Result<Json> patch_job(Connection& connection, const std::string& name, const Json& patch) {
  return connection.call({.method = "PATCH",
                          .path = job_path(connection.namespace_(), name),
                          .body = patch,
                          .content_type = "application/merge-patch+json"});
}

}  // namespace lockstep::cli
