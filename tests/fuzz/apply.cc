// Writes to an object, one per line: the kind (a: apply, f: forced apply, u: update, m: merge
// patch), the writer (a letter), and the object as JSON. After each write no absent field has an
// owner, and an apply that succeeded still holds.
#include "common/base/check.h"
#include "local/patch/field_managers.h"
#include "local/patch/field_set.h"
#include "local/patch/field_walk.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using namespace lockstep::local;

namespace {

constexpr const char* kSchema = R"({"type": "object", "properties": {"spec": {"type": "object",
  "properties": {
    "a": {"type": "string"},
    "o": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}},
    "m": {"type": "object", "additionalProperties": {"type": "string"}},
    "f": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    "t": {"type": "object", "x-kubernetes-map-type": "atomic", "x-kubernetes-preserve-unknown-fields": true},
    "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "l": {"type": "array", "items": {"type": "string"}},
    "k": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n", "p"],
      "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"},
        "p": {"type": "string", "default": "q"}, "v": {"type": "integer"}}}}}}}})";

std::shared_ptr<const local::SchemaNode> schema() {
  static const auto kCompiled = [] {
    const Result<Json> text = parse_json(kSchema);
    CHECK(text.ok());
    const auto compiled = local::compile_schema(*text);
    CHECK(compiled.ok());
    return *compiled;
  }();
  return kCompiled;
}

void check_owners(const Json& object) {
  const Json* metadata = find_member(object, "metadata");
  const Json* entries = metadata == nullptr ? nullptr : find_member(*metadata, "managedFields");
  if (entries == nullptr) return;
  const local::Shape shape = local::Shape::of_object(*schema());
  const Json existing = local::compare_fields(shape, Json::object(), object).added;
  size_t updates = 0;
  for (const Json& entry : *entries) {
    CHECK(local::read_field_set(entry["fieldsV1"]).ok());
    Json missing = entry["fieldsV1"];
    CHECK(!missing.empty());
    local::subtract(missing, existing);
    CHECK(missing.empty());
    if (entry["operation"] == "Update") ++updates;
  }
  CHECK(updates <= 10);
}

class Writes {
 public:
  void line(std::string_view text) {
    if (text.size() < 3) return;
    Result<Json> given = parse_json(text.substr(2));
    if (!given.ok() || !given->is_object()) return;
    const local::FieldWriter by{std::string(text.substr(1, 1)), "x.dev/v1", "",
                                WallTime(std::chrono::seconds(1'600'000'000 + ++count_))};
    if (text[0] == 'a' || text[0] == 'f') {
      apply(*std::move(given), by, text[0] == 'f');
    } else {
      update(*given, by, text[0] == 'm');
    }
    if (!object_.is_null()) check_owners(object_);
  }

 private:
  const Json* live() const { return object_.is_null() ? nullptr : &object_; }

  void apply(Json intent, const local::FieldWriter& by, bool force) {
    intent["apiVersion"] = by.api_version;
    local::ApplyResult result = local::apply_intent(*schema(), live(), intent, by, force);
    if (auto* conflicts = std::get_if<std::vector<local::ApplyConflict>>(&result)) {
      CHECK(!force && !conflicts->empty() && !local::conflict_message(*conflicts).empty());
      return;
    }
    if (auto* error = std::get_if<local::PatchError>(&result)) {
      CHECK(!error->message.empty());
      return;
    }
    object_ = std::get<Json>(std::move(result));
    // An intent with only empty lists owns nothing, so for the next writer the object has no owner.
    const Json* metadata = find_member(object_, "metadata");
    if (metadata == nullptr || find_member(*metadata, "managedFields") == nullptr) return;
    const local::ApplyResult again = local::apply_intent(*schema(), &object_, intent, by, false);
    CHECK(std::get<Json>(again) == object_);
  }

  void update(const Json& given, const local::FieldWriter& by, bool merge) {
    Json next = given;
    if (merge && live() != nullptr) {
      local::PatchResult patched = local::apply_merge_patch(object_, given);
      if (std::holds_alternative<local::PatchError>(patched)) return;
      next = std::get<Json>(std::move(patched));
    }
    // Drop managedFields: a client may name owners of fields that don't exist.
    if (find_member(next, "metadata") != nullptr && next["metadata"].is_object())
      next["metadata"].erase("managedFields");
    local::record_update(*schema(), live(), next, by);
    object_ = std::move(next);
  }

  Json object_;
  int count_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = fuzz::fuzz_text(data, size);
  Writes writes;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    writes.line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return 0;
}
