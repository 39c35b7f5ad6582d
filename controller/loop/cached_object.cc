#include "controller/loop/cached_object.h"

#include <utility>

#include "common/base/check.h"

namespace lockstep::loop {

std::string metadata_text(const Json& object, std::string_view key) {
  const Json* metadata = find_member(object, "metadata");
  return metadata == nullptr ? "" : string_or(*metadata, key, "");
}

CachedObject::CachedObject(const SharedJson& object, bool packs)
    : uid_(metadata_text(object, "uid")), version_(metadata_text(object, "resourceVersion")) {
  if (packs) {
    std::string text = dump_json(object);
    text.shrink_to_fit();
    text_ = std::make_shared<const std::string>(std::move(text));
  } else {
    json_ = object;
  }
}

SharedJson CachedObject::json() const {
  if (text_ == nullptr) return json_;
  Json object = Json::parse(*text_, nullptr, /*allow_exceptions=*/false);
  CHECK(!object.is_discarded());
  return SharedJson(std::move(object));
}

}  // namespace lockstep::loop
