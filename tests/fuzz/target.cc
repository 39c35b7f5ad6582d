// An Accept header and a request's target, one per line: what the target names, and which document
// of discovery or OpenAPI it is, if any.
#include "common/base/check.h"
#include "local/store/crd.h"
#include "local/store/discovery.h"
#include "local/store/openapi_view.h"
#include "local/store/request.h"
#include "local/store/table_view.h"
#include "local/store/training_job_crd.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using namespace lockstep::local;

namespace {

local::TypeRegistry& types() {
  static local::TypeRegistry registry;
  if (registry.custom_count() == 0) {
    auto defined = local::types_of_crd(local::training_job_crd());
    CHECK(defined.ok());
    registry.define("trainingjobs.lockstep.dev", *std::move(defined),
                    [](const local::ResourceType&) {});
  }
  return registry;
}

void check_documents(const std::string& path, std::string_view accept) {
  static local::OpenApiView view;
  if (const auto answer = view.answer(types(), path, accept))
    CHECK(answer->code == 200 && !answer->raw.empty() && !answer->raw_type.empty());
  if (const auto document = local::discovery_document(types(), path)) CHECK(document->is_object());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::fuzz_text(data, size);
  const size_t line = std::min(text.find('\n'), text.size());
  const std::string_view accept = text.substr(0, line);
  const Result<local::ApiPath> path =
      local::parse_target(types(), text.substr(std::min(line + 1, size)));
  if (!path.ok()) {
    CHECK(path.error().code == Code::kInvalid);
    return 0;
  }
  CHECK(path->path.starts_with('/') && path->path.size() <= size + 1);
  if (path->type != nullptr) {
    CHECK(path->type->served);
    CHECK(path->type->namespaced || path->namespace_.empty());
    CHECK(path->name.empty() || !path->type->namespaced || !path->namespace_.empty());
    CHECK(path->subresource.empty() || !path->name.empty());
  }
  for (const auto& [key, value] : path->query) {
    if (const auto number = path->number(key); number.ok() && *number) CHECK(**number >= 0);
    (void)path->flag(key);
  }
  (void)local::wanted_view(accept, *path).ok();
  (void)local::is_acceptable(accept);
  check_documents(path->path, accept);
  return 0;
}
