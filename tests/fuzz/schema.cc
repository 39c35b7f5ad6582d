// A CRD's schema and an object, as one JSON text {"schema": ..., "object": ...}. Compiles the
// schema; prunes, defaults and validates the object; describes both in OpenAPI. Pruning and
// defaulting again changes nothing, and a pruned object has no unknown fields.
#include <string_view>

#include "common/base/check.h"
#include "local/schema/openapi.h"
#include "local/schema/schema.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using namespace lockstep::local;

namespace {

void check_built_in(Json object) {
  const auto pod = local::built_in_schema("v1", "Pod");
  CHECK(local::prune(*pod, object).empty());
  local::apply_defaults(*pod, object);
  (void)local::validate(*pod, object, 16);
}

void check_custom(const std::shared_ptr<const local::SchemaNode>& schema, Json object) {
  (void)local::prune(*schema, object);
  Json pruned = object;
  CHECK(local::prune(*schema, pruned).empty() && pruned == object);
  local::apply_defaults(*schema, object);
  Json defaulted = object;
  local::apply_defaults(*schema, defaulted);
  CHECK(defaulted == object);
  const size_t all = local::validate(*schema, object, 1000).size();
  CHECK(local::validate(*schema, object, 3).size() == std::min<size_t>(all, 3));
  const local::OpenApiResource resource = {
      .group = "a.b", .version = "v1", .plural = "things", .kind = "Thing", .schema = schema};
  const local::OpenApiDocuments documents = local::make_openapi_documents({&resource, 1});
  CHECK(!documents.v2_protobuf.empty() && parse_json(documents.v2_json).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Json> document = parse_json(fuzz::fuzz_text(data, size));
  if (!document.ok()) return 0;
  const Json* object = find_member(*document, "object");
  const Json nothing;
  if (object == nullptr) object = &nothing;
  check_built_in(*object);
  const Json* text = find_member(*document, "schema");
  const auto schema = local::compile_schema(text == nullptr ? *document : *text);
  if (!schema.ok()) {
    CHECK(schema.error().code == Code::kInvalid && !schema.error().message.empty());
    return 0;
  }
  check_custom(*schema, *object);
  return 0;
}
