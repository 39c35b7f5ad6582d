#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "local/store/deletion.h"
#include "local/store/log_request.h"
#include "local/store/openapi_view.h"
#include "local/store/request.h"
#include "local/store/selector.h"
#include "local/store/status_error.h"
#include "local/store/storage.h"
#include "local/store/table_view.h"

namespace lockstep::local {

struct Write;

// An open watch: a client's position in the history. It holds no events except those of the initial
// list, so a slow client costs nothing. The client gets a 410 once the history has moved past it.
struct Watch {
  const ResourceType* type = nullptr;
  std::string namespace_;
  Selector selector;
  int64_t position = 0;           // everything up to this version was sent
  std::deque<ObjectPtr> initial;  // initial objects that are still to be sent
  bool bookmarks = false;
  bool send_initial_bookmark = false;  // send a bookmark after the initial objects
  View view;                           // form in which objects are sent
  bool has_headers = false;            // the columns of a Table were sent
  int64_t timeout_seconds = 0;
  uint64_t epoch = 0;  // the type's epoch when the watch was opened
  bool ended = false;  // no more events follow
};

// The part of the Kubernetes REST API that Lockstep and kubectl use, as a function from requests to
// responses over a Storage. It has no sockets, threads or clock of its own. It starts with the
// system's namespaces and the CustomResourceDefinition of TrainingJob. All members are thread-safe.
// Source: Kubernetes, "API concepts".
class Api {
 public:
  // `clock` must outlive the Api. `seed` seeds UIDs and generated names.
  Api(const Clock& clock, uint64_t seed, const StorageLimits& limits = {});

  // Handles any request except watches and logs.
  ApiResponse handle(const ApiRequest& request);

  static bool is_watch(const ApiRequest& request);
  // Opens a watch, or returns the error response.
  std::variant<Watch, ApiResponse> open_watch(const ApiRequest& request);
  // Returns at most `count_max` events, oldest first: {"type": ADDED|MODIFIED|DELETED|ERROR,
  // "object": ...}. Empty if nothing happened since.
  std::vector<Json> next_events(Watch& watch, size_t count_max);
  // Returns an event that reports the version up to which the client has seen everything.
  Json bookmark(Watch& watch);

  static bool is_log(const ApiRequest& request);
  // Finds the container whose output the client wants, or returns the error response.
  std::variant<LogRequest, ApiResponse> open_log(const ApiRequest& request);
  // Returns whether that instance of the container still runs, so that more output may follow.
  bool is_running(const LogRequest& log);

  // Forgets changes older than StorageLimits.history_age. Returns true if there were any. The Api's
  // owner calls it regularly.
  bool compact();

  // Adds a listener. It is called after every write, on the writer's thread, with no lock held, and
  // must not block.
  void on_change(std::function<void()> listener);

  // A snapshot of the objects and their history. It is cheap because it shares the objects.
  struct Snapshot;
  Snapshot snapshot();
  // Restores a snapshot. Returns false and does nothing if types were added, changed or removed
  // since. Watches and logs opened after the snapshot become invalid.
  bool restore(const Snapshot& snapshot);

 private:
  ApiResponse route(const ApiPath& path, const ApiRequest& request);
  ApiResponse shown(const ApiPath& path, const ApiRequest& request, ApiResponse response) const;
  ApiResponse get(const ApiPath& path);
  ApiResponse list(const ApiPath& path);
  using Writer = ApiResponse (Api::*)(Write&, const ApiRequest&);
  // Calls the writer with the write options of the request.
  ApiResponse write(const ApiPath& path, const ApiRequest& request, Writer writer);
  ApiResponse create(Write& write, const ApiRequest& request);
  ApiResponse bind(Write& write, const ApiRequest& request);
  ApiResponse update(Write& write, const ApiRequest& request);
  ApiResponse patch(Write& write, const ApiRequest& request);
  ApiResponse apply(Write& write, const ApiRequest& request, const ObjectPtr& old);
  ApiResponse get_scale(const ApiPath& path);
  ApiResponse answer(const ApiPath& path, const ApiRequest& request);
  ApiResponse write_scale(Write& write, const ApiRequest& request);
  ApiResponse evict(Write& write, const ApiRequest& request);
  ApiResponse remove(const ApiPath& path, const ApiRequest& request);
  ApiResponse remove_collection(const ApiPath& path, const ApiRequest& request);

  // insert() takes a new object from a client, replace() one that replaces `old`, store() one that
  // is ready to be stored.
  ApiResponse insert(Write& write, Json object);
  ApiResponse replace(Write& write, const Json& old, Json object);
  ApiResponse store(const Write& write, const ObjectKey& key, Json object, int code);
  std::optional<ApiResponse> check_namespace(const ApiPath& path, std::string_view name) const;
  void install();
  void define_types(const Json& crd);
  Json bookmark_of(Watch& watch) const;
  Json watch_event(Watch& watch, std::string_view kind, Json object) const;
  std::string new_uid();
  std::string new_suffix();

  const Clock& clock_;
  std::mutex mutex_;  // guards the members below
  std::vector<std::function<void()>> listeners_;
  Random random_;
  TypeRegistry types_;
  OpenApiView openapi_;
  Storage storage_;
  // The newest version at a point in time. Changes between two marks have the age of the later
  // mark.
  struct Mark {
    TimePoint at;
    int64_t version = 0;
  };
  std::deque<Mark> marks_;
  const Duration history_age_;
};

struct Api::Snapshot {
  Storage storage;
  Random random;
  std::deque<Mark> marks;
  uint64_t types = 0;  // TypeRegistry::revision()
};

}  // namespace lockstep::local
