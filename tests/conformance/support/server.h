#pragma once

#include <set>
#include <string>

#include "tests/conformance/support/http.h"
#include "tests/conformance/support/target.h"

namespace lockstep::conformance {

inline constexpr char kMergePatch[] = "application/merge-patch+json";
inline constexpr char kJsonPatch[] = "application/json-patch+json";
inline constexpr char kStrategicPatch[] = "application/strategic-merge-patch+json";
inline constexpr char kApplyPatch[] = "application/apply-patch+yaml";

// The server under test: sends requests and finds out what the server offers. Detects differences
// between versions from the server's documents, never from its name.
class Server {
 public:
  explicit Server(Target target);

  // Sends and returns JSON, with the target's credentials. If the server can't be reached, fails
  // the case and returns an empty Reply.
  Reply ask(const std::string& method, const std::string& target, const Json& body = Json(),
            const std::string& content_type = "application/json") const;
  Reply send(Request request) const;
  // Sends the request as it is: no credentials, no content type.
  Reply send_bare(const Request& request) const;
  Result<std::unique_ptr<ReplyStream>> open(const std::string& target,
                                            const std::string& accept) const;

  const Target& target() const { return target_; }
  // Returns whether discovery lists the resource ("v1", "secrets"), or the subresource
  // ("pods/eviction").
  bool serves(const std::string& group_version, const std::string& resource) const;
  // Returns whether the server deletes objects that have lost their owner. Tried once.
  bool collects_garbage();
  // Returns whether the server empties namespaces that are being deleted. Tried once.
  bool empties_namespaces();
  // Returns the minor version of /version.
  int minor_version() const;

 private:
  Target target_;
  int collects_garbage_ = -1;  // not tried yet
  int empties_namespaces_ = -1;
};

// Returns the server of this run. main() sets it before the first case.
Server& server();
void set_server(std::unique_ptr<Server> server);

// Polls until the condition holds. Returns false after `limit_seconds`, a guard against hangs.
bool eventually(const std::function<bool()>& condition, double limit_seconds = 60);

// Deletes a namespace and everything in it. Does the work of a namespace controller if the server
// has none.
void remove_namespace(const std::string& name);

}  // namespace lockstep::conformance
