#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <random>
#include <thread>

#include "common/base/core_dumps.h"
#include "common/base/descriptors.h"
#include "common/base/log.h"
#include "common/base/run_main.h"
#include "common/base/version.h"
#include "controller/kube/agent_http_client.h"
#include "controller/kube/http.h"
#include "controller/kube/kube_access.h"
#include "controller/kube/kube_client.h"
#include "controller/loop/controller.h"
#include "controller/monitor/metrics.h"
#include "controller/monitor/probes.h"
#include "controller/monitor/readiness.h"
#include "controller/plan/names.h"
#include "controller/plan/pod_policy.h"

namespace lockstep::controller {
namespace {

constexpr char kServiceAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount/";
constexpr size_t kHttpThreads = 4;
// Limits of open requests: enough for the rate if an answer takes 160 ms, as from a busy server.
constexpr double kOpenForEachQps = 0.16;
constexpr double kOpenMin = 16, kOpenMax = 64;
constexpr Duration kTrimInterval = std::chrono::seconds(10);

struct Flags {
  std::string kubeconfig;
  std::string context;
  std::string server;
  std::string token_file;
  std::string ca_file;
  std::string namespace_;
  std::string key_file;
  bool leader_elect = true;
  double qps = 50;
  double burst = 100;
  std::string listen;
  std::string job_image;
  int64_t agent_silence = loop::AgentWatchOptions{}.silence / std::chrono::seconds(1);
  bool agents_are_current = false;
  bool scrape_annotations = false;
  std::string pod_policy{plan::pod_policy_name(plan::PodPolicy{}.level)};
  std::vector<std::string> job_service_accounts;
  bool network_policies = false;
  std::string network_policy_controller;
  std::string network_policy_metrics_from = "[]";
  bool log_json = false;
  bool verbose = false;
};

// Returns where the API server is, and our identity to it.
Result<kube::KubeAccess> access_of(const Flags& flags) {
  if (flags.kubeconfig.empty()) {
    return kube::KubeAccess{.server = {.url = flags.server, .tls = {.ca_file = flags.ca_file}},
                            .credentials = {.token_file = flags.token_file}};
  }
  TRY_ASSIGN(const kube::Kubeconfig config,
             kube::load_kubeconfig({.explicit_file = flags.kubeconfig,
                                    .working_folder = std::filesystem::current_path().string()}));
  return kube::kube_access(config, {.context = flags.context});
}

Result<loop::JobKeys> keys_of(const Flags& flags) {
  TRY_ASSIGN(const std::string text, kube::read_small_file(flags.key_file));
  return loop::read_job_keys(text);
}

// Without --server, the pod's own service account tells where the API server is.
Status use_service_account(Flags& flags) {
  const char* host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* port = std::getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr) {
    return invalid(
        "--server: missing; it is required outside a pod, where KUBERNETES_SERVICE_HOST is not "
        "set");
  }
  const std::string name(host);
  const std::string quoted = name.find(':') == std::string::npos ? name : "[" + name + "]";
  flags.server = "https://" + quoted + ":" + port;
  if (flags.token_file.empty()) flags.token_file = std::string(kServiceAccount) + "token";
  if (flags.ca_file.empty()) flags.ca_file = std::string(kServiceAccount) + "ca.crt";
  return {};
}

// Returns the namespace of the pod that this process runs in, if it uses its service account.
std::string pod_namespace(const Flags& flags) {
  if (!flags.kubeconfig.empty()) return "";
  Result<std::string> text = kube::read_small_file(std::string(kServiceAccount) + "namespace");
  return text.ok() ? *std::move(text) : "";
}

// `of_context`: the namespace of the kubeconfig's context.
std::string lease_namespace(const Flags& flags, const std::string& of_context) {
  return kube::lease_namespace(
      {.of_pod = pod_namespace(flags), .of_flag = flags.namespace_, .of_context = of_context});
}

// Returns who may connect to the agents' port, the controller first: without it, jobs lose their
// pods.
Result<plan::NetworkPolicyPeers> network_policy_peers(const Flags& flags) {
  Result<Json> scrapers = plan::read_network_policy_peers(flags.network_policy_metrics_from);
  if (!scrapers.ok()) return invalid("--network-policy-metrics-from: " + scrapers.error().message);
  if (scrapers->empty()) return plan::NetworkPolicyPeers{};
  const std::string own_namespace = pod_namespace(flags);
  Json peers = Json::array({plan::controller_peer(own_namespace)});
  if (!flags.network_policy_controller.empty()) {
    Result<Json> own = plan::read_network_policy_peers("[" + flags.network_policy_controller + "]");
    if (!own.ok()) return invalid("--network-policy-controller: " + own.error().message);
    peers = *std::move(own);
  } else if (own_namespace.empty()) {
    return invalid(
        "--network-policy-controller: missing; it is required outside a pod, with "
        "--network-policy-metrics-from");
  }
  for (Json& scraper : *scrapers) peers.push_back(std::move(scraper));
  return plan::NetworkPolicyPeers{.agent_from = std::move(peers)};
}

std::string identity() {
  char host[256] = "unknown";
  ::gethostname(host, sizeof host - 1);
  std::random_device device;
  char text[300];
  std::snprintf(text, sizeof text, "%s_%d_%08x", host, static_cast<int>(::getpid()), device());
  return text;
}

// Returns "10.0.0.1:443" for "https://10.0.0.1:443/path".
std::string host_of(const std::string& url) {
  const size_t scheme = url.find("://");
  const size_t begin = scheme == std::string::npos ? 0 : scheme + 3;
  return url.substr(begin, url.find('/', begin) - begin);
}

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// CPU time of the calling thread.
Duration thread_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

loop::ControllerOptions controller_options(const Flags& flags, const kube::KubeAccess& access,
                                           const loop::JobKeys& keys,
                                           std::optional<plan::NetworkPolicyPeers> peers) {
  loop::ControllerOptions options;
  options.worked = thread_cpu_time;
  options.namespace_ = flags.namespace_;
  options.key = keys.front();
  options.older_keys.assign(keys.begin() + 1, keys.end());
  options.identity = identity();
  options.progress.per_second = flags.qps * 0.1;
  if (!flags.job_image.empty()) options.limits.job_image = flags.job_image;
  options.limits.agent_image = flags.job_image;
  options.limits.agents_are_current = flags.agents_are_current;
  options.limits.scrape_annotations = flags.scrape_annotations;
  options.limits.pod_policy.level = plan::pod_policy_level(flags.pod_policy).value();
  options.limits.pod_policy.service_accounts = flags.job_service_accounts;
  options.limits.network_policies = std::move(peers);
  options.agents.silence = std::chrono::seconds(flags.agent_silence);
  options.limits.agent_silence = options.agents.silence;
  options.limits.agent_healthy_within = options.agents.silence / 2;
  if (flags.leader_elect) {
    options.lease.emplace();
    options.lease->namespace_ = lease_namespace(flags, access.namespace_);
    // Controllers of different namespaces have separate leases.
    if (!flags.namespace_.empty()) options.lease->name += "-" + flags.namespace_;
    options.lease->identity = options.identity;
  }
  return options;
}

// After a burst of jobs, free memory lies between blocks that are still in use. Returns what it can
// to the system.
void trim_memory_from_time_to_time(loop::Timers& timers) {
  timers.after(kTrimInterval, [&timers] {
    malloc_trim(0);
    trim_memory_from_time_to_time(timers);
  });
}

// Returns nullptr without --listen.
Result<std::unique_ptr<http::Server>> listen(const Flags& flags, monitor::Probes& probes) {
  if (flags.listen.empty()) return std::unique_ptr<http::Server>();
  TRY_ASSIGN(const monitor::ListenAddress address, monitor::listen_address(flags.listen));
  TRY_ASSIGN(std::unique_ptr<http::Server> server, monitor::serve_probes(address, probes));
  log_info("listening", {{"address", flags.listen}, {"port", server->port()}});
  return server;
}

// Runs everything that lives as long as the process, on one thread. Another thread waits for
// SIGTERM and SIGINT, and only posts to the mailbox.
int run(const Flags& flags, const sigset_t& signals, kube::KubeAccess access,
        const loop::JobKeys& keys, std::optional<plan::NetworkPolicyPeers> peers) {
  raise_descriptor_limit();
  kube::start_http_threads(kHttpThreads);
  SystemClock clock;
  loop::Timers timers(clock);
  kube::Mailbox mailbox;
  Random random(random_seed());
  access.server.user_agent = std::string("lockstep-controller/") + kVersion;
  kube::KubeClient api({.server = access.server,
                        .credentials = access.credentials,
                        .rate = {.per_second = flags.qps, .burst = flags.burst},
                        .open_max = static_cast<size_t>(
                            std::clamp(flags.qps * kOpenForEachQps, kOpenMin, kOpenMax))},
                       mailbox, timers, clock);
  kube::AgentHttpClient agents({.poll_margin = std::chrono::seconds(flags.agent_silence) / 5},
                               mailbox, timers);
  std::optional<int> exit_code;
  loop::Controller controller(api, agents, timers, random,
                              controller_options(flags, access, keys, std::move(peers)),
                              [&exit_code] { exit_code = EXIT_FAILURE; });
  monitor::Probes probes(
      {.readiness = [&controller] { return monitor::readiness_of(controller); },
       .metrics =
           [&] {
             return monitor::render_metrics({.controller = controller,
                                             .requests = api.metrics(),
                                             .requests_waiting = api.waiting(),
                                             .api_host = host_of(access.server.url),
                                             .version = kVersion,
                                             .wall_now = clock.wall_now()});
           },
       .post = [&mailbox](std::function<void()> call) { mailbox.post(std::move(call)); }});
  const Result<std::unique_ptr<http::Server>> server = listen(flags, probes);
  if (!server.ok()) {
    log_error("could not listen on the address of --listen", {{"error", server.error().message}});
    return 2;
  }
  std::thread([&] {
    int signal = 0;
    sigwait(&signals, &signal);
    mailbox.post([&] {
      log_info("stopping after a signal");
      controller.stop([&exit_code] { exit_code = EXIT_SUCCESS; });
      timers.after(std::chrono::seconds(3), [&exit_code] { exit_code = EXIT_SUCCESS; });
    });
  }).detach();
  log_info("started", {{"server", access.server.url}, {"namespace", flags.namespace_}});
  controller.start();
  trim_memory_from_time_to_time(timers);
  while (!exit_code) {
    // Answers that came while this process was paused go first: an agent that had answered was not
    // silent.
    mailbox.run();
    timers.run_due();
    if (!exit_code) mailbox.wait(timers.next());
  }
  log_info("stopped", {{"exitCode", *exit_code}});
  kube::exit_with_http_threads(*exit_code);
}

}  // namespace
}  // namespace lockstep::controller

