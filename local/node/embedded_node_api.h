#pragma once

#include "local/node/node_api.h"
#include "local/store/api.h"

namespace lockstep::local {

// Calls the embedded server in this process, without a network. A feed that falls behind the
// server's history starts over with the current objects.
class EmbeddedNodeApi final : public NodeApi {
 public:
  // `api` outlives the object and its feeds.
  explicit EmbeddedNodeApi(Api& api) : api_(api) {}

  ApiResponse handle(const ApiRequest& request) override { return api_.handle(request); }
  std::unique_ptr<Feed> follow(const std::string& target, std::function<void()> on_news) override;

 private:
  Api& api_;
};

}  // namespace lockstep::local
