#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "controller/loop/shared_json.h"

namespace lockstep::loop {

// Returns a text of the object's metadata; empty if it has none of that name.
std::string metadata_text(const Json& object, std::string_view key);

// An immutable object in a cache, with what is asked of it most often. Copies share its memory.
// Holds it as text if it `packs`: that takes a sixth of a document's memory, and some 20 us to
// parse.
class CachedObject {
 public:
  CachedObject() = default;  // of a null document
  CachedObject(const SharedJson& object, bool packs);

  const std::string& uid() const { return uid_; }
  const std::string& version() const { return version_; }  // resourceVersion
  // Returns the object. If it is not packed, the document lives as long as the cache holds it.
  SharedJson json() const;

 private:
  std::string uid_;
  std::string version_;
  std::shared_ptr<const std::string> text_;  // if packed
  SharedJson json_;                          // if not
};

}  // namespace lockstep::loop
