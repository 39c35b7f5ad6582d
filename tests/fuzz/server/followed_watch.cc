#include "tests/fuzz/server/followed_watch.h"

#include <algorithm>
#include <cctype>

#include "common/base/check.h"

namespace lockstep::fuzz {
namespace {

bool is_plain(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalpha(c); });
}

// Returns the target with its selectors as the only options; "" if an option's name would have to
// be decoded.
std::string selected(const std::string& target) {
  const size_t end = std::min(target.find('?'), target.size());
  std::string text = target.substr(0, end) + "?";
  for (size_t from = end + 1; from < target.size();) {
    const size_t to = std::min(target.find('&', from), target.size());
    const std::string option = target.substr(from, to - from);
    const std::string name = option.substr(0, option.find('='));
    if (!is_plain(name)) return "";
    if (name == "labelSelector" || name == "fieldSelector") text += option + "&";
    from = to + 1;
  }
  return text;
}

}  // namespace

FollowedWatch::FollowedWatch(local::Api& api, local::Watch watch, const std::string& target)
    : api_(api),
      watch_(std::move(watch)),
      list_target_(selected(target)),
      begin_(watch_.initial.empty() ? watch_.position : 0),
      newest_(watch_.initial.empty() ? watch_.position : 0) {}

void FollowedWatch::read(size_t count_max) {
  if (watch_.ended) return;
  for (const Json& event : api_.next_events(watch_, count_max)) take(event);
  CHECK(api_.bookmark(watch_)["type"] == "BOOKMARK");
}

void FollowedWatch::take(const Json& event) {
  const std::string type = event["type"];
  const Json& object = event["object"];
  if (type == "ERROR") {
    CHECK(object["code"] == 410 && object["reason"] == "Expired" && watch_.ended);
    return;
  }
  if (watch_.view.form == local::View::Form::kTable || type == "BOOKMARK") return;
  const int64_t version = local::version_of(object);
  const Json& metadata = local::metadata_of(object);
  const Key key = {string_or(metadata, "namespace", ""), string_or(metadata, "name", "")};
  const auto known = versions_.find(key);
  const bool was_there = known != versions_.end() && known->second != kGone;
  const bool unknown = known == versions_.end() && begin_ > 0;
  if (type == "ADDED") {
    CHECK(!was_there);
  } else {
    CHECK(type == "MODIFIED" || type == "DELETED");
    CHECK(was_there || unknown);
    CHECK(version > newest_);
  }
  versions_[key] = type == "DELETED" ? kGone : version;
  newest_ = std::max(newest_, version);
}

void FollowedWatch::finish() {
  for (int times = 0; times < 10; ++times) read(1000);
  if (!watch_.ended && watch_.view.form != local::View::Form::kTable && !list_target_.empty())
    compare();
}

void FollowedWatch::compare() {
  const local::ApiResponse list = api_.handle({"GET", list_target_, "", ""});
  if (!list.ok()) return;
  std::map<Key, int64_t> left = versions_;
  std::erase_if(left, [](const auto& entry) { return entry.second == kGone; });
  for (const Json& item : list.body["items"]) {
    const Json& metadata = local::metadata_of(item);
    const auto found =
        left.find({string_or(metadata, "namespace", ""), string_or(metadata, "name", "")});
    const int64_t version = local::version_of(item);
    CHECK(found != left.end() ? found->second == version : version <= begin_);
    if (found != left.end()) left.erase(found);
  }
  CHECK(left.empty());
}

}  // namespace lockstep::fuzz
