#pragma once

#include <optional>
#include <string_view>

#include "cli/local/store/request.h"
#include "cli/local/table/table.h"
#include "common/base/clock.h"

namespace lockstep::local {

// How a client wants objects shown: nullopt as they are, else as rows of a Table. The first kind of
// answer in `accept` that the server can give counts, JSON where there is none; `path` says by
// includeObject what a row carries. kInvalid: an includeObject that is not known.
// Source: Kubernetes, "API concepts: receiving resources as Tables".
Result<std::optional<TableRows>> wanted_table(std::string_view accept, const ApiPath& path);

// The Table of an object or a list, as the server would answer it.
Json table_of(const ResourceType& type, const Json& answer, TableRows rows, bool with_headers,
              WallTime now);

}  // namespace lockstep::local
