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

// An open watch: where a client is in the history. It holds no events of its own (but for those of
// the first list), so a slow client costs nothing and is told 410 when the history has moved on.
struct Watch {
  const ResourceType* type = nullptr;
  std::string namespace_;
  Selector selector;
  int64_t position = 0;           // everything up to here was given out
  std::deque<ObjectPtr> initial;  // objects that were there when it began, where it asked for them
  bool bookmarks = false;
  bool says_when_complete = false;  // a bookmark follows what was there when it began
  View view;                        // of each object
  bool has_headers = false;         // a Table's columns were said
  int64_t timeout_seconds = 0;
  uint64_t epoch = 0;  // of the type
  bool ended = false;  // after an ERROR event nothing more comes
};

// The part of the Kubernetes REST API that Lockstep and kubectl use, as a function from requests to
// responses over a Storage: no sockets, no threads, no clock of its own. It begins with the
// system's namespaces and the TrainingJob's CustomResourceDefinition. All members are thread-safe.
// Source: Kubernetes, "API concepts".
class Api {
 public:
  // `clock` outlives the object; `seed` is that of UIDs and generated names.
  Api(const Clock& clock, uint64_t seed, const StorageLimits& limits = {});

  // Any request that is not a watch.
  ApiResponse handle(const ApiRequest& request);

  static bool is_watch(const ApiRequest& request);
  // The watch, or why there is none.
  std::variant<Watch, ApiResponse> open_watch(const ApiRequest& request);
  // At most `count_max` events, oldest first: {"type": ADDED|MODIFIED|DELETED|ERROR, "object":
  // ...}. Empty: nothing happened since.
  std::vector<Json> next_events(Watch& watch, size_t count_max);
  // Tells the client the version up to which it has seen everything.
  Json bookmark(Watch& watch);

  static bool is_log(const ApiRequest& request);
  // Whose output is asked for, or why there is none to show.
  std::variant<LogRequest, ApiResponse> open_log(const ApiRequest& request);
  // Whether that instance of the container runs, so that more output may come.
  bool is_running(const LogRequest& log);

  // Forgets the changes that are older than StorageLimits.history_age; true if there were any.
  // Called every now and then by who owns the object.
  bool compact();

  // Called after every write, on the writer's thread, without a lock; must not block.
  void on_change(std::function<void()> listener);

  // The objects and their history at one time. Objects are shared: it is cheap to have.
  struct Moment;
  Moment moment();
  // False, and nothing happens, where types have come, changed or gone since. Watches and logs that
  // were opened after that moment are void.
  bool return_to(const Moment& moment);

 private:
  ApiResponse route(const ApiPath& path, const ApiRequest& request);
  ApiResponse shown(const ApiPath& path, const ApiRequest& request, ApiResponse response) const;
  ApiResponse get(const ApiPath& path);
  ApiResponse list(const ApiPath& path);
  using Writer = ApiResponse (Api::*)(Write&, const ApiRequest&);
  // Calls the writer with what the request says about a write.
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

  // A new object, as a client sent it; one that replaces `old`; one that is ready to be stored.
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
  std::mutex mutex_;  // guards what follows
  std::vector<std::function<void()>> listeners_;
  Random random_;
  TypeRegistry types_;
  OpenApiView openapi_;
  Storage storage_;
  // When the newest write had which version: what lies between two marks has the age of the later.
  struct Mark {
    TimePoint at;
    int64_t version = 0;
  };
  std::deque<Mark> marks_;
  const Duration history_age_;
};

struct Api::Moment {
  Storage storage;
  Random random;
  std::deque<Mark> marks;
  uint64_t types = 0;  // TypeRegistry::revision()
};

}  // namespace lockstep::local
