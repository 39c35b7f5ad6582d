#pragma once

#include <string_view>

namespace lockstep::local {

// Returns whether the text has the `format` of a schema. Checks these as kube-apiserver does: byte,
// date, date-time, duration, ipv4, ipv6, cidr, mac, uuid, uri, email, hostname. Accepts any text
// for other formats, which an API server ignores too.
bool has_format(std::string_view format, std::string_view text);

}  // namespace lockstep::local
