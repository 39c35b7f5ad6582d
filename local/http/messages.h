#pragma once

#include <string_view>

#include "common/http/message.h"
#include "local/store/request.h"
#include "local/store/status_error.h"

namespace lockstep::local {

// Converts between HTTP messages of the embedded server and messages of Api.

ApiRequest to_api_request(http::Request request);
http::Response to_http_response(ApiResponse answer);
// Returns a 200 response with this type. The caller adds the body or the stream.
http::Response make_response(std::string_view type);
// True for /healthz, /livez and /readyz, which need no token.
bool is_health_path(std::string_view target);

}  // namespace lockstep::local
