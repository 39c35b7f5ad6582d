#pragma once

#include "local/node/node_api.h"
#include "tests/conformance/support/server.h"

namespace lockstep::integration {

// Any API server, over HTTP: the local node acts as its kubelet, scheduler and node controller. A
// feed lists, watches from the list's version, and lists again if the watch breaks; objects that
// vanished meanwhile are reported as DELETED.
class RemoteNodeApi final : public local::NodeApi {
 public:
  // `server` outlives the object and its feeds.
  explicit RemoteNodeApi(const conformance::Server& server) : server_(server) {}

  local::ApiResponse handle(const local::ApiRequest& request) override;
  std::unique_ptr<local::Feed> follow(const std::string& target,
                                      std::function<void()> on_news) override;

 private:
  const conformance::Server& server_;
};

}  // namespace lockstep::integration
