#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "local/store/resources.h"
#include "local/store/status_error.h"

namespace lockstep::local {

// One request as received.
struct ApiRequest {
  std::string method;        // GET, POST, PUT, PATCH, DELETE
  std::string target;        // path and query, percent-encoded
  std::string content_type;  // of the body
  std::string body;
  std::string accept = {};
  std::string user_agent = {};
};

// The parsed target of a request. Source: Kubernetes, "API concepts", resource URIs.
struct ApiPath {
  std::string path;                    // decoded, without the query
  const ResourceType* type = nullptr;  // null: not about objects (discovery), or unknown
  std::string namespace_;              // "": all of them, or a cluster-scoped object
  std::string name;                    // "": the collection
  std::string subresource;             // "", status, binding, ...
  std::map<std::string, std::string> query;

  std::string parameter(const std::string& key) const;
  bool flag(const std::string& key) const;  // accepts true and 1
  // kInvalid if the value is not a number >= 0; nullopt if it is absent or empty.
  Result<std::optional<int64_t>> number(const std::string& key) const;
};

// kInvalid: broken percent-encoding, or too long.
Result<ApiPath> parse_target(const TypeRegistry& types, std::string_view target);

}  // namespace lockstep::local