namespace {

int program(int argc, char** argv) {
  using namespace lockstep;
  using namespace lockstep::controller;
  Flags flags;
  CLI::App app("Runs the pods of TrainingJobs, recovers from failures and reports status.",
               "lockstep-controller");
  app.option_defaults()->take_last();  // lets a patch of a Deployment append to its args
  app.add_option("--server", flags.server,
                 "URL of the API server; default: the one of this pod's cluster");
  app.add_option("--kubeconfig", flags.kubeconfig,
                 "Kubeconfig file with the API server and the credentials to use")
      ->excludes("--server");
  app.add_option("--context", flags.context,
                 "Context of the kubeconfig to use; default: the current one")
      ->needs("--kubeconfig");
  app.add_option("--token-file", flags.token_file, "File with the bearer token");
  app.add_option("--ca-file", flags.ca_file,
                 "File with the API server's CA certificates in PEM format");
  app.add_option("--namespace", flags.namespace_,
                 "Run only the jobs of this namespace; default: all namespaces");
  app.add_option("--key-file", flags.key_file,
                 "File with the secret key that job tokens are derived from, of at least 16 bytes; "
                 "keys of running jobs may follow it, each on a line")
      ->required();
  app.add_option("--leader-elect", flags.leader_elect,
                 "Elect one leader among the replicas with a Lease")
      ->capture_default_str();
  app.add_option("--qps", flags.qps, "Requests per second to the API server, on average")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--burst", flags.burst, "Requests to the API server that may be sent in one burst")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  app.add_option(
      "--listen", flags.listen,
      "Address to serve /metrics, /healthz and /readyz on, such as :8080; default: none");
  app.add_option("--job-image", flags.job_image,
                 "Lockstep image that runs jobs without an image, and whose agent is injected into "
                 "other images; default: \"lockstep\" for jobs without an image, and no injection");
  app.add_option(
         "--agent-silence", flags.agent_silence,
         "Seconds (5 to 300) without an answer after which a pod's agent counts as lost and "
         "its pod is recreated; longer with very many agents (more than 5,000 at 15 seconds), "
         "which are polled less often")
      ->check(CLI::Range(int64_t{5}, int64_t{300}))
      ->capture_default_str();
  app.add_flag("--agents-are-current", flags.agents_are_current,
               "The agents of all images are of this version, as on the local node, so no agent is "
               "sent the token");
  app.add_flag("--scrape-annotations", flags.scrape_annotations,
               "Add prometheus.io/scrape, port and path annotations to jobs' pods");
  app.add_option("--pod-policy", flags.pod_policy,
                 "Pod Security Standard that the pods of new jobs must meet: privileged (no "
                 "limits), baseline or restricted")
      ->check(CLI::IsMember({"privileged", "baseline", "restricted"}))
      ->capture_default_str();
  app.add_option("--job-service-accounts", flags.job_service_accounts,
                 "Service accounts that jobs may name in addition to \"default\", unless the pod "
                 "policy is privileged: NAME or NAMESPACE/NAME, separated by commas; * is any")
      ->delimiter(',')
      ->take_all();
  app.add_flag("--network-policies", flags.network_policies,
               "Make a NetworkPolicy for each job that wants one (spec.security.networkPolicy)");
  app.add_option("--network-policy-metrics-from", flags.network_policy_metrics_from,
                 "Who may scrape the pods of jobs with a NetworkPolicy: a JSON list of "
                 "NetworkPolicyPeers; default: anybody")
      ->needs("--network-policies");
  app.add_option("--network-policy-controller", flags.network_policy_controller,
                 "The controller's pods as a NetworkPolicyPeer in JSON, to let them in; default: "
                 "the labels of the chart's pods, in this pod's namespace")
      ->needs("--network-policies");
  app.add_flag("--log-json", flags.log_json, "Write log lines as JSON");
  app.add_flag("--verbose", flags.verbose, "Log at debug level, including every plan");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  set_log_options({.minimum = flags.verbose ? LogLevel::kDebug : LogLevel::kInfo,
                   .json = flags.log_json,
                   .program = "lockstep-controller"});
  // Blocked before any thread starts, so that only the waiting thread takes these signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  if (flags.server.empty() && flags.kubeconfig.empty()) {
    if (const Status status = use_service_account(flags); !status.ok()) {
      log_error("invalid flags", {{"error", status.error().message}});
      return 2;
    }
  }
  forbid_core_dumps();  // it has the keys of all jobs' tokens
  Result<loop::JobKeys> keys = keys_of(flags);
  if (!keys.ok()) {
    log_error("could not use the key", {{"file", flags.key_file}, {"error", keys.error().message}});
    return 2;
  }
  Result<kube::KubeAccess> access = access_of(flags);
  if (!access.ok()) {
    log_error("could not use the kubeconfig", {{"error", access.error().message}});
    return 2;
  }
  std::optional<plan::NetworkPolicyPeers> peers;
  if (flags.network_policies) {
    Result<plan::NetworkPolicyPeers> read = network_policy_peers(flags);
    if (!read.ok()) {
      log_error("invalid flags", {{"error", read.error().message}});
      return 2;
    }
    peers = *std::move(read);
  }
  return run(flags, signals, std::move(access).value(), *keys, std::move(peers));
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-controller", program, argc, argv);
}
