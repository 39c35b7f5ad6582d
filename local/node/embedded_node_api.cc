#include "local/node/embedded_node_api.h"

#include <utility>

namespace lockstep::local {
namespace {

Watch open_watch(Api& api, const std::string& target) {
  return std::get<Watch>(api.open_watch({"GET", target + "?watch=true", "", ""}));
}

class EmbeddedFeed final : public Feed {
 public:
  EmbeddedFeed(Api& api, std::string target)
      : api_(api), target_(std::move(target)), watch_(open_watch(api_, target_)) {}

  std::vector<Json> next_events(size_t count_max) override {
    while (true) {
      std::vector<Json> events = api_.next_events(watch_, count_max);
      std::erase_if(events, [](const Json& event) { return event["type"] == "ERROR"; });
      // Too far behind: start over with the current objects.
      if (watch_.ended)
        watch_ = open_watch(api_, target_);
      else if (events.empty())
        return events;
      if (!events.empty()) return events;
    }
  }

 private:
  Api& api_;
  const std::string target_;
  Watch watch_;
};

}  // namespace

std::unique_ptr<Feed> EmbeddedNodeApi::follow(const std::string& target,
                                              std::function<void()> on_news) {
  auto feed = std::make_unique<EmbeddedFeed>(api_, target);
  api_.on_change(std::move(on_news));
  return feed;
}

}  // namespace lockstep::local
