#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "controller/kube/kube_access.h"
#include "controller/kube/mailbox.h"

namespace lockstep {

// What the tool knows of its surroundings; main fills it in.
struct ClientEnvironment {
  std::string program = "lockstep";  // as users call it: "kubectl lockstep" for the plugin
  std::string program_folder;
  std::string kubeconfig;  // the variable KUBECONFIG
  std::string home;
  std::string working_folder;
};

// Flags that all commands share that speak to a cluster.
struct ConnectionFlags {
  std::string kubeconfig;
  std::string context;
  std::string cluster;
  std::string user;
  std::string namespace_;
  std::string request_timeout = "30s";
};

// "500ms", "30s", "5m", "1h30m", "45" (seconds). kInvalid for anything else, and beyond a year.
Result<Duration> parse_duration(const std::string& text);

// The kubeconfig as the flags and the environment say it.
Result<Kubeconfig> client_kubeconfig(const ClientEnvironment& environment,
                                     const ConnectionFlags& flags);

struct ApiCall {
  std::string method = "GET";
  std::string path;
  std::map<std::string, std::string> query{};
  Json body{};
  std::string content_type = "application/json";
  std::string accept = "application/json";
};

// One API server, asked from one thread: a call waits for its answer. Warnings of the server go to
// stderr. Errors are worded as kubectl's: "Error from server (NotFound): ...".
class Connection {
 public:
  // kNotFound where no cluster is configured, with what to do about it. `clock` outlives it.
  static Result<std::unique_ptr<Connection>> open(const ClientEnvironment& environment,
                                                  const ConnectionFlags& flags, const Clock& clock);

  const std::string& namespace_() const { return access_.namespace_; }
  const std::string& context() const { return access_.context; }
  const Clock& clock() const { return clock_; }

  // kNotFound for 404, kConflict for 409, kInvalid for other answers of 4xx, kTimeout,
  // kUnavailable.
  Result<Json> call(const ApiCall& call);
  // The same for a reply that is text.
  Result<std::string> text(const ApiCall& call, size_t bytes_max);

  // Opens a stream, which run_until() moves. Ends after a day at the latest.
  std::unique_ptr<HttpHandle> stream(const ApiCall& call, HttpStreamHandler handler);
  // What a stream's end means: no error for a good one.
  Status end_of_stream(const Result<HttpReply>& reply);
  // False: the time came first.
  bool run_until(const std::function<bool()>& done, std::optional<TimePoint> until = std::nullopt);

  // Follows one kind of object: `on_event(type, object)` for the objects that there are and for
  // each change, until it returns false. Lists anew where the server no longer has a version.
  // False: the time came first. `call`: of the list, with its selectors.
  Result<bool> watch(
      const ApiCall& call,
      const std::function<bool(const std::string& type, const Json& object)>& on_event,
      std::optional<TimePoint> until = std::nullopt);

 private:
  Connection(KubeAccess access, Duration timeout, const Clock& clock);
  Result<HttpReply> send(const ApiCall& call, size_t bytes_max);
  HttpRequest request_for(const ApiCall& call);
  Error unreachable(const Error& error) const;
  enum class WatchEnd { kStopped, kTimeout, kAgain };
  Result<WatchEnd> watch_once(const ApiCall& call, std::string& version,
                              const std::function<bool(const std::string&, const Json&)>& on_event,
                              std::optional<TimePoint> until);

  const KubeAccess access_;
  const Duration timeout_;
  const Clock& clock_;
  Timers timers_;
  Mailbox mailbox_;
  Credentials credentials_;
  HttpClient client_;
};

// Paths of the API, their parts percent-encoded.
std::string jobs_path(const std::string& namespace_);  // empty: of all namespaces
std::string job_path(const std::string& namespace_, const std::string& name);
std::string core_path(const std::string& namespace_, const std::string& plural,
                      const std::string& name = "");

// "error: ..." on stderr, unless the message is worded already; 1, the exit code.
int print_error(const Error& error);

}  // namespace lockstep
