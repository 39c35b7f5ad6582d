// lockstep: the command line tool for users.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "cli/client/completion.h"
#include "cli/run/run_job.h"
#include "cli/timeline/show_timeline.h"
#include "cli/up/up.h"
#include "common/base/clock.h"
#include "common/base/run_main.h"
#include "common/base/version.h"
#include "controller/kube/http.h"

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// kubectl runs its plugin under the name kubectl-lockstep.
std::string program_name(const char* called) {
  const std::string name = std::filesystem::path(called).filename().string();
  return name == "kubectl-lockstep" ? "kubectl lockstep" : "lockstep";
}

std::string program_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

std::string unknown_command(const std::string& program, const std::string& word) {
  return word + ": unknown command; " + program + " --help lists all commands\n";
}

void add_run(CLI::App& app, lockstep::cli::ClientContext context) {
  const auto options = std::make_shared<lockstep::cli::RunOptions>(
      lockstep::cli::RunOptions{.program_folder = context.environment.program_folder});
  const auto format = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "run", "Train a job on this machine without a cluster, with the same controller and agents");
  command->add_option("FILE", options->file, "TrainingJob file in YAML or JSON")->required();
  command->add_option("--output", options->output,
                      "Folder for checkpoints, metrics, logs and the loss curve "
                      "(default: ./lockstep-runs/<job>-<time>)");
  command
      ->add_option("-o", *format,
                   "json: print the result as one line of JSON on stdout at the end; nothing "
                   "for bad input (exit code 2)")
      ->check(CLI::IsMember({"json"}));
  command->footer(
      "Exit codes: 0 Complete; 1 Failed; 2 bad input, nothing was started; 130 interrupted.\n"
      "Ctrl-C ends the job within its grace period; a second Ctrl-C kills it immediately.");
  command->callback([options, format, context] {
    options->json = *format == "json";
    context.exit_code = lockstep::cli::run_job(*options, context.clock);
  });
}

void add_up(CLI::App& app, lockstep::cli::ClientContext context) {
  const auto options = std::make_shared<lockstep::cli::UpOptions>(lockstep::cli::UpOptions{
      .program_folder = context.environment.program_folder, .home = context.environment.home});
  const auto history_seconds = std::make_shared<int64_t>(300);
  CLI::App* command = app.add_subcommand(
      "up", "Start a cluster on this machine for kubectl: API server, controller and machines");
  command->add_option("--machines", options->machines, "Number of machines that run pods")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--port", options->port,
                      "Port of the API server (default: the system chooses one)");
  command->add_option("--folder", options->folder,
                      "Folder for the kubeconfig and the logs (default: ~/.lockstep/up; with "
                      "COMMAND, a temporary folder)");
  command->add_option("--kubeconfig", options->kubeconfig,
                      "Kubeconfig file to write (default: kubeconfig in the folder)");
  command
      ->add_option("--history-seconds", *history_seconds,
                   "How long an interrupted watch can be resumed")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  command->add_option(
      "COMMAND", options->command,
      "After --: command to run with KUBECONFIG set; the cluster stops when it exits");
  command->footer(
      "Example: lockstep up -- bash\n"
      "Exit code: that of COMMAND; without COMMAND, 0 after Ctrl-C. The cluster's objects are "
      "not kept.");
  command->callback([options, history_seconds, context] {
    options->history_age = std::chrono::seconds(*history_seconds);
    context.exit_code = lockstep::cli::run_up(*options, context.clock);
  });
}

void add_validate(CLI::App& app, lockstep::cli::ClientContext context) {
  const auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand(
      "validate", "Check jobs as `run` would, without running them (exit code 0 or 2)");
  command->add_option("FILE", *files, "TrainingJob files in YAML or JSON")->required();
  command->footer(
      "Jobs for a cluster have other paths: check them with lockstep submit --dry-run server.");
  command->callback([files, context] {
    context.exit_code = lockstep::cli::validate_files(*files, context.environment.program_folder);
  });
}

// Replaces this process with another program in the same folder, because the user's tool links no
// agent code. Returns the exit code if that program can't be started.
int exec_program(const lockstep::cli::ClientContext& context, const std::string& name,
                 std::vector<std::string> arguments) {
  std::string program = context.environment.program_folder + "/" + name;
  std::vector<char*> pointers{program.data()};
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  std::cerr << "lockstep: can't start " << program << ": " << std::strerror(errno)
            << "; expected it in the folder of lockstep\n";
  return 1;
}

void add_bench(CLI::App& app, lockstep::cli::ClientContext context) {
  CLI::App* command = app.add_subcommand(
      "bench", "Measure collectives between processes on this machine, like nccl-tests");
  command->set_help_flag("");
  command->prefix_command();
  command->callback([command, context] {
    context.exit_code = exec_program(context, "lockstep-bench", command->remaining());
  });
}

