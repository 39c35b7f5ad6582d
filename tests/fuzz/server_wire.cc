// Input that a parameter server reads from other processes: heads and bodies of calls, and views.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "agent/server/limits.h"
#include "agent/server/messages.h"
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
  CHECK(server::arc_of(*view, 0) < view->arcs.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  if (data[0] % 2 == 0) {
    hear_call({data + 1, size - 1});
  } else {
    read_view(fuzz::fuzz_text(data + 1, size - 1));
  }
  return 0;
}
