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
  std::string uid;               // precondition; empty: none
  std::string resource_version;  // precondition; empty: none
  std::string propagation;       // "", Background, Foreground, Orphan
  bool dry_run = false;
};

// Deletes objects and what they own, as kube-apiserver and its controllers do together, but
// immediately. Covers graceful deletion of pods, finalizers, ownerReferences, the content of
// namespaces and the objects of CustomResourceDefinitions (whose types go with them). Make one for
// each request.
// Source: Kubernetes, "Garbage Collection" and "Finalizers"; k8s.io/apiserver BeforeDelete.
class Deletion {
 public:
  Deletion(Storage& storage, TypeRegistry& types, WallTime now)
      : storage_(storage), types_(types), now_(now) {}

  // Handles DELETE. Returns the object while it still exists (grace period, finalizers). Otherwise
  // returns Status Success or, for pods, the last state. 404 if there is no such object; 409 if a
  // precondition fails.
  ApiResponse remove(const ResourceType& type, const ObjectKey& key, const DeleteOptions& options);

  // Returns true if an object in this state is being deleted and has nothing left to wait for.
  static bool is_over(const ResourceType& type, const Json& object);
  // Removes the object in its current state, with all consequences.
  void finish(const ResourceType& type, const ObjectKey& key);

  // Call after a write. Removes the object if it is being deleted and has nothing left to wait for.
  // Deletes it if all its owners are gone.
  void reconcile_after_write(const ResourceType& type, const ObjectKey& key);

 private:
  // Marks the object as being deleted, or queues its removal.
  void begin(const ResourceType& type, const ObjectKey& key, const DeleteOptions& options);
  void mark(const ResourceType& type, const ObjectKey& key, const Json& object, int64_t grace,
            bool foreground);
  // Namespaces and CRDs are removed once their contents are gone.
  void begin_container(const ResourceType& type, const ObjectKey& key, const Json& object);
  void finish_container(const ResourceType& type, const ObjectKey& key);
  void finish_containers_of(const Storage::ObjectRef& gone);
  std::vector<const ResourceType*> held_types(const ResourceType& type, const ObjectKey& key) const;
  void orphan_dependents(const std::string& uid);
  // Works until all queues are empty. Does not recurse, whatever the object graph is.
  void drain();
  void erase(const Storage::ObjectRef& ref);
  bool has_other_owner(const Storage::ObjectRef& ref, const std::string& owner_uid) const;
  void release_dependent(const Storage::ObjectRef& ref, const std::string& owner_uid);
  void release_owners(const Json& gone);
  void finish_foreground(const Storage::ObjectRef& owner);

  Storage& storage_;
  TypeRegistry& types_;
  WallTime now_;
  std::deque<Storage::ObjectRef> to_erase_;
  std::deque<Storage::ObjectRef> to_begin_;
  std::deque<Storage::ObjectRef> to_finish_foreground_;  // may have no blocking dependents left
};

}  // namespace lockstep::local
