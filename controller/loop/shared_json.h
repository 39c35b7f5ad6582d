#pragma once

#include <memory>
#include <utility>

#include "common/base/json.h"

namespace lockstep::loop {

// An immutable document whose copies share its memory. An object comes with an answer or an event,
// stays in a cache and goes out with a plan without being copied. Always holds a document,
// initially null. Any number of threads may read it.
class SharedJson {
 public:
  SharedJson() : json_(nothing()) {}
  SharedJson(Json json) : json_(std::make_shared<const Json>(std::move(json))) {}
  SharedJson(Json::initializer_list_t members) : SharedJson(Json(members)) {}
  // `json` must not be nullptr.
  SharedJson(std::shared_ptr<const Json> json) : json_(std::move(json)) {}

  operator const Json&() const { return *json_; }
  const Json& operator*() const { return *json_; }
  const Json* operator->() const { return json_.get(); }

 private:
  static const std::shared_ptr<const Json>& nothing() {
    static const auto null = std::make_shared<const Json>();
    return null;
  }

  std::shared_ptr<const Json> json_;
};

}  // namespace lockstep::loop
