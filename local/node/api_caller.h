#pragma once

#include <string>
#include <string_view>

#include "local/node/node_api.h"

namespace lockstep::local {

// The REST client that the local node's parts share. Logs every refused request except 404 and 409:
// there the object was deleted or changed meanwhile, and the next event reports that. Thread-safe.
class ApiCaller {
 public:
  // `api` outlives the caller.
  explicit ApiCaller(NodeApi& api) : api_(api) {}

  ApiResponse get(const std::string& target) { return call("GET", target, Json(), ""); }
  ApiResponse create(const std::string& target, const Json& object);
  // Sends a JSON merge patch.
  ApiResponse patch(const std::string& target, const Json& change);
  ApiResponse remove(const std::string& target, const Json& options);

 private:
  ApiResponse call(std::string_view method, const std::string& target, const Json& body,
                   std::string_view type);

  NodeApi& api_;
};

}  // namespace lockstep::local
