#pragma once

#include <string>
#include <string_view>

#include "common/http/message.h"

namespace lockstep::http {

// Returns whether the request carries `Authorization: Bearer <token>`. Its time reveals nothing
// about the token, not even the length.
bool has_bearer_token(const Head& head, std::string_view token);

}  // namespace lockstep::http
