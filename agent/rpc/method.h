#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::rpc {

// Whether a method may be executed more than once for one call. A call is repeated when its
// connection is lost before the reply is there.
enum class Repeats {
  kNever,    // at most once: the server remembers what it has executed, and small replies
  kAllowed,  // reads: executed again; replies may be large
};

// A method by its name. Client and server declare it once, in a header that both include:
//   inline const rpc::Method kPull("pull", rpc::Repeats::kAllowed);
struct Method {
  Method(std::string_view method_name, Repeats method_repeats);

  std::string name;
  uint64_t id;  // method_id(name)
  Repeats repeats;
};

}  // namespace lockstep::rpc
