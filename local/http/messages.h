#pragma once

#include <utility>  // Boost 1.74's awaitable.hpp needs it and does not include it

#include <boost/beast/http.hpp>
#include <string>
#include <string_view>

#include "local/store/request.h"
#include "local/store/status_error.h"

namespace lockstep::local {

// Converts between HTTP messages of the embedded server and messages of Api.

using HttpParser = boost::beast::http::request_parser<boost::beast::http::string_body>;
using HttpResponse = boost::beast::http::response<boost::beast::http::string_body>;
using HttpHead = boost::beast::http::response<boost::beast::http::empty_body>;

HttpResponse make_response(int code, std::string body, std::string_view type, bool keep_alive);
HttpResponse make_response(ApiResponse answer, bool keep_alive);
// Returns the head of a 200 response whose body follows in chunks.
HttpHead make_stream_head(std::string_view type);

ApiRequest to_api_request(const HttpParser& parser);
std::string target_of(const HttpParser& parser);
// True for /healthz, /livez and /readyz, which need no token.
bool is_health_path(std::string_view target);
bool is_authorized(const HttpParser& parser, const std::string& token);

}  // namespace lockstep::local
