#include "agent/train/servers/client_parameters.h"

#include <algorithm>
#include <utility>

#include "agent/train/servers/served_task.h"
#include "common/base/check.h"

namespace lockstep::train {

Status ClientParameters::put(int64_t id, std::span<const float> values) {
  const auto done = client_.put({.tensor = static_cast<uint32_t>(id), .values = values}).wait();
  return done.ok() ? Status() : done.error();
}

void ClientParameters::pull(int64_t id, int64_t clock, std::span<float> into) {
  const auto at = static_cast<size_t>(id);
  if (!failure_.ok()) return;
  CHECK(!pulls_[at].transfer && !pushes_[at]);
  pulls_[at].clock = static_cast<uint64_t>(clock);
  pulls_[at].transfer = client_.pull({.tensor = static_cast<uint32_t>(id),
                                      .clock = pulls_[at].clock,
                                      .into = into,
                                      .encoding = encodings_[at].pull});
}

Status ClientParameters::finish_pull(int64_t id) {
  Pull& pull = pulls_[static_cast<size_t>(id)];
  if (!pull.transfer) return failure_;
  const Result<server::Transfer::Outcome> done = pull.transfer->wait();
  pull.transfer.reset();
  if (done.ok()) {
    staleness_ = std::max(staleness_, staleness_of(*done, pull.clock));
  } else {
    note(done.error());
  }
  return failure_;
}

void ClientParameters::push(const Push& push) {
  const auto at = static_cast<size_t>(push.id);
  pushes_[at] = client_.push({.tensor = static_cast<uint32_t>(push.id),
                              .clock = static_cast<uint64_t>(push.clock),
                              .gradient = push.gradient,
                              .learning_rate = push.learning_rate,
                              .encoding = encodings_[at].push});
}

Status ClientParameters::finish_pushes() {
  for (std::optional<server::Transfer>& push : pushes_) {
    if (!push) continue;
    const Result<server::Transfer::Outcome> done = push->wait();
    push.reset();
    if (done.ok()) {
      is_late_ = is_late_ || done->is_late;
    } else {
      note(done.error());
    }
  }
  return failure_;
}

void ClientParameters::cancel() {
  for (Pull& pull : pulls_) pull.transfer.reset();
  for (std::optional<server::Transfer>& push : pushes_) push.reset();
}

uint64_t ClientParameters::take_staleness() {
  return std::exchange(staleness_, 0);
}

bool ClientParameters::take_lateness() {
  return std::exchange(is_late_, false);
}

}  // namespace lockstep::train