void add_tokenize(CLI::App& app, lockstep::cli::ClientContext context) {
  CLI::App* command = app.add_subcommand(
      "tokenize", "Train a tokenizer, and write text as token ids for a job to train on");
  command->set_help_flag("");
  command->prefix_command();
  command->callback([command, context] {
    context.exit_code = exec_program(context, "lockstep-tokenize", command->remaining());
  });
}

// Replaces a size such as 2GB by its number of bytes. Returns the problem; empty if there is none.
std::string size_in_bytes(std::string& text) {
  const std::string given = text;
  const bool is_positive = text.find_first_of("123456789") == 0;
  try {
    if (is_positive && CLI::AsSizeValue(true)(text).empty()) return "";
  } catch (const CLI::ValidationError&) {
    // The message below says more.
  }
  return given + " is no size; expected a whole number with a unit, such as 500MB, 2GB or 4GiB";
}

void add_export(CLI::App& app, lockstep::cli::ClientContext context) {
  struct Words {
    std::string from;
    std::string to;
    std::string precision = "fp32";
    uint64_t file_bytes_max = 0;  // 0: no limit
    bool is_average = false;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* command = app.add_subcommand(
      "export", "Export a checkpoint's weights to safetensors as Hugging Face stores them");
  command
      ->add_option("CHECKPOINT", words->from,
                   "Folder of a checkpoint, or of several, of which the newest is exported")
      ->required();
  command
      ->add_option("OUTPUT", words->to,
                   "File to write, or folder for several files; it must not exist yet")
      ->required();
  command->add_option("--precision", words->precision, "fp32, or bf16: rounded to nearest even")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  command
      ->add_option("--max-file-size", words->file_bytes_max,
                   "Size such as 500MB, 2GB or 4GiB: larger weights become a folder of several "
                   "files with an index (default: one file)")
      ->type_name("SIZE")
      ->transform(CLI::Validator(size_in_bytes, ""));
  command->add_flag("--average", words->is_average,
                    "The moving average of the weights, of a job with spec.train.ema");
  command->footer(
      "Examples: lockstep export checkpoints/step-00001000 model.safetensors\n"
      "          lockstep export checkpoints my-model --precision bf16 --max-file-size 2GB\n"
      "A tensor that is larger than --max-file-size gets a file of its own.");
  command->callback([words, context] {
    context.exit_code = exec_program(
        context, "lockstep-worker",
        {"export", words->from, words->to, words->precision, std::to_string(words->file_bytes_max),
         words->is_average ? "averages" : "parameters"});
  });
}

void add_clicks(CLI::App& app, lockstep::cli::ClientContext context) {
  struct Words {
    std::string file;
    int64_t rows = 1'000'000;
    int64_t keys = 1'000'000;
    int64_t seed = 1;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* command = app.add_subcommand(
      "clicks", "Write a click log that is drawn from a known model, in the criteo format");
  command->add_option("FILE", words->file, "File to write; replaced")->required();
  const CLI::Range range(int64_t{1}, int64_t{1} << 31);
  command->add_option("--rows", words->rows, "Lines of the file")
      ->check(range)
      ->capture_default_str();
  command->add_option("--keys", words->keys, "Categories of all columns together, about")
      ->check(range)
      ->capture_default_str();
  command->add_option("--seed", words->seed, "Seed of the model and of its rows")
      ->check(range)
      ->capture_default_str();
  command->footer(
      "The frequencies of the categories follow Zipf's law. Prints the best possible log loss, of "
      "all rows and of the last tenth.");
  command->callback([words, context] {
    context.exit_code = exec_program(context, "lockstep-worker",
                                     {"clicks", words->file, std::to_string(words->rows),
                                      std::to_string(words->keys), std::to_string(words->seed)});
  });
}

constexpr int64_t kGigabytesMax = 1'000'000;

bool is_size(const std::string& word) {
  int64_t size = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, size);
  return stop == end && error == std::errc() && size >= 1 && size <= kGigabytesMax;
}

// The worker prints the plan, because it is the worker that allocates.
int plan_memory(const lockstep::cli::ClientContext& context, std::vector<std::string> words) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (is_size(words[i])) continue;
    std::cerr << words[i] << " is no size in GB, expected 1 to " << kGigabytesMax << "\n";
    return lockstep::cli::kExitBadInput;
  }
  // A number is a size, unless there is such a file.
  const bool is_number =
      !words.empty() && words.front().find_first_not_of("-0123456789") == std::string::npos;
  if (is_number && !is_size(words.front()) && !std::filesystem::exists(words.front())) {
    std::cerr << words.front() << " is no size in GB, expected 1 to " << kGigabytesMax << "\n";
    return lockstep::cli::kExitBadInput;
  }
  if (!words.empty() && !is_size(words.front())) {
    const lockstep::Status given = lockstep::cli::put_job_on_stdin(words.front());
    if (!given.ok()) {
      std::cerr << given.error().message << "\n";
      return lockstep::cli::kExitBadInput;
    }
    words.front() = "/dev/stdin";
  }
  if (words.empty()) words = {"80", "141"};
  words.insert(words.begin(), "plan");
  return exec_program(context, "lockstep-worker", std::move(words));
}

