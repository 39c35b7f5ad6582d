#pragma once

#include <memory>
#include <utility>

#include "common/base/json.h"

namespace lockstep {

// A document that nobody changes any more, so that copies of it share the memory: an object comes
// with an answer or an event, stays in a cache and goes out with a plan without being copied. Never
// without a document: at first it is null's. May be read by any number of threads.
class SharedJson {
 public:
  SharedJson() : json_(nothing()) {}
  SharedJson(Json json) : json_(std::make_shared<const Json>(std::move(json))) {}
  SharedJson(Json::initializer_list_t members) : SharedJson(Json(members)) {}
  // Not nullptr.
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

}  // namespace lockstep
