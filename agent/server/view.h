#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/server/catalog.h"
#include "common/base/result.h"
#include "common/base/sha256.h"

namespace lockstep::server {

// Ranks of the servers that hold a range: the primary, which workers call, and then its copies, in
// the order in which updates pass along. Source: van Renesse and Schneider, "Chain replication for
// supporting high throughput and availability", OSDI 2004.
using Chain = std::vector<uint32_t>;

// The servers of a range, or of a slot: rows of all tables that move together, which are those of
// the slot's arcs. A slot has one clock for each table.
struct Holders {
  Chain chain;
  // A server that is being filled, and will be the chain's last one in a later view.
  std::optional<uint32_t> joining = std::nullopt;

  bool operator==(const Holders&) const = default;
};

// The elements [begin, end) of a tensor.
struct DenseRange {
  uint32_t tensor = 0;  // index in the catalog
  uint64_t begin = 0;
  uint64_t end = 0;
  Chain chain;
  std::optional<uint32_t> joining = std::nullopt;  // as Holders

  bool operator==(const DenseRange&) const = default;
};

// The ring positions (ring_position()) from `first` to the next arc's; the last arc reaches around
// to the first one.
struct Arc {
  uint64_t first = 0;
  uint32_t slot = 0;  // index in the view

  bool operator==(const Arc&) const = default;
};

// Which servers hold which parameters, in one round, and which workers count. Views of a round are
// numbered from 1; a number has one text. Ranges and slots are named by their index, and are the
// same in all views of a round, but for who holds them.
struct View {
  uint64_t round = 0;
  uint64_t number = 1;
  Digest catalog{};                // digest_of() of the catalog
  std::vector<uint32_t> workers;   // ranks, ascending
  std::vector<DenseRange> ranges;  // by tensor and begin; they cover each tensor once
  std::vector<Holders> slots;      // none if there is no table
  std::vector<Arc> arcs;           // by first; likewise

  bool operator==(const View&) const = default;
};

// The position of a row on the ring, for all tables.
uint64_t ring_position(uint64_t key);

// Names a unit within a view: a dense range, or the rows of one table and slot.
enum class UnitKind : uint16_t { kRange = 1, kTable = 2 };
struct UnitId {
  UnitKind kind = UnitKind::kRange;
  uint32_t index = 0;  // of the range in the view, or of the table in the catalog
  uint32_t slot = 0;   // of a table: index in the view

  auto operator<=>(const UnitId&) const = default;
};
// Returns all units of the view, ranges first.
std::vector<UnitId> units_of(const View& view, const Catalog& catalog);
// Returns the servers of one.
Holders holders_of(const View& view, const UnitId& id);
const Chain& chain_of(const View& view, const UnitId& id);

// Returns the only text of a view (docs/formats.md, "View").
std::string text_of(const View& view);
// kInvalid, with the line, for any text that text_of() does not return.
Result<View> parse_view(std::string_view text);

// kInvalid if the view does not fit the catalog, or breaks the order that View describes.
Status check_view(const View& view, const Catalog& catalog);
// Whether they cut tensors and rows likewise.
bool have_same_units(const View& a, const View& b);
// Whether a chain may become the next one: servers leave it, and one that joined follows the last.
bool may_become(const Holders& now, const Holders& next);

// Names a view in messages.
struct Fence {
  uint64_t round = 0;
  uint64_t number = 0;
  uint64_t hash = 0;  // the first 8 bytes of the SHA-256 of the view's text

  bool operator==(const Fence&) const = default;
};
Fence fence_of(const View& view);
// Compares the view of a message with the receiver's. kConflict if the sender's is older or another
// one of the same number: it has to read the view again. kUnavailable if it is newer: the receiver
// will get it.
Status check_fence(const Fence& sender, const Fence& receiver);

}  // namespace lockstep::server
