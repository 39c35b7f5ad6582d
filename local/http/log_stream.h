#pragma once

#include <memory>

#include "common/http/stream.h"
#include "local/http/log_file.h"
#include "local/store/api.h"

namespace lockstep::local {

// A container's log, and what it appends while it runs if the client follows it.
class LogStream final : public http::Stream {
 public:
  // `api` must outlive the stream. `open` is held until its end.
  LogStream(Api& api, LogRequest log, LogFile file, std::shared_ptr<void> open);

  Chunk next() override;

 private:
  Api& api_;
  const LogRequest log_;
  LogFile file_;
  const std::shared_ptr<void> open_;
};

}  // namespace lockstep::local
