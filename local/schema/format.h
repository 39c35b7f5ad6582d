#pragma once

#include <string_view>

namespace lockstep::local {

// Whether the text has the `format` of a schema, as kube-apiserver checks it: byte, date,
// date-time, duration, ipv4, ipv6, cidr, mac, uuid, uri, email, hostname. A format that isn't among
// these is not checked, as an API server drops what it does not know.
bool has_format(std::string_view format, std::string_view text);

}  // namespace lockstep::local
