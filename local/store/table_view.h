#pragma once

#include <optional>
#include <string_view>

#include "common/base/clock.h"
#include "local/store/request.h"
#include "local/table/table.h"

namespace lockstep::local {

// How a client wants objects shown.
struct View {
  enum class Form { kWhole, kTable, kMetadata };
  Form form = Form::kWhole;
  TableRows rows = TableRows::kMetadata;  // of a Table
};

// The first kind of answer in `accept` that the server can give, whole objects where there is none;
// `path` says by includeObject what a row carries. kInvalid: an includeObject that is not known.
// Source: Kubernetes, "API concepts: receiving resources as Tables", "metadata-only fetches".
Result<View> wanted_view(std::string_view accept, const ApiPath& path);

// Whether one of the kinds of answer in `accept` can be given; an empty one takes any.
bool is_acceptable(std::string_view accept);

// An object or a list of `type`, in that form. `with_headers`: a Table says its columns.
Json in_view(const ResourceType& type, Json answer, const View& view, bool with_headers,
             WallTime now);

}  // namespace lockstep::local
