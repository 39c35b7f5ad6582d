#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "controller/kube/kube_access.h"
#include "controller/kube/mailbox.h"

namespace lockstep::cli {

// The tool's environment; main() fills it in.
struct ClientEnvironment {
  std::string program = "lockstep";  // as users call it: "kubectl lockstep" for the plugin
  std::string program_folder;
  std::string kubeconfig;  // the variable KUBECONFIG
  std::string home;
  std::string working_folder;
};

// Flags shared by all commands that talk to a cluster.
struct ConnectionFlags {
  std::string kubeconfig;
  std::string context;
  std::string cluster;
  std::string user;
  std::string namespace_;
  std::string request_timeout = "30s";
};

// Parses "500ms", "30s", "5m", "1h30m", "45" (seconds). kInvalid for anything else, and beyond a
// year.
Result<Duration> parse_duration(const std::string& text);

// Returns the kubeconfig that the flags and the environment select.
Result<kube::Kubeconfig> client_kubeconfig(const ClientEnvironment& environment,
                                           const ConnectionFlags& flags);

struct ApiCall {
  std::string method = "GET";
  std::string path;
  std::map<std::string, std::string> query{};
  Json body{};
  std::string content_type = "application/json";
  std::string accept = "application/json";
};

// A connection to one API server, for one thread: calls block until the reply. Prints the server's
// warnings on stderr. Words errors like kubectl: "Error from server (NotFound): ...".
class Connection {
 public:
  // kNotFound if no cluster is configured; the message says what to do. `clock` outlives the
  // connection.
  static Result<std::unique_ptr<Connection>> open(const ClientEnvironment& environment,
                                                  const ConnectionFlags& flags, const Clock& clock);

  const std::string& namespace_() const { return access_.namespace_; }
  const Clock& clock() const { return clock_; }

  // Sends a request. kNotFound for 404, kConflict for 409, kInvalid for other 4xx replies,
  // kTimeout, kUnavailable.
  Result<Json> call(const ApiCall& call);
  // Like call(), for a text reply.
  Result<std::string> text(const ApiCall& call, size_t bytes_max);

  // Opens a stream; run_until() drives it. It ends after a day at the latest.
  std::unique_ptr<kube::HttpHandle> stream(const ApiCall& call, kube::HttpStreamHandler handler);
  // Converts the end of a stream to a status; OK if it ended normally.
  Status end_of_stream(const Result<kube::HttpReply>& reply);
  // Drives streams until done() returns true. Returns false on timeout.
  bool run_until(const std::function<bool()>& done, std::optional<TimePoint> until = std::nullopt);

  // Follows one kind of object until on_event(type, object) returns false. Types: LIST for each
  // existing object (or for a whole Table), LISTED after a list of objects, then the server's types
  // for changes. Lists again if
  // the server no longer has a version. Returns false on timeout. `call` is the list request, with
  // its selectors.
  Result<bool> watch(
      const ApiCall& call,
      const std::function<bool(const std::string& type, const Json& object)>& on_event,
      std::optional<TimePoint> until = std::nullopt);

 private:
  Connection(kube::KubeAccess access, Duration timeout, const Clock& clock);
  Result<kube::HttpReply> send(const ApiCall& call, size_t bytes_max);
  kube::HttpRequest request_for(const ApiCall& call);
  Error unreachable(const Error& error) const;
  enum class WatchEnd { kStopped, kTimeout, kAgain };
  Result<WatchEnd> watch_once(const ApiCall& call, std::string& version,
                              const std::function<bool(const std::string&, const Json&)>& on_event,
                              std::optional<TimePoint> until);

  const kube::KubeAccess access_;
  const Duration timeout_;
  const Clock& clock_;
  loop::Timers timers_;
  kube::Mailbox mailbox_;
  kube::Credentials credentials_;
  kube::HttpClient client_;
};

// API paths with percent-encoded parts.
std::string jobs_path(const std::string& namespace_);  // empty: all namespaces
std::string job_path(const std::string& namespace_, const std::string& name);
std::string core_path(const std::string& namespace_, const std::string& plural,
                      const std::string& name = "");

// Prints the message on stderr, with "error: " in front unless it already has a prefix. Returns 1,
// the exit code.
int print_error(const Error& error);

}  // namespace lockstep::cli
