#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/api/training_job.h"
#include "common/base/clock.h"
#include "controller/loop/executor.h"
#include "controller/plan/plan.h"
#include "tests/controller/sim/simulation.h"

namespace lockstep::search {

struct World;

inline constexpr Duration kRetryDelay = std::chrono::seconds(5);

// An object at one version, read once.
struct Document {
  int64_t version = 0;
  std::string key{};
  std::string uid{};
  loop::SharedJson json{};
  uint64_t digest = 0;        // of everything that matters but versions, times and numbers of UIDs
  uint64_t exact_digest = 0;  // also of what no longer matters
  bool is_pod = false;
  std::optional<plan::PodView> pod{};
  TrainingJob job{};
  Problems problems{};
  Problems spec_problems{};
  std::optional<WallTime> completed_at{};
  std::optional<WallTime> failed_at{};
};
using DocumentPtr = std::shared_ptr<const Document>;
// `known` may be an earlier version of the object, whose findings are used again.
DocumentPtr read_document(bool is_pod, const loop::SharedJson& json, const Document* known);

struct WatchedChange {
  DocumentPtr document;
  bool is_deleted = false;
};

// A request that a plan has sent: to the server, or to an agent.
struct Request {
  uint64_t digest = 0;  // without the number of the UID
  std::string uid{};    // of the pod; may be empty
  DocumentPtr job{};    // the plan's
  loop::ApiRequest api{};
  loop::AgentAddress agent{};
  std::shared_ptr<const Assignment> assignment{};  // nullptr: to the server
};
using RequestPtr = std::shared_ptr<const Request>;

struct Answer {
  size_t number = 0;  // of the request
  loop::ApiReply api{};
  Result<AgentState> agent = AgentState{};
  int64_t version = 0;  // of the body; 0: none
  std::string uid{};    // of the body
  uint64_t digest = 0;
};

struct OpenRequest {
  size_t number = 0;
  RequestPtr request{};
  std::optional<Answer> answer{};  // on its way back
};

// A plan, and what it was made for.
struct Order {
  loop::JobContext context{};
  std::vector<plan::Action> actions{};
  DocumentPtr job{};
  std::vector<std::string> uids{};  // of pods, in the order of the actions
  uint64_t digest = 0;              // without the numbers of UIDs
};

// A plan that is being carried out.
struct Run {
  std::shared_ptr<const Order> order{};
  std::vector<Answer> answers{};  // in the order of their arrival
  std::vector<OpenRequest> open{};
};

// One life of the controller as a value. The plan is the real one and so is the executor. The
// cache, the queue and the agents' views follow informer.h, work_queue.h and agent_watchers.h,
// reduced to one job.
struct Process {
  bool lists_jobs = true;  // a list is due
  bool lists_pods = true;
  bool has_jobs = false;  // a list was read
  bool has_pods = false;
  DocumentPtr job{};
  std::map<std::string, DocumentPtr> pods{};
  int64_t jobs_position = 0;  // version that the watch has reached
  int64_t pods_position = 0;
  std::vector<WatchedChange> coming_jobs{};  // events that the watch has not delivered yet
  std::vector<WatchedChange> coming_pods{};

  bool is_queued = false;
  std::optional<TimePoint> wakes_at{};
  std::set<std::string> absent_pods{};
  // Versions of the ends of pods that the watch told while a read of pods is open, by key.
  std::map<std::string, int64_t> ends{};
  int64_t checked_generation = 0;  // 0: no pod was checked
  std::optional<plan::PodRefusal> refusal{};
  int64_t refused_generation = 0;
  std::map<std::string, plan::AgentView> agents{};  // by pod UID
  std::optional<Run> run{};

  bool may_plan() const { return is_queued && !run && has_jobs && has_pods; }
};

// Return the next state of the world's process after each kind of news.
void start_process(World& world);
void list_jobs(World& world);
void list_pods(World& world);
void deliver_job_event(World& world);
void deliver_pod_event(World& world);
void make_plan(World& world);
// Returns whether a plan made now would have no actions, and neither change whom the process
// listens to nor when it wakes.
bool plan_changes_nothing(const World& world);
// Return whether the watch's next event is there, and brings nothing new to the cache, now or
// later.
bool job_event_changes_nothing(const World& world);
bool pod_event_changes_nothing(const World& world);
// Returns whether the process can have no effect any more: the job is deleted, and it knows.
bool is_idle_forever(const World& world);
void deliver_answer(World& world, size_t place);  // of the open request in the run
void hear_agent(World& world, const std::string& uid, const AgentState& state);
void wake(World& world);

}  // namespace lockstep::search
