// How a unit fills the next server of its chain, which joins with nothing, while training goes on:
// first the clock, between two steps, and then the state in parts. Between parts the server gets
// the entries of the log, which change the parts that it has.
#include <utility>

#include "agent/server/row_store.h"
#include "agent/server/unit.h"
#include "common/base/check.h"

namespace lockstep::server {
namespace {

void append(std::vector<std::byte>& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

}  // namespace

bool Unit::is_filling() const {
  if (!place_.next_joins) return false;
  return fill_ != Fill::kDone || link_->acknowledged() < filled_at_;
}

// Gradients that wait for their step are no part of the state.
void Unit::try_begin_fill() {
  if (fill_ != Fill::kWaits || !pushed_.empty()) return;
  acknowledged();
  fill_ = Fill::kGoesOn;
  filled_parts_ = 0;
  const auto body = std::make_shared<std::vector<std::byte>>();
  const ParsedClock clock = clock_.state();
  append(*body, std::as_bytes(std::span(&clock.state, 1)));
  append(*body, std::as_bytes(std::span(clock.workers)));
  pass_on({.kind = CopyKind::kBegin, .sequence = sequence_}, {*body}, body);
}

void Unit::fill_more() {
  if (filled_parts_ == kStateParts) {
    acknowledged();
    filled_at_ = sequence_;
    fill_ = Fill::kDone;
    return;
  }
  const auto body = std::make_shared<std::vector<std::byte>>();
  const auto parts =
      state_->save_parts(filled_parts_, [&](std::span<const std::byte> bytes) -> Status {
        append(*body, bytes);
        return {};
      });
  CHECK(parts.ok());
  filled_parts_ = parts->end;
  pass_on({.kind = CopyKind::kPart,
           .sequence = sequence_,
           .parts = filled_parts_,
           .saved = parts->saved},
          {*body}, body);
}

Status Unit::begin_as(const CopyMessage& message) {
  if (is_whole_) return conflict("[server] expected no state, this server has it");
  TRY_ASSIGN(const ParsedClock clock, parse_clock(message.call->request.body()));
  workers_.clear();
  for (const WorkerEntry& entry : clock.workers) workers_.push_back(entry.worker);
  clock_.set_state(clock);
  sequence_ = message.head.sequence;
  acknowledged_ = sequence_;
  return {};
}

Status Unit::take_part(const CopyMessage& message) {
  const CopyHead& head = message.head;
  if (is_whole_ || head.sequence != sequence_ || head.parts <= filled_parts_) {
    return conflict("[server] expected a later part of the state after entry " +
                    std::to_string(sequence_));
  }
  const uint64_t row = options_.id.kind == UnitKind::kTable ? sizeof(RowMeta) : 0;
  const rpc::Bytes body = message.call->request.body();
  const bool fits = head.saved.floats <= body.size() && head.saved.count <= body.size() &&
                    head.saved.count * (row + head.saved.floats * sizeof(float)) == body.size();
  if (!fits) return invalid("[server] a part of a state has another size than it says");
  TRY(state_->load(head.saved, source_of(body), {.holds = [](uint64_t) { return true; }}));
  filled_parts_ = head.parts;
  state_->hold_parts(filled_parts_);
  is_whole_ = filled_parts_ == kStateParts;
  return {};
}

}  // namespace lockstep::server
