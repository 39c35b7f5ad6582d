#include "local/patch/json_size.h"
#include "local/patch/patch.h"

namespace lockstep::local {

PatchResult apply_merge_patch(const Json& object, const Json& patch, const PatchLimits& limits) {
  // The result must still be an object.
  if (!patch.is_object()) return PatchError{400, "Invalid JSON Patch"};
  Json result = object;
  result.merge_patch(patch);
  const JsonSize size = size_of(result);
  if (size.bytes > limits.bytes_max || size.depth > limits.depth_max) {
    return PatchError{413, "the patched object is larger than " + std::to_string(limits.bytes_max) +
                               " bytes or " + std::to_string(limits.depth_max) + " levels"};
  }
  return result;
}

}  // namespace lockstep::local
