#include "tests/controller/search/moves.h"

#include <algorithm>
#include <iterator>

#include "tests/controller/search/cluster.h"

namespace lockstep::search {
namespace {

constexpr const char* kNames[] = {
    "serve",      "answer",      "job event",  "pod event",    "list jobs",   "list pods",
    "plan",       "hear",        "collect",    "remove",       "start",       "notice",
    "train",      "finish",      "resume",     "wake",         "stray",       "LOSE REQUEST",
    "LOSE REPLY", "QUOTA",       "TOUCH",      "CRASH",        "EXPIRE PODS", "SLOW",
    "OLD REPORT", "KILL WORKER", "DELETE POD", "FORCE DELETE", "EVICT",       "LOSE MACHINE",
    "SUSPEND",    "SCALE",       "DELETE JOB"};

// A controller that does not hear of its job's end may create pods as long as they are collected.
// Without a bound on how far its watch is behind, there is none on the number of worlds.
constexpr size_t kPodEventsMax = 2;

using Moves = std::vector<Move>;

bool is_read(const Request& request) {
  return request.assignment == nullptr && request.api.verb == loop::ApiVerb::kGet;
}

bool is_new_pod(const Request& request) {
  return request.assignment == nullptr && request.api.verb == loop::ApiVerb::kCreate &&
         request.api.type.plural == loop::kPods.plural && !sim::is_dry_run(request.api);
}

bool is_status_write(const Request& request) {
  return request.assignment == nullptr && request.api.verb == loop::ApiVerb::kReplaceStatus;
}

void add_requests(const World& world, MoveKind kind, Moves& moves) {
  if (!world.process.run) return;
  const std::vector<OpenRequest>& open = world.process.run->open;
  for (size_t i = 0; i < open.size(); ++i) {
    const bool is_answered = open[i].answer.has_value();
    const Request& request = *open[i].request;
    const bool is_possible = kind == MoveKind::kAnswer ? is_answered
                             : kind == MoveKind::kLoseReply
                                 ? is_answered && !is_read(request) && open[i].answer->api.ok()
                             : kind == MoveKind::kQuota ? !is_answered && is_new_pod(request)
                             : kind == MoveKind::kTouch ? !is_answered && is_status_write(request)
                                                        : !is_answered;
    if (is_possible) moves.push_back({.kind = kind, .place = i});
  }
}

void add_process(const World& world, Moves& moves) {
  const Process& process = world.process;
  if (!process.coming_jobs.empty()) moves.push_back({.kind = MoveKind::kJobEvent});
  if (!process.coming_pods.empty()) moves.push_back({.kind = MoveKind::kPodEvent});
  if (process.lists_jobs) moves.push_back({.kind = MoveKind::kListJobs});
  if (process.lists_pods) moves.push_back({.kind = MoveKind::kListPods});
  if (process.may_plan()) moves.push_back({.kind = MoveKind::kPlan});
  for (const auto& [uid, view] : process.agents) {
    const auto agent = world.agents.find(uid);
    if (agent == world.agents.end() || agent->second.is_silent) continue;
    if (view.state && view.state->sequence == agent->second.state.sequence) continue;
    moves.push_back({.kind = MoveKind::kHear, .object = uid});
  }
}

bool can_collect(const World& world) {
  return world.job == nullptr && world.process.coming_pods.size() < kPodEventsMax;
}

void add_pods(const World& world, MoveKind kind, Moves& moves) {
  for (const auto& [key, document] : world.pods) {
    const plan::PodView& pod = *document->pod;
    const bool is_lost = world.lost_pods.contains(pod.uid);
    const bool is_possible = kind == MoveKind::kCollect  ? can_collect(world) && !pod.terminating
                             : kind == MoveKind::kRemove ? pod.terminating && !is_lost
                             : kind == MoveKind::kStart  ? can_start(world, pod)
                             : kind == MoveKind::kForceDelete ? !pod.finished()
                                                              : pod.live();
    if (is_possible) moves.push_back({.kind = kind, .object = key});
  }
}

void add_agents(const World& world, MoveKind kind, bool (*is_possible)(const World&, const Agent&),
                Moves& moves) {
  for (const auto& [uid, agent] : world.agents) {
    if (is_possible(world, agent)) moves.push_back({.kind = kind, .object = uid});
  }
}

bool is_heard(const World& world, const Agent& agent) {
  return agent.old && !agent.is_silent && world.process.agents.contains(agent.state.boot_id);
}

void add_edits(const World& world, Moves& moves) {
  if (!world.may_be_edited() || world.job == nullptr || is_over(world)) return;
  if (!world.job->job.spec.suspend) moves.push_back({.kind = MoveKind::kSuspend});
  moves.push_back({.kind = MoveKind::kScale});
  moves.push_back({.kind = MoveKind::kDeleteJob});
}

// Faults that are no changes by users.
void add_others(const World& world, Moves& moves) {
  if (!world.may_fail()) return;
  const Process& process = world.process;
  for (const MoveKind kind :
       {MoveKind::kLoseRequest, MoveKind::kLoseReply, MoveKind::kQuota, MoveKind::kTouch}) {
    add_requests(world, kind, moves);
  }
  // A controller that has done nothing yet may as well not have begun.
  if (!process.lists_jobs || !process.lists_pods) moves.push_back({.kind = MoveKind::kCrash});
  if (!process.coming_pods.empty()) moves.push_back({.kind = MoveKind::kExpirePods});
  add_agents(world, MoveKind::kOldReport, is_heard, moves);
  add_agents(world, MoveKind::kKillWorker, can_be_killed, moves);
  for (const MoveKind kind : {MoveKind::kDeletePod, MoveKind::kForceDelete, MoveKind::kEvict}) {
    add_pods(world, kind, moves);
  }
  add_agents(
      world, MoveKind::kLoseMachine,
      [](const World&, const Agent& agent) { return !agent.is_silent; }, moves);
}

// Ends the life of the controller. Its requests may still arrive.
void crash(World& world) {
  if (world.process.run) {
    for (const OpenRequest& open : world.process.run->open) {
      if (!open.answer && !is_read(*open.request)) world.strays.push_back(open.request);
    }
  }
  start_process(world);
}

void apply_to_requests(World& world, const Move& move) {
  OpenRequest& open = world.process.run->open[move.place];
  switch (move.kind) {
    case MoveKind::kServe:
      open.answer = serve(world, *open.request, false);
      break;
    case MoveKind::kQuota:
      open.answer = refusal();
      break;
    case MoveKind::kTouch:
      return touch_job(world);
    default:
      open.answer = timeout();
  }
  open.answer->number = open.number;
}

void apply_to_process(World& world, const Move& move) {
  Process& process = world.process;
  switch (move.kind) {
    case MoveKind::kAnswer:
      return deliver_answer(world, move.place);
    case MoveKind::kJobEvent:
      return deliver_job_event(world);
    case MoveKind::kPodEvent:
      return deliver_pod_event(world);
    case MoveKind::kListJobs:
      return list_jobs(world);
    case MoveKind::kListPods:
      return list_pods(world);
    case MoveKind::kPlan:
      return make_plan(world);
    case MoveKind::kHear:
      return hear_agent(world, move.object, report_of(world, move.object));
    case MoveKind::kOldReport:
      return hear_agent(world, move.object, *world.agents.at(move.object).old);
    case MoveKind::kSlow:
      // A controller that waits for the culprit may give up before it sees the loss.
      ++world.history.causes;
      return wake(world);
    case MoveKind::kWake:
      return wake(world);
    case MoveKind::kCrash:
      return crash(world);
    default:
      process.coming_pods.clear();
      process.lists_pods = true;
  }
}

}  // namespace

std::string Move::name() const {
  std::string text = kNames[static_cast<size_t>(kind)];
  if (!object.empty()) return text + " " + object;
  const bool has_place = kind == MoveKind::kServe || kind == MoveKind::kAnswer ||
                         kind == MoveKind::kLoseRequest || kind == MoveKind::kLoseReply ||
                         kind == MoveKind::kStray;
  return has_place ? text + " " + std::to_string(place) : text;
}

std::vector<Move> moves_of(const World& world) {
  Moves moves;
  add_requests(world, MoveKind::kServe, moves);
  add_requests(world, MoveKind::kAnswer, moves);
  add_process(world, moves);
  for (const MoveKind kind : {MoveKind::kCollect, MoveKind::kRemove, MoveKind::kStart}) {
    add_pods(world, kind, moves);
  }
  add_agents(world, MoveKind::kNotice, has_lost_a_peer, moves);
  add_agents(world, MoveKind::kTrain, can_train, moves);
  add_agents(world, MoveKind::kFinish, trains, moves);
  const bool is_idle = moves.empty();
  if (world.job != nullptr && world.job->job.spec.suspend) {
    moves.push_back({.kind = MoveKind::kResume});
  }
  if (is_idle && world.process.wakes_at) moves.push_back({.kind = MoveKind::kWake});
  for (size_t i = 0; i < world.strays.size(); ++i) {
    moves.push_back({.kind = MoveKind::kStray, .place = i});
  }
  if (world.may_fail() && !is_idle && world.process.wakes_at && !world.process.run) {
    moves.push_back({.kind = MoveKind::kSlow});
  }
  add_others(world, moves);
  add_edits(world, moves);
  return moves;
}

namespace {

void apply_any(World& world, const Move& move) {
  switch (move.kind) {
    case MoveKind::kServe:
    case MoveKind::kLoseRequest:
    case MoveKind::kLoseReply:
    case MoveKind::kQuota:
    case MoveKind::kTouch:
      return apply_to_requests(world, move);
    case MoveKind::kStray: {
      const RequestPtr stray = world.strays[move.place];
      world.strays.erase(world.strays.begin() + static_cast<std::ptrdiff_t>(move.place));
      serve(world, *stray, true);
      return;
    }
    case MoveKind::kAnswer:
    case MoveKind::kJobEvent:
    case MoveKind::kPodEvent:
    case MoveKind::kListJobs:
    case MoveKind::kListPods:
    case MoveKind::kPlan:
    case MoveKind::kHear:
    case MoveKind::kOldReport:
    case MoveKind::kWake:
    case MoveKind::kSlow:
    case MoveKind::kCrash:
    case MoveKind::kExpirePods:
      return apply_to_process(world, move);
    case MoveKind::kResume:
    case MoveKind::kSuspend:
    case MoveKind::kScale:
    case MoveKind::kDeleteJob:
      return apply_to_job(world, move.kind);
    case MoveKind::kNotice:
    case MoveKind::kTrain:
    case MoveKind::kFinish:
    case MoveKind::kKillWorker:
    case MoveKind::kLoseMachine:
      return apply_to_agent(world, move);
    default:
      return apply_to_pod(world, move);
  }
}

}  // namespace

void apply(World& world, const Move& move) {
  if (is_fault(move.kind)) --world.faults_left;
  if (is_edit(move.kind)) --world.edits_left;
  if (is_fault(move.kind) && !is_edit(move.kind)) --world.others_left;
  apply_any(world, move);
  std::erase_if(world.strays, [&world](const RequestPtr& stray) { return is_void(world, *stray); });
}

}  // namespace lockstep::search
