#include "agent/rpc/method.h"

#include "agent/rpc/wire.h"

namespace lockstep::rpc {

Method::Method(std::string_view method_name, Repeats method_repeats)
    : name(method_name), id(method_id(method_name)), repeats(method_repeats) {}

}  // namespace lockstep::rpc
