#include "local/node/api_caller.h"

#include "common/base/log.h"

namespace lockstep::local {

ApiResponse ApiCaller::create(const std::string& target, const Json& object) {
  return call("POST", target, object, "application/json");
}

ApiResponse ApiCaller::patch(const std::string& target, const Json& change) {
  return call("PATCH", target, change, "application/merge-patch+json");
}

ApiResponse ApiCaller::remove(const std::string& target, const Json& options) {
  return call("DELETE", target, options, "application/json");
}

ApiResponse ApiCaller::call(std::string_view method, const std::string& target, const Json& body,
                            std::string_view type) {
  ApiResponse response = api_.handle({std::string(method), target, std::string(type),
                                      body.is_null() ? std::string() : dump_json(body)});
  if (!response.ok() && response.code != 404 && response.code != 409)
    log_warning("the API server rejected a request of the local node",
                {{"request", std::string(method) + " " + target},
                 {"code", response.code},
                 {"error", string_or(response.body, "message", "")}});
  return response;
}

}  // namespace lockstep::local
