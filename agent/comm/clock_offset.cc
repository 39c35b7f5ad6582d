#include "agent/comm/clock_offset.h"

#include <algorithm>
#include <array>

#include "common/base/check.h"

namespace lockstep::comm {
namespace {

constexpr size_t kRoundTrips = 8;  // the first ones may wait for rank 0

int64_t nanoseconds(const Clock& clock) {
  return clock.now().time_since_epoch().count();
}

CommBuffer buffer_of(int64_t& value) {
  return {.data = &value, .count = 1, .type = DataType::kI64};
}

Result<RoundTrip> ask(Communicator& world, const Clock& clock) {
  RoundTrip trip;
  int64_t question = 0;
  trip.sent_ns = nanoseconds(clock);
  TRY(world.send(buffer_of(question), 0));
  TRY(world.receive(buffer_of(trip.answered_ns), 0));
  trip.received_ns = nanoseconds(clock);
  return trip;
}

Status answer(Communicator& world, int rank, const Clock& clock) {
  for (size_t i = 0; i < kRoundTrips; ++i) {
    int64_t question = 0;
    TRY(world.receive(buffer_of(question), rank));
    int64_t now = nanoseconds(clock);
    TRY(world.send(buffer_of(now), rank));
  }
  return {};
}

}  // namespace

ClockOffset clock_offset_of(std::span<const RoundTrip> round_trips) {
  CHECK(!round_trips.empty());
  const RoundTrip& best = *std::ranges::min_element(
      round_trips, {}, [](const RoundTrip& trip) { return trip.received_ns - trip.sent_ns; });
  const int64_t half = (best.received_ns - best.sent_ns) / 2;
  return {.offset_ns = best.answered_ns - (best.sent_ns + half), .error_ns = half + 1};
}

Result<ClockOffset> measure_clock_offset(Communicator& world, const Clock& clock) {
  if (world.rank() == 0) {
    for (int rank = 1; rank < world.size(); ++rank) TRY(answer(world, rank, clock));
    return ClockOffset();
  }
  std::array<RoundTrip, kRoundTrips> trips;
  for (RoundTrip& trip : trips) {
    TRY_ASSIGN(trip, ask(world, clock));
  }
  return clock_offset_of(trips);
}

}  // namespace lockstep::comm
