#pragma once

#include <string>
#include <string_view>

#include "local/node/node_api.h"

namespace lockstep::local {

// The parts of the local node as a client of the server: what they say is said by REST. What is
// refused is logged, but for 404 and 409: the object was deleted or written meanwhile, and the next
// event says so. Thread-safe.
class ApiCaller {
 public:
  // `api` outlives the caller.
  explicit ApiCaller(NodeApi& api) : api_(api) {}

  ApiResponse get(const std::string& target) { return call("GET", target, Json(), ""); }
  ApiResponse create(const std::string& target, const Json& object);
  // A merge patch.
  ApiResponse patch(const std::string& target, const Json& change);
  ApiResponse remove(const std::string& target, const Json& options);

 private:
  ApiResponse call(std::string_view method, const std::string& target, const Json& body,
                   std::string_view type);

  NodeApi& api_;
};

}  // namespace lockstep::local
