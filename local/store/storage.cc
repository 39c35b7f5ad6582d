#include "local/store/storage.h"

#include <algorithm>
#include <charconv>

namespace lockstep::local {

const Json& metadata_of(const Json& object) {
  static const Json kNone = Json::object();
  const Json* metadata = find_member(object, "metadata");
  return metadata == nullptr ? kNone : *metadata;
}

const Json& owner_references(const Json& object) {
  static const Json kNone = Json::array();
  const Json* owners = find_member(metadata_of(object), "ownerReferences");
  return owners == nullptr || !owners->is_array() ? kNone : *owners;
}

std::string uid_of(const Json& object) {
  return string_or(metadata_of(object), "uid", "");
}

int64_t version_of(const Json& object) {
  std::string text = string_or(metadata_of(object), "resourceVersion", "");
  int64_t version = 0;
  std::from_chars(text.data(), text.data() + text.size(), version);
  return version;
}

const Storage::Table* Storage::table(const ResourceType& type) const {
  auto found = tables_.find(&type);
  return found == tables_.end() ? nullptr : &found->second;
}

ObjectPtr Storage::get(const ResourceType& type, const ObjectKey& key) const {
  const Table* objects = table(type);
  if (objects == nullptr) return nullptr;
  auto found = objects->objects.find(key);
  return found == objects->objects.end() ? nullptr : found->second.object;
}

Result<ObjectPtr> Storage::put(const ResourceType& type, const ObjectKey& key, Json object) {
  Table& table = tables_[&type];
  object["metadata"]["resourceVersion"] = std::to_string(version_ + 1);
  size_t bytes = dump_json(object).size();
  auto found = table.objects.find(key);
  bool is_new = found == table.objects.end();
  size_t bytes_before = is_new ? 0 : found->second.bytes;
  if (bytes_ - bytes_before + bytes > limits_.bytes_max)
    return unavailable("[store] expected at most " + std::to_string(limits_.bytes_max) +
                       " bytes of objects; delete some");
  if (is_new && objects_ >= limits_.objects_max)
    return unavailable("[store] expected at most " + std::to_string(limits_.objects_max) +
                       " objects; delete some");

  ++version_;
  ObjectPtr stored = std::make_shared<const Json>(std::move(object));
  ObjectPtr previous = is_new ? nullptr : found->second.object;
  if (previous != nullptr) index(type, key, *previous, false);
  index(type, key, *stored, true);
  bytes_ += bytes - bytes_before;
  objects_ += is_new ? 1 : 0;
  if (type.newest_kept > 0) {
    if (!is_new) table.by_version.erase(found->second.version);
    table.by_version[version_] = key;
  }
  table.objects[key] = {stored, version_, bytes};
  remember(table, {version_, is_new ? ChangeType::kAdded : ChangeType::kModified, key, stored,
                   previous, bytes});
  if (type.newest_kept > 0 && table.objects.size() > type.newest_kept) drop_oldest(type, table);
  return stored;
}

ObjectPtr Storage::erase(const ResourceType& type, const ObjectKey& key) {
  Table& table = tables_[&type];
  auto found = table.objects.find(key);
  if (found == table.objects.end()) return nullptr;
  Stored gone = std::move(found->second);
  table.objects.erase(found);
  table.by_version.erase(gone.version);
  index(type, key, *gone.object, false);
  bytes_ -= gone.bytes;
  --objects_;
  ++version_;
  Json last = *gone.object;
  last["metadata"]["resourceVersion"] = std::to_string(version_);
  ObjectPtr object = std::make_shared<const Json>(std::move(last));
  remember(table, {version_, ChangeType::kDeleted, key, object, gone.object, gone.bytes});
  return object;
}

void Storage::drop_oldest(const ResourceType& type, Table& table) {
  ObjectKey key = table.by_version.begin()->second;
  erase(type, key);
}

void Storage::remember(Table& table, Change change) {
  table.history_bytes += change.bytes;
  table.history.push_back(std::move(change));
  while (table.history.size() > limits_.history_max ||
         (table.history_bytes > limits_.history_bytes_max && table.history.size() > 1)) {
    forget_oldest(table);
  }
}

void Storage::forget_oldest(Table& table) {
  table.forgotten = table.history.front().version;
  table.history_bytes -= table.history.front().bytes;
  table.history.pop_front();
}

bool Storage::compact(int64_t version) {
  bool any = false;
  for (auto& [type, table] : tables_) {
    for (; !table.history.empty() && table.history.front().version <= version; any = true)
      forget_oldest(table);
    if (table.history.empty()) table.history.shrink_to_fit();
  }
  return any;
}

std::vector<ObjectPtr> Storage::list(const ResourceType& type, std::string_view namespace_) const {
  return *list_at(type, namespace_, version_);
}

std::vector<ObjectKey> Storage::keys(const ResourceType& type, std::string_view namespace_) const {
  std::vector<ObjectKey> keys;
  const Table* found = table(type);
  if (found == nullptr) return keys;
  auto at = found->objects.lower_bound({std::string(namespace_), ""});
  for (; at != found->objects.end(); ++at) {
    if (!namespace_.empty() && at->first.namespace_ != namespace_) break;
    keys.push_back(at->first);
  }
  return keys;
}

bool Storage::has_objects(const ResourceType& type, std::string_view namespace_) const {
  const Table* found = table(type);
  if (found == nullptr) return false;
  auto at = found->objects.lower_bound({std::string(namespace_), ""});
  return at != found->objects.end() && (namespace_.empty() || at->first.namespace_ == namespace_);
}

void Storage::forget(const ResourceType& type) {
  CHECK(!has_objects(type, ""));
  auto found = tables_.find(&type);
  if (found == tables_.end()) return;
  found->second = Table{};
  found->second.forgotten = version_;
}

Result<std::vector<ObjectPtr>> Storage::list_at(const ResourceType& type,
                                                std::string_view namespace_, int64_t version,
                                                const ObjectKey& after) const {
  if (!remembers(type, version))
    return not_found("[store] version " + std::to_string(version) + " is no longer kept");
  std::vector<ObjectPtr> listed;
  const Table* found = table(type);
  if (found == nullptr) return listed;
  auto wanted = [&](const ObjectKey& key) {
    return (namespace_.empty() || key.namespace_ == namespace_) && key > after;
  };
  // The state at `version` of objects that changed later: the oldest later change has it.
  std::map<ObjectKey, ObjectPtr> then;
  for (auto change = found->history.rbegin(); change != found->history.rend(); ++change) {
    if (change->version <= version) break;
    if (wanted(change->key)) then[change->key] = change->previous;
  }
  auto changed = then.begin();
  auto add_changed_before = [&](const ObjectKey* key) {
    for (; changed != then.end() && (key == nullptr || changed->first < *key); ++changed)
      if (changed->second != nullptr) listed.push_back(changed->second);
  };
  auto at = found->objects.lower_bound(std::max(after, ObjectKey{std::string(namespace_), ""}));
  for (; at != found->objects.end(); ++at) {
    if (!namespace_.empty() && at->first.namespace_ != namespace_) break;
    if (!wanted(at->first)) continue;
    add_changed_before(&at->first);
    if (changed != then.end() && changed->first == at->first) {
      if (changed->second != nullptr) listed.push_back(changed->second);
      ++changed;
    } else {
      listed.push_back(at->second.object);
    }
  }
  add_changed_before(nullptr);
  return listed;
}

const Change* Storage::next_change(const ResourceType& type, int64_t version) const {
  const Table* found = table(type);
  if (found == nullptr) return nullptr;
  auto next =
      std::upper_bound(found->history.begin(), found->history.end(), version,
                       [](int64_t asked, const Change& change) { return asked < change.version; });
  return next == found->history.end() ? nullptr : &*next;
}

bool Storage::remembers(const ResourceType& type, int64_t version) const {
  const Table* found = table(type);
  return found == nullptr || version >= found->forgotten;
}

void Storage::index(const ResourceType& type, const ObjectKey& key, const Json& object, bool add) {
  ObjectRef ref{&type, key};
  std::string uid = uid_of(object);
  if (!uid.empty()) {
    if (add)
      uids_[uid] = ref;
    else
      uids_.erase(uid);
  }
  for (const Json& owner : owner_references(object)) {
    std::string owner_uid = string_or(owner, "uid", "");
    std::set<ObjectRef>& of_owner = dependents_[owner_uid];
    if (add)
      of_owner.insert(ref);
    else
      of_owner.erase(ref);
    if (of_owner.empty()) dependents_.erase(owner_uid);
  }
}

std::vector<Storage::ObjectRef> Storage::dependents(const std::string& uid) const {
  auto found = dependents_.find(uid);
  if (found == dependents_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

Storage::ObjectRef Storage::find_uid(const std::string& uid) const {
  auto found = uids_.find(uid);
  return found == uids_.end() ? ObjectRef{nullptr, {}} : found->second;
}

}  // namespace lockstep::local
