#include "local/node/event_recorder.h"

#include <algorithm>
#include <cstdio>

namespace lockstep::local {
namespace {

constexpr size_t kMessageBytesMax = 1024;  // kube-apiserver's limit

template <class Map>
void forget_oldest(Map& map, std::list<std::string>& order, size_t count_max) {
  while (order.size() > count_max) {
    map.erase(order.front());
    order.pop_front();
  }
}

}  // namespace

bool EventRecorder::take_token(const std::string& uid) {
  auto [at, is_new] = buckets_.try_emplace(uid);
  Bucket& bucket = at->second;
  TimePoint now = clock_.now();
  if (is_new) {
    bucket = {static_cast<double>(options_.burst), now,
              bucket_order_.insert(bucket_order_.end(), uid)};
  }
  bucket.tokens += to_seconds(now - bucket.filled) / to_seconds(options_.refill);
  bucket.tokens = std::min(bucket.tokens, static_cast<double>(options_.burst));
  bucket.filled = now;
  bool may = bucket.tokens >= 1;
  if (may) bucket.tokens -= 1;
  forget_oldest(buckets_, bucket_order_, options_.remembered_max);
  return may;
}

void EventRecorder::forget(const std::string& uid) {
  if (auto bucket = buckets_.find(uid); bucket != buckets_.end()) {
    bucket_order_.erase(bucket->second.place);
    buckets_.erase(bucket);
  }
  const std::string beginning = uid + "\n";
  auto at = series_.lower_bound(beginning);
  while (at != series_.end() && at->first.starts_with(beginning)) {
    series_order_.erase(at->second.place);
    at = series_.erase(at);
  }
}

void EventRecorder::record(const Source& source, const About& about, const char* type,
                           std::string_view reason, const std::string& message) {
  if (!take_token(about.uid)) return;
  std::string text = message.substr(0, kMessageBytesMax);
  std::string key = about.uid + "\n" + about.field_path + "\n" + std::string(reason) + "\n" + type +
                    "\n" + source.component + "\n" + text;
  auto found = series_.find(key);
  if (found != series_.end()) {
    Json change = {{"count", ++found->second.count}, {"lastTimestamp", rfc3339(clock_.wall_now())}};
    if (api_.patch(found->second.target, change).ok()) return;
  }
  create(source, about, type, reason, text, key);
}

void EventRecorder::create(const Source& source, const About& about, const char* type,
                           std::string_view reason, const std::string& message,
                           const std::string& key) {
  std::string namespace_ = about.namespace_.empty() ? "default" : about.namespace_;
  std::string events = "/api/v1/namespaces/" + namespace_ + "/events";
  char suffix[40];
  std::snprintf(suffix, sizeof suffix, ".%08x%08llx", static_cast<unsigned>(seed_),
                static_cast<unsigned long long>(++written_));
  std::string name = about.name + suffix;
  std::string now = rfc3339(clock_.wall_now());
  Json involved = {
      {"kind", about.kind}, {"name", about.name}, {"uid", about.uid}, {"apiVersion", "v1"}};
  if (!about.namespace_.empty()) involved["namespace"] = about.namespace_;
  if (!about.field_path.empty()) involved["fieldPath"] = about.field_path;
  Json from = {{"component", source.component}};
  if (!source.host.empty()) from["host"] = source.host;
  ApiResponse made = api_.create(events, {{"metadata", {{"name", name}}},
                                          {"involvedObject", std::move(involved)},
                                          {"reason", reason},
                                          {"message", message},
                                          {"type", type},
                                          {"source", std::move(from)},
                                          {"reportingComponent", source.component},
                                          {"reportingInstance", source.host},
                                          {"count", 1},
                                          {"firstTimestamp", now},
                                          {"lastTimestamp", now}});
  if (!made.ok()) return;
  auto [at, is_new] = series_.try_emplace(key);
  if (is_new) at->second.place = series_order_.insert(series_order_.end(), key);
  at->second.target = events + "/" + name;
  at->second.count = 1;
  forget_oldest(series_, series_order_, options_.remembered_max);
}

}  // namespace lockstep::local
