#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "local/schema/openapi.h"
#include "local/store/resources.h"
#include "local/store/status_error.h"

namespace lockstep::local {

// Answers GET /openapi/v2 and paths below /openapi/v3. Makes the documents on the first request,
// and again after the types have changed. Not thread-safe.
class OpenApiView {
 public:
  // Returns nullopt if there is no such document. `types` must be the same in every call.
  std::optional<ApiResponse> answer(const TypeRegistry& types, std::string_view path,
                                    std::string_view accept);

 private:
  std::optional<uint64_t> revision_;  // of the types in the documents
  OpenApiDocuments documents_;
};

}  // namespace lockstep::local
