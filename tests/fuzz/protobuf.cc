// Bodies in Kubernetes' protobuf: a parsed body is an object with a kind, in bounded JSON.
#include "local/protobuf/protobuf.h"

#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using namespace lockstep::local;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Json> object = local::json_from_protobuf(fuzz::fuzz_text(data, size));
  if (!object.ok()) {
    CHECK(object.error().code == Code::kInvalid && !object.error().message.empty());
    return 0;
  }
  CHECK(object->is_object() && !string_or(*object, "kind", "").empty());
  const std::string text = dump_json(*object);
  // Base64 is the longest form of a byte, except for the names of the fields.
  CHECK(text.size() <= 100 + 64 * size);
  const Result<Json> again = parse_json(text);
  CHECK(again.ok() && *again == *object);
  return 0;
}
