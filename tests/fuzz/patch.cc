// An object and a patch, one per line. Applies the patch as each of the three kinds.
#include "local/patch/patch.h"

#include "common/base/check.h"
#include "local/patch/json_size.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using namespace lockstep::local;

namespace {

constexpr local::PatchLimits kLimits{.operations_max = 200, .bytes_max = 10'000};

const Json* check(const local::PatchResult& result) {
  if (const auto* error = std::get_if<local::PatchError>(&result)) {
    CHECK(error->code == 400 || error->code == 413 || error->code == 422);
    CHECK(!error->message.empty());
    return nullptr;
  }
  const Json& patched = std::get<Json>(result);
  const local::JsonSize size = local::size_of(patched);
  CHECK(size.bytes <= kLimits.bytes_max && size.depth <= kLimits.depth_max);
  const std::string text = dump_json(patched);
  CHECK(text.size() <= size.bytes);
  const Result<Json> again = parse_json(text);
  CHECK(again.ok() && *again == patched);
  return &patched;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::fuzz_text(data, size);
  const size_t line = text.find('\n');
  if (line == std::string_view::npos) return 0;
  const Result<Json> object = parse_json(text.substr(0, line));
  const Result<Json> patch = parse_json(text.substr(line + 1));
  if (!object.ok() || !object->is_object() || !patch.ok()) return 0;
  static const auto kPod = local::built_in_schema("v1", "Pod");

  check(local::apply_json_patch(*object, *patch, kLimits));
  if (const local::PatchResult merged = local::apply_merge_patch(*object, *patch, kLimits);
      const Json* result = check(merged)) {
    const local::PatchResult again = local::apply_merge_patch(*result, *patch, kLimits);
    CHECK(std::get<Json>(again) == *result);
  }
  if (const local::PatchResult merged =
          local::apply_strategic_patch(*kPod, *object, *patch, kLimits);
      const Json* result = check(merged)) {
    CHECK(result->is_object());
  }
  return 0;
}
