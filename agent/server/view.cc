#include "agent/server/view.h"

#include <algorithm>
#include <cstring>

#include "agent/server/limits.h"
#include "common/base/check.h"
#include "kernels/ops/rounding.h"

namespace lockstep::server {
namespace {

Error wrong(const std::string& what) {
  return invalid("[server] view: " + what);
}

Status check_chain(const Chain& chain, std::optional<uint32_t> joining, const std::string& where) {
  if (chain.empty() || chain.size() > kChainMax) {
    return wrong(where + ": expected 1 to " + std::to_string(kChainMax) + " servers, got " +
                 std::to_string(chain.size()));
  }
  Chain sorted = chain;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) {
    return wrong(where + ": a server is named twice");
  }
  if (joining && std::ranges::binary_search(sorted, *joining)) {
    return wrong(where + ": a server that joins is in the chain");
  }
  return {};
}

// The ranges cover each tensor from its first element to its last.
Status check_ranges(const View& view, const Catalog& catalog) {
  uint32_t tensor = 0;
  uint64_t at = 0;
  for (size_t i = 0; i < view.ranges.size(); ++i) {
    const DenseRange& range = view.ranges[i];
    const std::string where = "range " + std::to_string(i);
    TRY(check_chain(range.chain, range.joining, where));
    if (tensor < catalog.tensors.size() && at == catalog.tensors[tensor].count) {
      ++tensor;
      at = 0;
    }
    if (range.tensor != tensor || tensor >= catalog.tensors.size() || range.begin != at) {
      return wrong(where + ": expected tensor " + std::to_string(tensor) + " from " +
                   std::to_string(at) + ", got tensor " + std::to_string(range.tensor) + " from " +
                   std::to_string(range.begin));
    }
    if (range.end <= range.begin || range.end > catalog.tensors[tensor].count ||
        range.end - range.begin > kRangeElementsMax) {
      return wrong(where + ": expected an end in the tensor and at most " +
                   std::to_string(kRangeElementsMax) + " elements, got " +
                   std::to_string(range.end));
    }
    at = range.end;
  }
  const bool is_whole = catalog.tensors.empty() || (tensor + 1 == catalog.tensors.size() &&
                                                    at == catalog.tensors[tensor].count);
  if (!is_whole) return wrong("the ranges end before the last tensor does");
  return {};
}

Status check_arcs(const View& view, const Catalog& catalog) {
  if (view.arcs.empty() != catalog.tables.empty() || view.arcs.empty() != view.slots.empty()) {
    return wrong("expected slots and arcs exactly if there are tables");
  }
  for (size_t i = 0; i < view.slots.size(); ++i) {
    TRY(check_chain(view.slots[i].chain, view.slots[i].joining, "slot " + std::to_string(i)));
  }
  for (size_t i = 0; i < view.arcs.size(); ++i) {
    const std::string where = "arc " + std::to_string(i);
    if (view.arcs[i].slot >= view.slots.size()) {
      return wrong(where + ": expected a slot below " + std::to_string(view.slots.size()) +
                   ", got " + std::to_string(view.arcs[i].slot));
    }
    if (i > 0 && view.arcs[i].first <= view.arcs[i - 1].first) {
      return wrong(where + ": expected a position above the arc before");
    }
  }
  return {};
}

}  // namespace

uint64_t ring_position(uint64_t key) {
  return kernels::mixed_bits(key);
}

std::vector<UnitId> units_of(const View& view, const Catalog& catalog) {
  std::vector<UnitId> units;
  for (uint32_t i = 0; i < view.ranges.size(); ++i) units.push_back({UnitKind::kRange, i});
  for (uint32_t table = 0; table < catalog.tables.size(); ++table) {
    for (uint32_t slot = 0; slot < view.slots.size(); ++slot) {
      units.push_back({UnitKind::kTable, table, slot});
    }
  }
  return units;
}

Holders holders_of(const View& view, const UnitId& id) {
  if (id.kind == UnitKind::kTable) return view.slots[id.slot];
  return {view.ranges[id.index].chain, view.ranges[id.index].joining};
}

const Chain& chain_of(const View& view, const UnitId& id) {
  return id.kind == UnitKind::kTable ? view.slots[id.slot].chain : view.ranges[id.index].chain;
}

bool have_same_units(const View& a, const View& b) {
  const auto same_range = [](const DenseRange& x, const DenseRange& y) {
    return x.tensor == y.tensor && x.begin == y.begin && x.end == y.end;
  };
  return std::ranges::equal(a.ranges, b.ranges, same_range) && a.slots.size() == b.slots.size() &&
         a.arcs == b.arcs;
}

bool may_become(const Holders& now, const Holders& next) {
  Chain all = now.chain;
  if (now.joining) all.push_back(*now.joining);
  auto from = all.begin();
  for (const uint32_t server : next.chain) {
    from = std::find(from, all.end(), server);
    if (from == all.end()) return false;
    ++from;
  }
  return true;
}

Status check_view(const View& view, const Catalog& catalog) {
  if (view.number == 0) return wrong("expected a number from 1 on");
  if (view.catalog != digest_of(catalog)) return wrong("it is of another catalog");
  if (view.workers.empty() || view.workers.size() > kWorkersMax) {
    return wrong("expected 1 to " + std::to_string(kWorkersMax) + " workers, got " +
                 std::to_string(view.workers.size()));
  }
  for (size_t i = 1; i < view.workers.size(); ++i) {
    if (view.workers[i] <= view.workers[i - 1]) return wrong("expected workers in ascending order");
  }
  if (view.ranges.size() > kRangesMax || view.slots.size() > kSlotsMax ||
      view.arcs.size() > kArcsMax) {
    return wrong("it has too many ranges, slots or arcs");
  }
  TRY(check_ranges(view, catalog));
  return check_arcs(view, catalog);
}

Fence fence_of(const View& view) {
  Fence fence{.round = view.round, .number = view.number};
  const Digest digest = sha256(text_of(view));
  std::memcpy(&fence.hash, digest.data(), sizeof fence.hash);
  return fence;
}

Status check_fence(const Fence& sender, const Fence& receiver) {
  if (sender == receiver) return {};
  const auto name = [](const Fence& fence) {
    return "view " + std::to_string(fence.number) + " of round " + std::to_string(fence.round);
  };
  const auto order = [](const Fence& fence) { return std::pair(fence.round, fence.number); };
  if (order(sender) == order(receiver)) {
    return conflict("[server] " + name(receiver) + ": the sender has another text of it");
  }
  const std::string text = "[server] expected " + name(receiver) + ", got " + name(sender);
  if (order(sender) > order(receiver)) return unavailable(text);
  return conflict(text);
}

}  // namespace lockstep::server
