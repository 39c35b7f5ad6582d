#pragma once

#include <optional>
#include <string_view>

#include "common/base/clock.h"
#include "local/store/request.h"
#include "local/table/table.h"

namespace lockstep::local {

// The form in which a client wants objects.
struct View {
  enum class Form { kWhole, kTable, kMetadata };
  Form form = Form::kWhole;
  TableRows rows = TableRows::kMetadata;  // for a Table
};

// Returns the first form in `accept` that the server supports, or whole objects if there is none.
// The includeObject of `path` says what the rows of a Table carry. kInvalid: an unknown
// includeObject.
// Source: Kubernetes, "API concepts: receiving resources as Tables", "metadata-only fetches".
Result<View> wanted_view(std::string_view accept, const ApiPath& path);

// Returns whether the server supports a form in `accept`; an empty `accept` allows any.
bool is_acceptable(std::string_view accept);

// Converts an object or a list of `type` to that form. `with_headers`: a Table includes its
// columns.
Json in_view(const ResourceType& type, Json answer, const View& view, bool with_headers,
             WallTime now);

}  // namespace lockstep::local
