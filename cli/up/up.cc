#include "cli/up/up.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/run/run_job.h"
#include "cli/run/signal_wait.h"
#include "cli/up/kubeconfig_file.h"
#include "local/local_cluster.h"
#include "local/node/machine.h"
#include "local/node/program.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kPollMilliseconds = 1000;
constexpr int64_t kControllerExitsMax = 10;  // in a row: it won't recover
constexpr Duration kQuietStop = std::chrono::seconds(1);
constexpr Duration kStopMax = std::chrono::seconds(120);
constexpr Duration kCommandStopMax = std::chrono::seconds(10);
constexpr size_t kLogTailBytes = 2u << 10;
constexpr int kCommandNotStarted = 127;

void say(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

class Up {
 public:
  Up(UpOptions options, const Clock& clock) : options_(std::move(options)), clock_(clock) {}
  ~Up();

  int run();

 private:
  Status start();
  Status choose_folder();
  Status lock_folder();
  Status check_kubeconfig();
  Status write_kubeconfig();
  void print_welcome() const;
  int run_until_signal();
  int run_command();
  void end_command(pid_t pid);
  void stop();
  bool controller_is_lost() const;
  void report_lost_controller() const;

  UpOptions options_;
  const Clock& clock_;
  bool temporary_ = false;
  bool wrote_kubeconfig_ = false;
  int lock_fd_ = -1;
  SignalWait signals_;
  std::atomic<bool> command_ended_ = false;
  local::ExitStatus command_exit_;
  std::unique_ptr<local::LocalCluster> cluster_;
};

Up::~Up() {
  cluster_.reset();
  std::error_code ignored;
  if (wrote_kubeconfig_) fs::remove(options_.kubeconfig, ignored);
  if (temporary_) fs::remove_all(options_.folder, ignored);
  if (lock_fd_ >= 0) close(lock_fd_);
}

int Up::run() {
  if (Status started = start(); !started.ok()) {
    say(started.error().message);
    return started.error().code == Code::kInvalid ? kExitBadInput : kExitFailed;
  }
  int code = options_.command.empty() ? run_until_signal() : run_command();
  stop();
  return code;
}

Status Up::start() {
  TRY(local::check_programs(options_.program_folder));
  TRY(choose_folder());
  TRY(lock_folder());
  TRY(check_kubeconfig());
  TRY(signals_.block_signals());
  TRY_ASSIGN(std::string seed, local::random_secret());
  std::error_code error;
  TRY_ASSIGN(
      cluster_,
      local::LocalCluster::start(
          clock_, {.program_folder = options_.program_folder,
                   .folder = options_.folder + "/node",
                   .log_folder = options_.folder + "/logs",
                   .seed = std::stoull(seed.substr(0, 16), nullptr, 16),
                   .port = options_.port,
                   .tls = true,
                   .limits = {.history_age = options_.history_age},
                   .machines = local::divided_computer(static_cast<size_t>(options_.machines), {}),
                   .working_folder = fs::current_path(error).string()}));
  return write_kubeconfig();
}

Status Up::choose_folder() {
  std::error_code error;
  if (options_.folder.empty() && !options_.command.empty()) {
    std::string name = (fs::temp_directory_path(error) / "lockstep-up-XXXXXX").string();
    if (error || mkdtemp(name.data()) == nullptr)
      return errno_error("[up] making a temporary folder " + name, errno);
    options_.folder = name;
    temporary_ = true;
    return {};
  }
  if (options_.folder.empty()) {
    if (options_.home.empty())
      return invalid("--folder: missing and HOME is not set, expected one of them");
    options_.folder = options_.home + "/.lockstep/up";
  }
  options_.folder = fs::absolute(options_.folder, error).lexically_normal().string();
  return local::make_private_folder(options_.folder);
}

// Two instances in one folder would overwrite each other's kubeconfig and logs.
Status Up::lock_folder() {
  std::string file = options_.folder + "/lock";
  lock_fd_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd_ < 0) return errno_error("[up] " + file, errno);
  if (flock(lock_fd_, LOCK_EX | LOCK_NB) == 0) return {};
  return invalid("--folder: `lockstep up` is already running in " + options_.folder +
                 "; use its kubeconfig or choose another folder");
}

// In our own, locked folder an existing file is a leftover; elsewhere it belongs to somebody.
Status Up::check_kubeconfig() {
  const bool is_own = options_.kubeconfig.empty();
  if (is_own) options_.kubeconfig = options_.folder + "/kubeconfig";
  std::error_code error;
  options_.kubeconfig = fs::absolute(options_.kubeconfig, error).lexically_normal().string();
  if (is_own || !fs::exists(fs::symlink_status(options_.kubeconfig, error))) return {};
  return invalid("--kubeconfig: " + options_.kubeconfig +
                 " already exists; expected a new file, which is removed at the end");
}

