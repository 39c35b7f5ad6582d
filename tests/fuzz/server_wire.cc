// Input that a parameter server reads from other processes: heads and bodies of calls of workers
// and of servers, and views.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "agent/server/limits.h"
#include "agent/server/messages.h"
#include "agent/server/routing.h"
#include "agent/server/view.h"
#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

// The first two bytes are the kind of call and the floats of a row, then comes the head.
void hear_call(std::span<const uint8_t> input) {
  if (input.size() < 2) return;
  const auto kind = static_cast<server::CallKind>(input[0] % 3);
  const uint64_t floats = input[1] + 1u;
  const rpc::Bytes rest = std::as_bytes(input.subspan(2));
  const size_t head_bytes = std::min(rest.size(), sizeof(server::CallHead));
  const auto head = server::parse_call(kind, rest.first(head_bytes));
  if (!head.ok()) {
    CHECK(head.error().code == Code::kInvalid);
    return;
  }
  CHECK(std::isfinite(head->learning_rate) && head->key_count <= server::kKeysMax);
  // Aligned, as remote calls deliver it.
  std::vector<uint64_t> body((rest.size() - head_bytes + 7) / 8 + 1);
  std::memcpy(body.data(), rest.data() + head_bytes, rest.size() - head_bytes);
  const auto parsed = server::parse_body(
      kind, *head, floats, std::as_bytes(std::span(body)).first(rest.size() - head_bytes));
  if (!parsed.ok()) {
    CHECK(parsed.error().code == Code::kInvalid);
    return;
  }
  if (parsed->keys != nullptr) {
    CHECK(parsed->keys->size() == head->key_count);
    CHECK(std::ranges::is_sorted(*parsed->keys));
  }
  const bool selects = (head->flags & server::CallHead::kSelects) != 0;
  CHECK(selects ? server::is_selection_of(parsed->selection, head->key_count)
                : parsed->selection.empty());
  if (kind == server::CallKind::kPush && head->kind == server::UnitKind::kTable) {
    const uint64_t rows = selects ? server::selected_count(parsed->selection) : head->key_count;
    CHECK(parsed->values.size() == rows * floats);
  }
}

// The first byte is the floats of a row, then comes the head.
void hear_copy(std::span<const uint8_t> input) {
  if (input.empty()) return;
  const uint64_t floats = input[0] + 1u;
  const rpc::Bytes rest = std::as_bytes(input.subspan(1));
  const size_t head_bytes = std::min(rest.size(), sizeof(server::CopyHead));
  const auto head = server::parse_copy(rest.first(head_bytes));
  if (!head.ok()) {
    CHECK(head.error().code == Code::kInvalid);
    return;
  }
  CHECK(head->parts <= server::kStateParts);
  std::vector<uint64_t> aligned((rest.size() - head_bytes + 7) / 8 + 1);
  std::memcpy(aligned.data(), rest.data() + head_bytes, rest.size() - head_bytes);
  const rpc::Bytes body = std::as_bytes(std::span(aligned)).first(rest.size() - head_bytes);
  if (const auto keys = server::parse_keys(body); keys.ok()) CHECK(keys->size() == body.size() / 8);
  if (const auto ranks = server::parse_ranks(body); ranks.ok()) {
    CHECK(ranks->size() == body.size() / 4);
  }
  if (const auto clock = server::parse_clock(body); clock.ok()) CHECK(!clock->workers.empty());
  if (head->kind == server::CopyKind::kPush) {
    const auto parsed = server::parse_body(server::CallKind::kPush, head->call, floats, body);
    if (parsed.ok() && head->call.kind == server::UnitKind::kTable) CHECK(parsed->keys != nullptr);
  }
}

void read_view(std::string_view text) {
  const auto view = server::parse_view(text);
  if (!view.ok()) {
    CHECK(view.error().code == Code::kInvalid);
    return;
  }
  CHECK(server::text_of(*view) == text);
  const server::Catalog catalog{.tensors = {{.name = "w", .count = 100}},
                                .tables = {{.name = "t", .dim = 2}}};
  if (!server::check_view(*view, catalog).ok()) return;
  const server::Routing routing(std::make_shared<const server::View>(*view));
  CHECK(routing.arc_of(0) < view->arcs.size());
  CHECK(routing.slot_of(1) < view->slots.size());
  for (const server::UnitId& id : server::units_of(*view, catalog)) {
    const server::Holders holders = server::holders_of(*view, id);
    CHECK(!holders.chain.empty() && server::may_become(holders, holders));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  if (data[0] % 4 == 2) {
    hear_copy({data + 1, size - 1});
  } else if (data[0] % 2 == 0) {
    hear_call({data + 1, size - 1});
  } else {
    read_view(fuzz::fuzz_text(data + 1, size - 1));
  }
  return 0;
}
