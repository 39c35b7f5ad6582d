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
  const auto pod = built_in_schema("v1", "Pod");
  CHECK(prune(*pod, object).empty());
  apply_defaults(*pod, object);
  (void)validate(*pod, object, 16);
}

void check_custom(const std::shared_ptr<const SchemaNode>& schema, Json object) {
  (void)prune(*schema, object);
  Json pruned = object;
  CHECK(prune(*schema, pruned).empty() && pruned == object);
  apply_defaults(*schema, object);
  Json defaulted = object;
  apply_defaults(*schema, defaulted);
  CHECK(defaulted == object);
  const size_t all = validate(*schema, object, 1000).size();
  CHECK(validate(*schema, object, 3).size() == std::min<size_t>(all, 3));
  const OpenApiResource resource = {
      .group = "a.b", .version = "v1", .plural = "things", .kind = "Thing", .schema = schema};
  const OpenApiDocuments documents = make_openapi_documents({&resource, 1});
  CHECK(!documents.v2_protobuf.empty() && parse_json(documents.v2_json).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Json> document = parse_json(fuzz_text(data, size));
  if (!document.ok()) return 0;
  const Json* object = find_member(*document, "object");
  const Json nothing;
  if (object == nullptr) object = &nothing;
  check_built_in(*object);
  const Json* text = find_member(*document, "schema");
  const auto schema = compile_schema(text == nullptr ? *document : *text);
  if (!schema.ok()) {
    CHECK(schema.error().code == Code::kInvalid && !schema.error().message.empty());
    return 0;
  }
  check_custom(*schema, *object);
  return 0;
}
