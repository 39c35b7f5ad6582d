#include "tests/integration/remote_node_api.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "common/base/log.h"

namespace lockstep::integration {
namespace {

// Short, so that ending a feed does not take long.
constexpr char kWatchSeconds[] = "1";
constexpr auto kRetry = std::chrono::milliseconds(100);

const Json& metadata_of(const Json& object) {
  static const Json nothing = Json::object();
  const Json* metadata = find_member(object, "metadata");
  return metadata == nullptr ? nothing : *metadata;
}

class RemoteFeed final : public local::Feed {
 public:
  RemoteFeed(const conformance::Server& server, std::string target, std::function<void()> on_news)
      : server_(server), target_(std::move(target)), on_news_(std::move(on_news)) {
    thread_ = std::thread([this] { follow(); });
  }
  ~RemoteFeed() override {
    stopping_ = true;
    thread_.join();
  }

  std::vector<Json> next_events(size_t count_max) override {
    std::lock_guard lock(mutex_);
    std::vector<Json> events;
    while (!events_.empty() && events.size() < count_max) {
      events.push_back(std::move(events_.front()));
      events_.pop_front();
    }
    return events;
  }

 private:
  void follow() {
    while (!stopping_) {
      if (list()) {
        while (!stopping_ && watch()) {
        }
      }
      if (!stopping_) std::this_thread::sleep_for(kRetry);
    }
  }

  // Reports all objects that exist now, and those that no longer exist.
  bool list() {
    const Json all = server_.ask("GET", target_).body;
    if (!all.is_object() || !all.contains("items")) return false;
    std::map<std::string, Json> before = std::exchange(known_, {});
    for (const Json& item : all["items"]) {
      before.erase(string_or(metadata_of(item), "uid", ""));
      tell("ADDED", item);
    }
    for (const auto& [uid, object] : before) tell("DELETED", object);
    version_ = string_or(metadata_of(all), "resourceVersion", "");
    return true;
  }

  // Watches until the server ends the watch. Returns false if the list must be read again.
  bool watch() {
    auto stream =
        server_.open(target_ + "?watch=1&allowWatchBookmarks=true&resourceVersion=" + version_ +
                         "&timeoutSeconds=" + kWatchSeconds,
                     "application/json");
    if (!stream.ok() || (*stream)->code() != 200) return false;
    while (true) {
      const Result<std::optional<std::string>> line = (*stream)->read_line();
      if (!line.ok()) return false;
      if (!*line) return true;
      const Result<Json> event = parse_json(**line);
      if (!event.ok() || string_or(*event, "type", "ERROR") == "ERROR") return false;
      const Json& object = (*event)["object"];
      version_ = string_or(metadata_of(object), "resourceVersion", version_);
      if ((*event)["type"] != "BOOKMARK") tell((*event)["type"], object);
    }
  }

  void tell(const std::string& type, const Json& object) {
    const std::string uid = string_or(metadata_of(object), "uid", "");
    if (type == "DELETED")
      known_.erase(uid);
    else
      known_[uid] = object;
    {
      std::lock_guard lock(mutex_);
      events_.push_back({{"type", type}, {"object", object}});
    }
    on_news_();
  }

  const conformance::Server& server_;
  const std::string target_;
  const std::function<void()> on_news_;
  std::map<std::string, Json> known_;  // by UID; like version_, used by the thread only
  std::string version_;
  std::mutex mutex_;
  std::deque<Json> events_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace

local::ApiResponse RemoteNodeApi::handle(const local::ApiRequest& request) {
  conformance::Request http{.method = request.method, .target = request.target};
  if (!request.body.empty()) http.headers["Content-Type"] = request.content_type;
  http.body = request.body;
  conformance::Reply reply = server_.send(std::move(http));
  return {.code = reply.code == 0 ? 503 : reply.code, .body = std::move(reply.body)};
}

std::unique_ptr<local::Feed> RemoteNodeApi::follow(const std::string& target,
                                                   std::function<void()> on_news) {
  return std::make_unique<RemoteFeed>(server_, target, std::move(on_news));
}

}  // namespace lockstep::integration
