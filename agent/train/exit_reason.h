#pragma once

#include "common/base/result.h"

namespace lockstep::train {

// Which exit code the failure that is on its way up stands for: noted where it is known who is to
// blame (the data, storage, a peer), read where the process ends.
class ExitReason {
 public:
  // Passes the result on; notes `exit_code` if it is an error.
  template <class R>
  R note(int exit_code, R result) {
    if (!result.ok()) exit_code_ = exit_code;
    return result;
  }
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_ = 1;  // an error of our own, until somebody knows better
};

}  // namespace lockstep::train