void add_plan(CLI::App& app, lockstep::cli::ClientContext context) {
  const auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand(
      "plan",
      "Compute a job's memory and whether it fits; without a FILE, which presets fit on GPUs");
  command->add_option("FILE", *words,
                      "A TrainingJob file in YAML or JSON. Then, or alone: GPU memory sizes in GB "
                      "(10^9 bytes); default: those of this machine, without a FILE 80 and 141");
  command->footer(
      "Examples: lockstep plan job.yaml\n          lockstep plan job.yaml 24 80\n"
      "          lockstep plan 24 80\n"
      "Without a FILE, the last columns are the largest batch.micro with precision bf16, for "
      "train.recompute none,\nops and blocks; -: not even one sequence fits.");
  command->callback([words, context] { context.exit_code = plan_memory(context, *words); });
}

void add_timeline(CLI::App& app, lockstep::cli::ClientContext context) {
  const auto options = std::make_shared<lockstep::cli::TimelineOptions>();
  CLI::App* command = app.add_subcommand(
      "timeline", "Show what every rank did when in a step (of a job with spec.train.timeline)");
  command
      ->add_option("FOLDER", options->folder,
                   "Folder of a job's checkpoints, or the folder timeline in it")
      ->required();
  command->add_option("--step", options->step, "Recorded step (default: the newest one)");
  command->add_option("--out", options->trace,
                      "File for all steps of the recording, for chrome://tracing or Perfetto");
  command->add_option("--svg", options->svg, "File for a picture of the step");
  command->footer(
      "Example: lockstep timeline checkpoints --out trace.json --svg step.svg\n"
      "BUBBLE is the share of the step in which a rank computed nothing.\n"
      "Exit codes: 0; 1 if a file can't be written; 2 if there is no such recording.");
  command->callback(
      [options, context] { context.exit_code = lockstep::cli::show_timeline(*options); });
}

void add_version(CLI::App& app) {
  app.add_subcommand("version", "Print the version")->callback([] {
    std::cout << "lockstep " << lockstep::kVersion << "\n";
  });
}

}  // namespace

namespace {

int program(int argc, char** argv) {
  const std::string name = program_name(argc > 0 ? argv[0] : "");
  std::error_code no_folder;
  const lockstep::cli::ClientEnvironment environment{
      .program = name,
      .program_folder = program_folder(),
      .kubeconfig = variable("KUBECONFIG"),
      .home = variable("HOME"),
      .working_folder = std::filesystem::current_path(no_folder).string()};
  const lockstep::SystemClock clock;
  int exit_code = 0;
  const lockstep::cli::ClientContext context{
      .environment = environment, .clock = clock, .exit_code = exit_code};

  CLI::App app("Trains models on Kubernetes, or on this machine without a cluster.", name);
  app.require_subcommand(1);
  add_run(app, context);
  add_up(app, context);
  add_validate(app, context);
  add_bench(app, context);
  add_export(app, context);
  add_clicks(app, context);
  add_tokenize(app, context);
  add_plan(app, context);
  add_timeline(app, context);
  lockstep::cli::add_client_commands(app, context);
  add_version(app);
  // Subcommands would inherit it if it were set before they are added.
  app.footer("Example: " + name + " run examples/kjv-gpt.yaml");

  signal(SIGPIPE, SIG_IGN);
  // Words to be completed are not a command line yet, so CLI11 must not parse them.
  if (argc > 1 && std::string(argv[1]) == "__complete") {
    const int first = argc > 2 && std::string(argv[2]) == "--" ? 3 : 2;
    lockstep::cli::complete_words(app, context, {argv + std::min(first, argc), argv + argc});
    lockstep::kube::exit_with_http_threads(0);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0 && app.get_subcommands().empty()) {
      const bool is_option = argc > 1 && argv[1][0] == '-';
      std::cerr << (argc == 1 ? app.help()
                    : is_option
                        ? error.what() + std::string("; " + name + " --help lists all options\n")
                        : unknown_command(name, argv[1]));
      return lockstep::cli::kExitBadInput;
    }
    return app.exit(error) == 0 ? 0 : lockstep::cli::kExitBadInput;
  }
  std::cout.flush();
  lockstep::kube::exit_with_http_threads(exit_code);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep", program, argc, argv);
}
