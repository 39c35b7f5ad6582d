#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/client/connection.h"
#include "cli/client/output.h"

namespace lockstep::cli {

// Shared by the commands that talk to a cluster. Each command has its own source file with an
// add_...() function that registers it; its callback stores the exit code in `exit_code`.
struct ClientContext {
  const ClientEnvironment& environment;
  const Clock& clock;
  int& exit_code;
};

// Exit codes. 0: done; 1: error; 2: bad input, no request was sent. `wait` and the like also use:
inline constexpr int kExitEnded = 3;    // the job ended in another way, or is gone
inline constexpr int kExitTimeout = 4;  // timed out

// Adds all the commands below.
void add_client_commands(CLI::App& app, ClientContext context);

void add_submit(CLI::App& app, ClientContext context);
void add_list(CLI::App& app, ClientContext context);
void add_status(CLI::App& app, ClientContext context);
void add_logs(CLI::App& app, ClientContext context);
void add_delete(CLI::App& app, ClientContext context);
void add_wait(CLI::App& app, ClientContext context);
void add_suspend(CLI::App& app, ClientContext context);  // also adds resume and scale
void add_machine(CLI::App& app, ClientContext context);
void add_completion(CLI::App& app, ClientContext context);

// Adds --kubeconfig, --context, --cluster, --user, --request-timeout and -n.
void add_connection_flags(CLI::App& command, ConnectionFlags& flags, bool has_namespace = true);

// Opens the connection and runs `body`, whose result is the exit code; prints errors. Ends the
// program if the reader of stdout is gone.
void run_client(ClientContext context, const ConnectionFlags& flags,
                const std::function<Result<int>(Connection&)>& body);

// Writes text to stdout and flushes it.
void print(const std::string& text);

// Returns metadata.name and the like; empty if absent.
std::string meta_text(const Json& object, const char* key);

// Applies a merge patch to a TrainingJob.
Result<Json> patch_job(Connection& connection, const std::string& name, const Json& patch);

}  // namespace lockstep::cli
