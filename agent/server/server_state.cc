// States of servers, which servers of a later round load.
#include <algorithm>
#include <cstring>
#include <string>

#include "agent/server/parameter_server.h"
#include "agent/server/row_store.h"

namespace lockstep::server {
namespace {

constexpr char kMagic[8] = {'L', 'S', 'P', 'S', '0', '0', '0', '1'};
constexpr uint64_t kCountMax = uint64_t{1} << 40;

struct StateHead {
  char magic[8] = {};
  uint8_t catalog[32] = {};
  uint64_t units = 0;
};
static_assert(sizeof(StateHead) == 48);

// Precedes the state of each unit.
struct UnitHead {
  uint32_t kind = 0;   // UnitKind
  uint32_t index = 0;  // of the tensor or table in the catalog
  uint64_t begin = 0;  // of a range
  SavedState saved;
};
static_assert(sizeof(UnitHead) == 40);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <class T>
Result<T> read_value(const StateSource& source) {
  T value;
  TRY(source(std::as_writable_bytes(std::span(&value, 1))));
  return value;
}

Status check_head(const UnitHead& head, const Catalog& catalog) {
  const bool is_range = head.kind == static_cast<uint32_t>(UnitKind::kRange);
  const bool is_table = head.kind == static_cast<uint32_t>(UnitKind::kTable);
  const size_t known = is_range ? catalog.tensors.size() : catalog.tables.size();
  const bool is_known = (is_range || is_table) && head.index < known;
  const bool fits =
      is_known && head.saved.count <= kCountMax && head.saved.floats <= kCountMax &&
      (!is_range || (head.saved.count <= catalog.tensors[head.index].count &&
                     head.begin <= catalog.tensors[head.index].count - head.saved.count));
  if (fits) return {};
  return corrupt("[server] a saved unit does not fit the catalog");
}

}  // namespace

Status ParameterServer::save(const StateSink& sink, uint64_t in_view) {
  Status done;
  strand_->run([&] {
    burst_.reset();
    const uint64_t now = routing_->view().number;
    done = in_view == 0 || in_view == now
               ? save_units(sink)
               : conflict("[server] expected view " + std::to_string(in_view) + ", this is view " +
                          std::to_string(now));
  });
  return done;
}

Status ParameterServer::save_units(const StateSink& sink) {
  const auto is_saved = [](const auto& held) { return held.second->is_primary(); };
  StateHead head{.units = static_cast<uint64_t>(std::ranges::count_if(units_, is_saved))};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  const Digest digest = digest_of(options_.catalog);
  std::memcpy(head.catalog, digest.data(), sizeof head.catalog);
  TRY(sink(bytes_of(head)));
  for (const auto& [id, unit] : units_) {
    if (!unit->is_primary()) continue;
    UnitHead of_unit{.kind = static_cast<uint32_t>(id.kind),
                     .index = id.index,
                     .saved = unit->state().saved_state()};
    if (id.kind == UnitKind::kRange) {
      const DenseRange& range = routing_->view().ranges[id.index];
      of_unit.index = range.tensor;
      of_unit.begin = range.begin;
    }
    TRY(sink(bytes_of(of_unit)));
    TRY(unit->state().save(sink));
  }
  return {};
}

Status ParameterServer::load(const StateSource& source) {
  Status done;
  strand_->run([&] {
    burst_.reset();
    done = load_units(source);
  });
  return done;
}

Status ParameterServer::load_units(const StateSource& source) {
  TRY_ASSIGN(const StateHead head, read_value<StateHead>(source));
  const Digest digest = digest_of(options_.catalog);
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0) {
    return corrupt("[server] these are not the bytes of a server's state");
  }
  if (std::memcmp(head.catalog, digest.data(), sizeof head.catalog) != 0) {
    return corrupt("[server] the state is that of another model or optimizer");
  }
  for (uint64_t i = 0; i < head.units; ++i) {
    TRY_ASSIGN(const UnitHead saved, read_value<UnitHead>(source));
    TRY(check_head(saved, options_.catalog));
    if (saved.kind == static_cast<uint32_t>(UnitKind::kTable)) {
      TRY(load_rows(saved.index, saved.saved, source));
      continue;
    }
    TRY(load_range(saved.index, saved.begin, saved.saved, source));
  }
  return {};
}

// The rows may be of several slots. They are read in blocks, which each unit looks through.
Status ParameterServer::load_rows(uint32_t table, SavedState saved, const StateSource& source) {
  // More states than any optimizer has.
  if (saved.floats > uint64_t{8} * options_.catalog.tables[table].dim) {
    return corrupt("[server] a saved row has " + std::to_string(saved.floats) + " floats");
  }
  const uint64_t row = sizeof(RowMeta) + sizeof(float) * saved.floats;
  const uint64_t block_rows = std::max<uint64_t>(1, kPartBytes / row);
  std::vector<std::byte> block;
  for (uint64_t left = saved.count; left > 0;) {
    const uint64_t rows = std::min(left, block_rows);
    left -= rows;
    block.resize(rows * row);
    TRY(source(block));
    for (const auto& [id, unit] : units_) {
      if (id.kind != UnitKind::kTable || id.index != table) continue;
      const StatePlace place{
          .holds = [&, slot = id.slot](uint64_t key) { return routing_->slot_of(key) == slot; }};
      TRY(unit->state().load({.count = rows, .floats = saved.floats}, source_of(block), place));
    }
  }
  return {};
}

// Several ranges of this server may overlap what was saved as one.
Status ParameterServer::load_range(uint32_t tensor, uint64_t begin, const SavedState& saved,
                                   const StateSource& source) {
  std::vector<std::byte> bytes(saved.count * saved.floats * sizeof(float));
  TRY(source(bytes));
  for (const auto& [id, unit] : units_) {
    if (id.kind != UnitKind::kRange) continue;
    const DenseRange& range = routing_->view().ranges[id.index];
    if (range.tensor != tensor) continue;
    TRY(unit->state().load(saved, source_of(bytes),
                           {.saved_begin = begin, .own_begin = range.begin, .holds = nullptr}));
  }
  return {};
}

void ParameterServer::begin_at(uint64_t first) {
  strand_->run([&] {
    for (const auto& [id, unit] : units_) unit->begin_at(first);
  });
}

}  // namespace lockstep::server
