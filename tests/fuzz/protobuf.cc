// Bodies in Kubernetes' protobuf: what is read is an object with its kind, in bounded JSON.
#include "local/protobuf/protobuf.h"

#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using namespace lockstep::local;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Json> object = json_from_protobuf(fuzz_text(data, size));
  if (!object.ok()) {
    CHECK(object.error().code == Code::kInvalid && !object.error().message.empty());
    return 0;
  }
  CHECK(object->is_object() && !string_or(*object, "kind", "").empty());
  const std::string text = dump_json(*object);
  // Base64 is the longest that a byte becomes, but for names of the fields themselves.
  CHECK(text.size() <= 100 + 64 * size);
  const Result<Json> again = parse_json(text);
  CHECK(again.ok() && *again == *object);
  return 0;
}
