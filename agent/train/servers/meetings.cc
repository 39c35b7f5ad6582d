#include "agent/train/servers/meetings.h"

#include <algorithm>
#include <utility>

#include "agent/train/servers/waiting_calls.h"

namespace lockstep::train {
namespace {

// Returns a number from a worker, or 0 for one that is none.
uint64_t whole(double value) {
  constexpr double kMax = 0x1p53;
  return value >= 0 && value <= kMax ? static_cast<uint64_t>(value) : 0;
}

}  // namespace

void Meetings::forget_before(uint64_t number) {
  const auto end = meetings_.lower_bound(number);
  for (auto each = meetings_.begin(); each != end; ++each) {
    for (rpc::Request& request : each->second.waiting) {
      request.fail(Code::kUnavailable, "[servers] all workers have passed this meeting");
    }
  }
  meetings_.erase(meetings_.begin(), end);
}

// A worker that is in a meeting has passed the one before, so all workers have called that, and
// have passed the one before it.
void Meetings::take(const MeetCall& call, rpc::Request request) {
  const uint32_t rank = request.rank();
  if (call.number > 0) forget_before(call.number - 1);
  if (Called& called = called_[rank]; call.number >= called.meetings) {
    called = {.meetings = call.number + 1,
              .step = whole(call.values[kMeetStep]),
              .place = whole(call.values[kMeetPlace])};
  }
  Meeting& meeting = meetings_[call.number];
  meeting.calls[rank] = call;
  std::erase_if(meeting.waiting, [&](rpc::Request& earlier) {
    if (earlier.rank() != rank) return false;
    earlier.fail(Code::kUnavailable, "[servers] the worker has called again");
    return true;
  });
  meeting.waiting.push_back(std::move(request));
  if (meeting.calls.size() < workers_) return;
  MeetReply reply;
  for (const auto& [each, values] : meeting.calls) {
    for (size_t i = 0; i < kMeetValues; ++i) reply.sums[i] += values.values[i];
  }
  for (rpc::Request& waiting : meeting.waiting) waiting.answer({.head = head_bytes(reply)});
  meeting.waiting.clear();
  forget_before(call.number);
}

Meetings::Called Meetings::called(uint32_t rank) const {
  const auto found = called_.find(rank);
  return found == called_.end() ? Called{} : found->second;
}

std::optional<AwaitedWorkers> Meetings::awaited() {
  for (auto& [number, meeting] : meetings_) {
    std::erase_if(meeting.waiting, refuse_unwanted);
    if (meeting.waiting.empty()) continue;
    const auto has_come = [&](uint32_t rank) { return meeting.calls.contains(rank); };
    return AwaitedWorkers{"meeting", number, workers_without(workers_, has_come)};
  }
  return std::nullopt;
}

void Meetings::refuse_all(const Error& error) {
  for (auto& [number, meeting] : meetings_) {
    for (rpc::Request& request : meeting.waiting) request.fail(error.code, error.message);
  }
  meetings_.clear();
}

}  // namespace lockstep::train
