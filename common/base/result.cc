#include "common/base/result.h"

#include <cerrno>
#include <system_error>

namespace lockstep {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInvalid:
      return "Invalid";
    case Code::kNotFound:
      return "NotFound";
    case Code::kConflict:
      return "Conflict";
    case Code::kUnavailable:
      return "Unavailable";
    case Code::kTimeout:
      return "Timeout";
    case Code::kCorrupt:
      return "Corrupt";
    case Code::kInternal:
      return "Internal";
  }
  return "Internal";
}

Error errno_error(std::string_view what, int error_number) {
  const Code code = error_number == ENOENT ? Code::kNotFound : Code::kUnavailable;
  return {code, std::string(what) + ": " + std::generic_category().message(error_number)};
}

}  // namespace lockstep
