#pragma once

#include <deque>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "local/store/status_error.h"
#include "local/store/storage.h"

namespace lockstep::local {

// metav1.DeleteOptions, from the body or the query.
struct DeleteOptions {
  std::optional<int64_t> grace_period_seconds;
  std::string uid;               // preconditions; empty: none
  std::string resource_version;  // likewise
  std::string propagation;       // "", Background, Foreground, Orphan
  bool dry_run = false;
};

// Deletes objects and what they own, as kube-apiserver and its controllers together do, but at
// once: graceful deletion of pods, finalizers, ownerReferences, the content of namespaces and the
// objects of CustomResourceDefinitions (whose types go with them). One is made for each request.
// Source: Kubernetes, "Garbage Collection" and "Finalizers"; k8s.io/apiserver BeforeDelete.
class Deletion {
 public:
  Deletion(Storage& storage, TypeRegistry& types, WallTime now)
      : storage_(storage), types_(types), now_(now) {}

  // The response of DELETE: the object while it is still there (grace, finalizers), else Status
  // Success, or for pods the object as it last was. 404, 409 where a precondition fails.
  ApiResponse remove(const ResourceType& type, const ObjectKey& key, const DeleteOptions& options);

  // True: with this as its new state, the object has nothing left to wait for.
  static bool is_over(const ResourceType& type, const Json& object);
  // Removes it as it is, and what follows from that.
  void finish(const ResourceType& type, const ObjectKey& key);

  // After a write: an object that is being deleted and has nothing left to wait for goes away; one
  // whose owners are all gone is deleted.
  void settle(const ResourceType& type, const ObjectKey& key);

 private:
  // Marks the object as being deleted, or queues its removal.
  void begin(const ResourceType& type, const ObjectKey& key, const DeleteOptions& options);
  void mark(const ResourceType& type, const ObjectKey& key, const Json& object, int64_t grace,
            bool foreground);
  // Namespaces and CRDs go when what they hold has gone.
  void begin_container(const ResourceType& type, const ObjectKey& key, const Json& object);
  void finish_container(const ResourceType& type, const ObjectKey& key);
  void finish_containers_of(const Storage::Place& gone);
  std::vector<const ResourceType*> held_types(const ResourceType& type, const ObjectKey& key) const;
  void orphan_dependents(const std::string& uid);
  // Works until nothing follows from what was removed; no recursion, whatever the graph is.
  void drain();
  void erase(const Storage::Place& place);
  bool has_other_owner(const Storage::Place& place, const std::string& owner_uid) const;
  void release_dependent(const Storage::Place& place, const std::string& owner_uid);
  void release_owners(const Json& gone);
  void settle_foreground(const Storage::Place& owner);

  Storage& storage_;
  TypeRegistry& types_;
  WallTime now_;
  std::deque<Storage::Place> to_erase_;
  std::deque<Storage::Place> to_begin_;
  std::deque<Storage::Place> to_settle_;  // may have nothing left that blocks them
};

}  // namespace lockstep::local
