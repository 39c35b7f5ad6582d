#include "common/base/result.h"

#include <cerrno>
#include <system_error>

namespace lockstep {

Error errno_error(std::string_view what, int error_number, Blame blame) {
  const Code code = error_number == ENOENT ? Code::kNotFound : Code::kUnavailable;
  return {code, std::string(what) + ": " + std::generic_category().message(error_number), blame};
}

}  // namespace lockstep
