#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "local/schema/openapi.h"
#include "local/store/resources.h"
#include "local/store/status_error.h"

namespace lockstep::local {

// Answers to GET /openapi/v2 and below /openapi/v3. The documents are made when they are first
// asked for, and again after the types have changed. Not thread-safe.
class OpenApiView {
 public:
  // nullopt: there is no such document. `types` is the same at every call.
  std::optional<ApiResponse> answer(const TypeRegistry& types, std::string_view path,
                                    std::string_view accept);

 private:
  std::optional<uint64_t> revision_;  // of the types that the documents are about
  OpenApiDocuments documents_;
};

}  // namespace lockstep::local
