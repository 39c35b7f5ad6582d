#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/client/connection.h"
#include "cli/client/output.h"

namespace lockstep {

// What the commands that speak to a cluster share. Each has a file of its own with an add_...()
// that adds it to the program; its callback leaves the exit code in `exit_code`.
struct ClientContext {
  const ClientEnvironment& environment;
  const Clock& clock;
  int& exit_code;
};

// 0: done; 1: an error; 2: bad input, nothing was asked of the server. `wait` and the like add:
inline constexpr int kExitEnded = 3;    // the job ended otherwise, or is gone
inline constexpr int kExitTimeout = 4;  // the time came first

// All of them.
void add_client_commands(CLI::App& app, ClientContext context);

void add_submit(CLI::App& app, ClientContext context);
void add_list(CLI::App& app, ClientContext context);
void add_status(CLI::App& app, ClientContext context);
void add_logs(CLI::App& app, ClientContext context);
void add_delete(CLI::App& app, ClientContext context);
void add_wait(CLI::App& app, ClientContext context);
void add_suspend(CLI::App& app, ClientContext context);  // resume and scale too
void add_machine(CLI::App& app, ClientContext context);
void add_completion(CLI::App& app, ClientContext context);

// --kubeconfig, --context, --cluster, --user, --request-timeout and -n.
void add_connection_flags(CLI::App& command, ConnectionFlags& flags, bool has_namespace = true);

// Opens the connection and runs `body`, whose result is the exit code; prints what goes wrong. A
// reader of stdout that is gone ends the program.
void run_client(ClientContext context, const ConnectionFlags& flags,
                const std::function<Result<int>(Connection&)>& body);

// Text to stdout, at once.
void print(const std::string& text);

// metadata.name and the like; empty where there is none.
std::string meta_text(const Json& object, const char* key);

// The merge patch of a TrainingJob.
Result<Json> patch_job(Connection& connection, const std::string& name, const Json& patch);

}  // namespace lockstep
