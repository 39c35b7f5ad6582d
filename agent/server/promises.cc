#include "agent/server/promises.h"

#include <utility>

namespace lockstep::server {

void Promises::keep(uint64_t acknowledged) {
  while (!waiting_.empty() && waiting_.front().sequence <= acknowledged) {
    const Answer answer = std::move(waiting_.front().answer);
    waiting_.pop_front();
    answer({});
  }
}

void Promises::refuse(const Error& error) {
  std::deque<Waiting> refused = std::exchange(waiting_, {});
  for (const Waiting& each : refused) each.answer(error);
}

}  // namespace lockstep::server
