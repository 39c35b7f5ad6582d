// lockstep: the user's tool.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "cli/client/completion.h"
#include "cli/run/run_job.h"
#include "cli/up/up.h"
#include "common/base/clock.h"
#include "common/base/version.h"

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// kubectl runs its plugin by the name kubectl-lockstep.
std::string program_name(const char* called) {
  const std::string name = std::filesystem::path(called).filename().string();
  return name == "kubectl-lockstep" ? "kubectl lockstep" : "lockstep";
}

std::string program_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::RunOptions run{.program_folder = program_folder()};
  std::vector<std::string> files;
  std::string format;
  int exit_code = 0;

  const std::string name = program_name(argc > 0 ? argv[0] : "");
  std::error_code no_folder;
  const lockstep::ClientEnvironment environment{
      .program = name,
      .program_folder = program_folder(),
      .kubeconfig = variable("KUBECONFIG"),
      .home = variable("HOME"),
      .working_folder = std::filesystem::current_path(no_folder).string()};
  const lockstep::SystemClock clock;

  CLI::App app("Trains models on Kubernetes, or on this machine without one.", name);
  app.require_subcommand(1);
  app.footer("Example: " + name + " run examples/kjv-gpt.yaml");

  CLI::App* run_command = app.add_subcommand(
      "run", "Train a job on this machine: no cluster needed, the same controller and agents");
  run_command->add_option("FILE", run.file, "A TrainingJob, YAML or JSON")->required();
  run_command->add_option("--output", run.output,
                          "Folder for checkpoints, metrics, logs and the loss curve "
                          "(default: ./lockstep-runs/<job>-<time>)");
  run_command
      ->add_option("-o", format,
                   "json: one line of JSON on stdout at the end, for programs; none for bad "
                   "input (exit code 2)")
      ->check(CLI::IsMember({"json"}));
  run_command->footer(
      "Exit code 0: Complete; 1: Failed; 2: bad input, nothing was started; 130: interrupted.\n"
      "Ctrl-C ends the job within its grace period, a second one at once.");
  run_command->callback([&] {
    run.json = format == "json";
    exit_code = lockstep::run_job(run, lockstep::SystemClock());
  });

  lockstep::UpOptions up{.program_folder = program_folder()};
  CLI::App* up_command = app.add_subcommand(
      "up", "A cluster on this machine for kubectl: API server, controller and machines");
  up_command->add_option("--machines", up.machines, "Machines that pods run on")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  up_command->add_option("--port", up.port, "Of the API server (default: the system chooses)");
  up_command->add_option("--folder", up.folder,
                         "For the kubeconfig and the logs (default: ~/.lockstep/up; with COMMAND "
                         "a temporary one)");
  up_command->add_option("--kubeconfig", up.kubeconfig,
                         "The file to write (default: kubeconfig in the folder)");
  int64_t history_seconds = 300;
  up_command
      ->add_option("--history-seconds", history_seconds,
                   "How long a watch that was broken off can be resumed")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  up_command->add_option("COMMAND", up.command,
                         "After --: run it with KUBECONFIG set, and end when it ends");
  up_command->footer(
      "Example: lockstep up -- bash\n"
      "Exit code: that of COMMAND; without one 0 after Ctrl-C. What was in the cluster is gone "
      "then.");
  up_command->callback([&] {
    up.history_age = std::chrono::seconds(history_seconds);
    exit_code = lockstep::run_up(up, lockstep::SystemClock());
  });

  CLI::App* validate_command = app.add_subcommand(
      "validate", "Check jobs as `run` would, without running them (exit code 0 or 2)");
  validate_command->add_option("FILE", files, "TrainingJobs, YAML or JSON")->required();
  validate_command->callback([&] { exit_code = lockstep::validate_files(files); });

  const lockstep::ClientContext client{
      .environment = environment, .clock = clock, .exit_code = exit_code};
  lockstep::add_client_commands(app, client);

  CLI::App* version_command = app.add_subcommand("version", "Print the version");
  version_command->callback([] { std::cout << "lockstep " << lockstep::kVersion << "\n"; });

  signal(SIGPIPE, SIG_IGN);
  // Words on their way to become a command line are none yet, so that CLI11 doesn't see them.
  if (argc > 1 && std::string(argv[1]) == "__complete") {
    const int first = argc > 2 && std::string(argv[2]) == "--" ? 3 : 2;
    lockstep::complete_words(app, client, {argv + std::min(first, argc), argv + argc});
    std::_Exit(0);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : lockstep::kExitBadInput;
  }
  // Threads of the HTTP client may still wait for what nobody wants any more.
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(exit_code);
}
