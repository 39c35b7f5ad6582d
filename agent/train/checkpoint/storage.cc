#include "agent/train/checkpoint/storage.h"

namespace lockstep::train {

Result<std::string> read_object(Storage& storage, const std::string& name, size_t bytes_max) {
  TRY_ASSIGN(const std::unique_ptr<ObjectReader> object, storage.open(name));
  TRY_ASSIGN(const uint64_t bytes, object->size());
  if (bytes > bytes_max) {
    return corrupt("[storage] " + storage.describe(name) + " has " + std::to_string(bytes) +
                       " bytes, at most " + std::to_string(bytes_max) + " are read",
                   Blame::kStorage);
  }
  std::string text(bytes, '\0');
  TRY(object->read_at(0, text));
  return text;
}

}  // namespace lockstep::train