Status Up::write_kubeconfig() {
  std::error_code error;
  // Renamed into place when complete: another program may be waiting for it.
  std::string half = options_.kubeconfig + ".new";
  fs::remove(half, error);
  TRY(local::write_private_file(half, kubeconfig_text(cluster_->access())));
  fs::rename(half, options_.kubeconfig, error);
  if (error) return unavailable("[up] " + options_.kubeconfig + ": " + error.message());
  wrote_kubeconfig_ = true;
  return {};
}

void Up::print_welcome() const {
  say("Kubernetes API:  " + cluster_->access().url + ", " + std::to_string(options_.machines) +
      (options_.machines == 1 ? " machine" : " machines") + ", all objects in memory\n" +
      "Logs:            " + options_.folder + "/logs\n\n" +
      "In another terminal:\n\n  export KUBECONFIG=" + options_.kubeconfig +
      "\n  kubectl apply -f JOB.yaml\n  kubectl get trainingjobs -w\n\n" +
      "Relative paths in a job are relative to " + fs::current_path().string() +
      ".\nCtrl-C stops the cluster and everything that runs in it.");
}

bool Up::controller_is_lost() const {
  return cluster_->controller().consecutive_exits() >= kControllerExitsMax;
}

void Up::report_lost_controller() const {
  say("the controller exits again and again; the end of its log:\n" +
      local::end_of_file(cluster_->controller_log(), kLogTailBytes));
}

int Up::run_until_signal() {
  print_welcome();
  while (signals_.count() == 0) {
    signals_.wait(kPollMilliseconds);
    if (!controller_is_lost()) continue;
    report_lost_controller();
    return kExitFailed;
  }
  return 0;
}

int Up::run_command() {
  const std::string program = local::find_program(options_.command[0], options_.program_folder);
  std::error_code error;
  local::SpawnSpec spec{
      .program = program,
      .arguments = options_.command,
      .environment = local::merged_environment({{"KUBECONFIG", options_.kubeconfig}}),
      .working_folder = fs::current_path(error).string(),
      .output_file = ""};
  Result<pid_t> pid = cluster_->host().spawn(spec, [this](local::ExitStatus status) {
    command_exit_ = status;
    command_ended_ = true;
    signals_.wake();
  });
  if (!pid.ok()) {
    say(pid.error().message);
    return kCommandNotStarted;
  }
  while (!command_ended_) {
    signals_.wait(kPollMilliseconds);
    if (signals_.count() == 0 && controller_is_lost()) {
      report_lost_controller();
      end_command(*pid);
      return kExitFailed;
    }
    if (signals_.count() > 0) end_command(*pid);
  }
  return command_exit_.code;
}

// A command in the foreground already got a Ctrl-C; other signals were sent only to us.
void Up::end_command(pid_t pid) {
  kill(pid, SIGTERM);
  const TimePoint deadline = clock_.now() + kCommandStopMax;
  while (!command_ended_ && clock_.now() < deadline) signals_.wait(kPollMilliseconds / 10);
  if (!command_ended_) kill(pid, SIGKILL);
  while (!command_ended_) signals_.wait(kPollMilliseconds / 10);
}

// Shuts down in order: nothing creates new pods, and running pods end within their grace periods.
void Up::stop() {
  cluster_->stop_controller();
  const int signals_before = signals_.count();
  local::LocalNode& node = cluster_->node();
  local::ApiResponse namespaces = cluster_->api().handle({"GET", "/api/v1/namespaces", "", ""});
  for (const Json& item : namespaces.body["items"]) {
    cluster_->api().handle(
        {"DELETE",
         "/api/v1/namespaces/" + string_or(local::metadata_of(item), "name", "") + "/pods", "",
         ""});
  }
  const TimePoint began = clock_.now();
  bool said = false;
  while (!node.is_empty() && clock_.now() < began + kStopMax &&
         signals_.count() == signals_before) {
    signals_.wait(kPollMilliseconds / 20);
    if (said || clock_.now() < began + kQuietStop) continue;
    said = true;
    say("stopping: waiting for pods to end within their grace period; press Ctrl-C again to kill "
        "everything immediately");
  }
  node.kill_all();
}

}  // namespace

int run_up(const UpOptions& options, const Clock& clock) {
  return Up(options, clock).run();
}

}  // namespace lockstep::cli
