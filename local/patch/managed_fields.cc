#include "local/patch/managed_fields.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "local/patch/field_set.h"

namespace lockstep::local {
namespace {

constexpr const char* kAncient = "ancient-changes";

Json new_entry(const ManagerIdentity& identity) {
  Json entry = {{"manager", identity.manager},
                {"operation", identity.applied ? "Apply" : "Update"},
                {"apiVersion", identity.api_version},
                {"fieldsType", "FieldsV1"},
                {"fieldsV1", Json::object()}};
  if (!identity.subresource.empty()) entry["subresource"] = identity.subresource;
  return entry;
}

ManagerIdentity identity_of(const ManagedEntry& entry) {
  return {entry.text("manager"), entry.is_applied(), entry.text("apiVersion"),
          entry.text("subresource")};
}

Result<ManagedEntry> read_entry(const Json& entry) {
  const std::string operation = string_or(entry, "operation", "");
  if (operation != "Apply" && operation != "Update")
    return invalid("operation must be `Apply` or `Update`");
  TRY_ASSIGN(const std::string api_version, string_member(entry, "apiVersion"));
  if (api_version.empty()) return invalid("apiVersion must not be empty");
  if (string_or(entry, "fieldsType", "") != "FieldsV1")
    return invalid("fieldsType must be `FieldsV1`");
  ManagedEntry read{new_entry({string_or(entry, "manager", ""), operation == "Apply", api_version,
                               string_or(entry, "subresource", "")})};
  const Json* fields = find_member(entry, "fieldsV1");
  if (fields != nullptr && !fields->is_null()) {
    TRY_ASSIGN(read.fields(), read_field_set(*fields));
  }
  const Json* time = find_member(entry, "time");
  if (time != nullptr && !time->is_null()) {
    TRY_ASSIGN(const std::string text, string_member(entry, "time"));
    TRY_ASSIGN(const WallTime parsed, wall_time_from_rfc3339(text));
    read.json["time"] = rfc3339(parsed);
  }
  return read;
}

// Sorts appliers first, then by age. Times compare as text: they share one format and time zone.
bool comes_before(const ManagedEntry& a, const ManagedEntry& b) {
  const auto rank = [](const ManagedEntry& entry) {
    return std::tuple<bool, const std::string&, const std::string&, const std::string&,
                      const std::string&>(!entry.is_applied(), entry.text("time"),
                                          entry.text("manager"), entry.text("apiVersion"),
                                          entry.text("subresource"));
  };
  return rank(a) < rank(b);
}

}  // namespace

const std::string& ManagedEntry::text(const char* member) const {
  static const std::string kNone;
  const Json* value = find_member(json, member);
  return value != nullptr && value->is_string() ? value->get_ref<const std::string&>() : kNone;
}

bool ManagerIdentity::matches(const ManagedEntry& entry) const {
  return applied == entry.is_applied() && manager == entry.text("manager") &&
         subresource == entry.text("subresource") &&
         (applied || api_version == entry.text("apiVersion"));
}

Managers Managers::stored(Json entries) {
  Managers managers;
  if (!entries.is_array()) return managers;
  managers.entries_.reserve(entries.size() + 1);
  for (Json& entry : entries) {
    const Json* fields = find_member(entry, "fieldsV1");
    if (fields != nullptr && fields->is_object()) managers.entries_.push_back({std::move(entry)});
  }
  return managers;
}

Result<Managers> Managers::read(const Json& entries) {
  if (!entries.is_array()) return invalid("expected managedFields to be a list");
  Managers managers;
  // Index entries by identity: a list from a client may be long.
  std::map<std::tuple<bool, std::string, std::string, std::string>, size_t> known;
  for (const Json& json : entries) {
    TRY_ASSIGN(ManagedEntry entry, read_entry(json));
    const ManagerIdentity identity = identity_of(entry);
    const auto [place, is_new] = known.emplace(
        std::tuple(identity.applied, identity.manager, identity.applied ? "" : identity.api_version,
                   identity.subresource),
        managers.entries_.size());
    // The last entry of an identity wins.
    if (is_new) {
      managers.entries_.push_back(std::move(entry));
    } else {
      managers.entries_[place->second] = std::move(entry);
    }
  }
  return managers;
}

ManagedEntry* Managers::find(const ManagerIdentity& identity) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const ManagedEntry& entry) {
    return identity.matches(entry);
  });
  return found == entries_.end() ? nullptr : &*found;
}

ManagedEntry& Managers::touch(const ManagerIdentity& identity, WallTime now) {
  ManagedEntry* entry = find(identity);
  if (entry == nullptr) {
    entries_.push_back({new_entry(identity)});
    entry = &entries_.back();
  }
  entry->json["apiVersion"] = identity.api_version;
  entry->json["time"] = rfc3339(now);
  return *entry;
}

void Managers::fold_updates() {
  const auto first_update =
      std::find_if(entries_.begin(), entries_.end(),
                   [](const ManagedEntry& entry) { return !entry.is_applied(); });
  size_t updates = static_cast<size_t>(entries_.end() - first_update);
  if (updates <= kUpdatesMax) return;
  // Fold entries into ancient-changes of the same version or, if there is none, into the oldest
  // entry of that version.
  std::map<std::string, size_t> oldest;
  for (size_t i = entries_.size() - updates; i < entries_.size(); ++i) {
    if (entries_[i].text("manager") == kAncient && entries_[i].text("subresource").empty())
      oldest.emplace(entries_[i].text("apiVersion"), i);
  }
  std::vector<bool> folded(entries_.size());
  for (size_t i = entries_.size() - updates; i < entries_.size() && updates > kUpdatesMax; ++i) {
    const auto [bucket, is_first] = oldest.emplace(entries_[i].text("apiVersion"), i);
    if (is_first || bucket->second == i) continue;
    ManagedEntry& into = entries_[bucket->second];
    into.json["manager"] = kAncient;
    into.json.erase("subresource");
    merge_into(into.fields(), entries_[i].fields());
    const std::string time = std::max(into.text("time"), entries_[i].text("time"));
    if (!time.empty()) into.json["time"] = time;
    folded[i] = true;
    --updates;
  }
  size_t kept = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (folded[i]) continue;
    if (kept != i) entries_[kept] = std::move(entries_[i]);
    ++kept;
  }
  entries_.resize(kept);
}

Json Managers::take() {
  std::erase_if(entries_, [](const ManagedEntry& entry) { return entry.fields().empty(); });
  std::sort(entries_.begin(), entries_.end(), comes_before);
  if (entries_.size() > kUpdatesMax) {
    fold_updates();
    std::sort(entries_.begin(), entries_.end(), comes_before);
  }
  Json list = Json::array();
  for (ManagedEntry& entry : entries_) list.push_back(std::move(entry.json));
  entries_.clear();
  return list;
}

}  // namespace lockstep::local
