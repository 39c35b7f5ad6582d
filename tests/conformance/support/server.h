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

// The server that this run is about: asks it, and knows what it offers. What differs between
// versions is read from its documents, never from its name.
class Server {
 public:
  explicit Server(Target target);

  // JSON in and out, with our credentials. A server that can't be reached fails the case, with an
  // empty Reply.
  Reply ask(const std::string& method, const std::string& target, const Json& body = Json(),
            const std::string& content_type = "application/json") const;
  Reply send(Request request) const;
  // As it is given: no credentials, no content type.
  Reply send_bare(const Request& request) const;
  Result<std::unique_ptr<ReplyStream>> open(const std::string& target,
                                            const std::string& accept) const;

  const Target& target() const { return target_; }
  // Whether discovery lists the resource ("v1", "secrets"), or the subresource ("pods/eviction").
  bool serves(const std::string& group_version, const std::string& resource) const;
  // Whether something deletes what has lost its owner. Tried once.
  bool collects_garbage();
  // Whether something empties namespaces that are being deleted. Tried once.
  bool empties_namespaces();
  // The number after the dot of /version.
  int minor_version() const;

 private:
  Target target_;
  int collects_garbage_ = -1;  // not tried yet
  int empties_namespaces_ = -1;
};

// The one of this run; main sets it before the first case.
Server& server();
void set_server(std::unique_ptr<Server> server);

// Polls until the condition holds; false after `limit_seconds`, a guard against hangs.
bool eventually(const std::function<bool()>& condition, double limit_seconds = 60);

// Deletes a namespace with all that is in it; where the server has nobody for that, as a namespace
// controller would.
void remove_namespace(const std::string& name);

}  // namespace lockstep::conformance
