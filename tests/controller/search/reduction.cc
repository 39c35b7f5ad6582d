#include "tests/controller/search/reduction.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <optional>

namespace lockstep::search {
namespace {

constexpr size_t kKinds = static_cast<size_t>(MoveKind::kDeleteJob) + 1;
using Kinds = std::bitset<kKinds>;

// Parts of a world that moves read and change. A change to kJob or kPods appends an event to the
// watch, so two of them do not commute. Appending commutes with taking the first event.
enum Part : uint32_t {
  kJob = 1u << 0,
  kPods = 1u << 1,  // and the Secret
  kAgents = 1u << 2,
  kJobQueue = 1u << 3,  // the first of the watch's events, and whether a list is due
  kPodQueue = 1u << 4,
  kJobCache = 1u << 5,
  kPodCache = 1u << 6,
  kViews = 1u << 7,  // of agents, in the controller
  kSent = 1u << 8,   // requests that were not served
  kReplies = 1u << 9,
};

// The parts that moves of one kind touch. Two joins of a part commute, because the newest value
// wins: it has the highest version or sequence. Two reads commute. All other pairs do not, unless
// both read.
struct Touched {
  uint32_t writes = 0;
  uint32_t reads = 0;
  uint32_t joins = 0;

  void add(const Touched& other) {
    writes |= other.writes;
    reads |= other.reads;
    joins |= other.joins;
  }
  bool conflicts_with(const Touched& other) const {
    const uint32_t all = writes | reads | joins;
    const uint32_t others = other.writes | other.reads | other.joins;
    return ((writes & others) | (other.writes & all) | (reads & other.joins) |
            (joins & other.reads)) != 0;
  }
};

template <class... Actions>
bool is_any_of(const plan::Action& action) {
  return (... || std::holds_alternative<Actions>(action));
}

bool is_exit(const plan::Action& action) {
  const auto* put = std::get_if<plan::PutAssignment>(&action);
  return put != nullptr && put->assignment->action == "Exit";
}

Touched touched_by_serving(const World& world) {
  Touched touched{.writes = kSent};
  if (!world.process.run) return touched;
  for (const plan::Action& action : world.process.run->order->actions) {
    if (is_any_of<plan::WriteStatus>(action)) touched.writes |= kJob;
    if (is_any_of<plan::CreatePod, plan::CreateSecret, plan::ConfirmPod>(action)) {
      touched.writes |= kPods;
    }
    if (is_any_of<plan::CheckPod>(action)) touched.reads |= kPods;
    if (is_any_of<plan::DeletePod>(action) || is_exit(action)) touched.writes |= kPods | kAgents;
    if (is_any_of<plan::DeleteJob>(action)) touched.writes |= kJob | kPods | kAgents;
    if (is_any_of<plan::PutAssignment>(action)) touched.writes |= kAgents;
  }
  return touched;
}

// Once the job is deleted, an old version that arrives after the news of its end revives it.
Touched news_of_job(const World& world) {
  return world.job == nullptr ? Touched{.writes = kJobCache} : Touched{.joins = kJobCache};
}

// News of pods does not queue a job that is not known.
Touched news_of_pods(const World& world) {
  return {.reads = world.job == nullptr ? kJobCache : 0u, .joins = kPodCache};
}

bool reads_pod(const OpenRequest& open) {
  const Request& request = *open.request;
  return request.assignment == nullptr && request.api.verb == loop::ApiVerb::kGet &&
         request.api.type.plural == loop::kPods.plural;
}

bool is_refused(const OpenRequest& open) {
  return open.answer && open.answer->api.outcome == loop::ApiOutcome::kForbidden;
}

Touched touched_by_answering(const World& world) {
  Touched touched{.writes = kReplies};
  if (!world.process.run) return touched;
  const Run& run = *world.process.run;
  for (const plan::Action& action : run.order->actions) {
    if (is_any_of<plan::WriteStatus, plan::CheckPod, plan::DeleteJob>(action)) {
      touched.add(news_of_job(world));
    }
    if (is_any_of<plan::CreatePod, plan::CreateSecret>(action)) touched.add(news_of_pods(world));
    // An answer that a pod is gone compares no versions.
    if (is_any_of<plan::ConfirmPod, plan::DeletePod>(action)) touched.writes |= kPodCache;
    if (is_any_of<plan::PutAssignment>(action)) touched.joins |= kViews;
  }
  if (std::ranges::any_of(run.open, reads_pod)) touched.writes |= kPodCache;
  // A refusal holds for the known generation.
  if (std::ranges::any_of(run.open, is_refused)) touched.reads |= kJobCache;
  return touched;
}

// A pod that starts is nobody's peer yet, unless a pod of the same name was there before.
Touched touched_by_starting(const World& world) {
  const bool may_be_peer = std::ranges::any_of(world.pods, [&](const auto& entry) {
    const plan::PodView& pod = *entry.second->pod;
    return pod.live() && pod.ip.empty() && world.births.at(entry.first) > 1;
  });
  return {.writes = may_be_peer ? kPods | kAgents : uint32_t{kPods}};
}

Touched touched_by_strays(const World& world) {
  Touched touched;
  for (const RequestPtr& stray : world.strays) {
    const bool is_status =
        stray->assignment == nullptr && stray->api.verb == loop::ApiVerb::kReplaceStatus;
    touched.writes |= is_status ? uint32_t{kJob} : kPods | kAgents;
    touched.reads |= kJob;
  }
  return touched;
}

// An event that is not there yet is only possible after a change at the server.
Touched touched_by_event(const World& world, MoveKind kind) {
  const bool is_job = kind == MoveKind::kJobEvent;
  Touched touched = is_job ? news_of_job(world) : news_of_pods(world);
  touched.writes |= is_job ? kJobQueue : kPodQueue;
  const Process& process = world.process;
  const bool is_there = is_job ? !process.coming_jobs.empty() : !process.coming_pods.empty();
  if (!is_there) touched.reads |= is_job ? kJob : kPods;
  return touched;
}

Touched touched_by_list(const World& world, MoveKind kind) {
  const bool is_job = kind == MoveKind::kListJobs;
  Touched touched = is_job ? news_of_job(world) : news_of_pods(world);
  touched.writes |= is_job ? kJobQueue : kPodQueue;
  touched.reads |= is_job ? kJob : kPods;
  return touched;
}

Touched touched_by(const World& world, MoveKind kind) {
  switch (kind) {
    case MoveKind::kServe:
      return touched_by_serving(world);
    case MoveKind::kAnswer:
      return touched_by_answering(world);
    case MoveKind::kJobEvent:
    case MoveKind::kPodEvent:
      return touched_by_event(world, kind);
    case MoveKind::kListJobs:
    case MoveKind::kListPods:
      return touched_by_list(world, kind);
    case MoveKind::kPlan:
      return {.writes = kSent, .reads = kJobCache | kPodCache | kViews};
    case MoveKind::kHear:
    case MoveKind::kOldReport:
      return {.reads = kAgents, .joins = kViews};
    case MoveKind::kCollect:
      return {.writes = kPods | kAgents, .reads = kJob | kPodQueue};
    case MoveKind::kRemove:
      return {.writes = kPods};
    case MoveKind::kStart:
      return touched_by_starting(world);
    case MoveKind::kNotice:
    case MoveKind::kTrain:
    case MoveKind::kFinish:
    case MoveKind::kKillWorker:
    case MoveKind::kLoseMachine:
      return {.writes = kAgents};
    case MoveKind::kResume:
    case MoveKind::kSuspend:
    case MoveKind::kScale:
    case MoveKind::kDeleteJob:
      return {.writes = kJob};
    case MoveKind::kStray:
      return touched_by_strays(world);
    case MoveKind::kLoseRequest:
    case MoveKind::kQuota:
      return {.writes = kSent};
    case MoveKind::kLoseReply:
      return {.writes = kReplies};
    case MoveKind::kTouch:
      return {.writes = kSent | kJob};
    // A crash loses the controller's news, so it need not be tried both before and after a move
    // that brings nothing else. Requests that such a move has sent may never arrive, as if it had
    // not.
    case MoveKind::kCrash:
      return {.writes = kSent};
    case MoveKind::kExpirePods:
      return {.writes = kPodQueue};
    case MoveKind::kDeletePod:
    case MoveKind::kForceDelete:
    case MoveKind::kEvict:
      return {.writes = kPods | kAgents};
    // Time passes: nothing commutes with that.
    case MoveKind::kWake:
    case MoveKind::kSlow:
      break;
  }
  return {.writes = ~0u};
}

bool writes_status(const World& world) {
  return world.process.run &&
         std::ranges::any_of(world.process.run->order->actions, is_any_of<plan::WriteStatus>);
}

// Returns whether moves of that kind are impossible until a move of one of the other kinds.
// A kind waits for itself if it is impossible until the plan's end, or until nothing else is
// possible.
std::optional<MoveKind> waits_for(const World& world, MoveKind kind) {
  const Process& process = world.process;
  const bool is_suspended = world.job != nullptr && world.job->job.spec.suspend;
  const auto unless = [](bool is_possible, MoveKind first) {
    return is_possible ? std::nullopt : std::optional(first);
  };
  switch (kind) {
    case MoveKind::kListJobs:
      return unless(process.lists_jobs, MoveKind::kCrash);
    case MoveKind::kListPods:
      return unless(process.lists_pods, MoveKind::kExpirePods);
    case MoveKind::kCollect:
      return unless(world.job == nullptr, MoveKind::kDeleteJob);
    case MoveKind::kResume:
      return unless(is_suspended, MoveKind::kSuspend);
    case MoveKind::kPlan:
      return unless(!process.run, MoveKind::kPlan);
    case MoveKind::kTouch:
      return unless(writes_status(world), MoveKind::kTouch);
    case MoveKind::kWake:
    case MoveKind::kSlow:
      return kind;
    default:
      return std::nullopt;
  }
}

// Returns the kinds of `seed` and all kinds that do not commute with them. No move of another kind,
// now or later, can then conflict with one of these before one of these has happened.
Kinds closure(const World& world, MoveKind seed) {
  std::array<Touched, kKinds> touched;
  std::array<std::optional<MoveKind>, kKinds> first;
  for (size_t i = 0; i < kKinds; ++i) {
    touched[i] = touched_by(world, static_cast<MoveKind>(i));
    first[i] = waits_for(world, static_cast<MoveKind>(i));
  }
  Kinds in;
  in.set(static_cast<size_t>(seed));
  const auto can_happen = [&](size_t i, bool with_waiting) {
    const auto kind = static_cast<MoveKind>(i);
    if (is_fault(kind) && !(is_edit(kind) ? world.may_be_edited() : world.may_fail())) return false;
    if (!first[i]) return true;
    const auto before = static_cast<size_t>(*first[i]);
    return with_waiting && before != i && world.faults_left > 0 && !in.test(before);
  };
  const auto conflicts = [&](size_t i) {
    for (size_t j = 0; j < kKinds; ++j) {
      if (in.test(j) && touched[j].conflicts_with(touched[i])) return true;
    }
    return false;
  };
  // Last, those that wait for a move that is not among the others.
  for (const bool with_waiting : {false, true}) {
    for (bool grows = true; grows;) {
      grows = false;
      for (size_t i = 0; i < kKinds; ++i) {
        if (in.test(i) || !can_happen(i, with_waiting) || !conflicts(i)) continue;
        in.set(i);
        grows = true;
      }
    }
  }
  return in;
}

std::optional<MoveKind> seed_for(const World& world) {
  const Process& process = world.process;
  if (process.run) {
    const bool is_answered = std::ranges::any_of(
        process.run->open, [](const OpenRequest& open) { return open.answer.has_value(); });
    return is_answered ? MoveKind::kAnswer : MoveKind::kServe;
  }
  // With faults, almost nothing commutes with almost everything.
  const bool is_worth_it = world.faults_left == 0 && !process.coming_pods.empty();
  return is_worth_it ? std::optional(MoveKind::kPodEvent) : std::nullopt;
}

bool is_of_process(MoveKind kind) {
  switch (kind) {
    case MoveKind::kJobEvent:
    case MoveKind::kPodEvent:
    case MoveKind::kListJobs:
    case MoveKind::kListPods:
    case MoveKind::kPlan:
    case MoveKind::kHear:
      return true;
    default:
      return false;
  }
}

bool is_fault_of_process(MoveKind kind) {
  switch (kind) {
    case MoveKind::kCrash:
    case MoveKind::kExpirePods:
    case MoveKind::kSlow:
    case MoveKind::kOldReport:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::vector<Move> needed_moves(const World& world, std::vector<Move> all) {
  const auto keep_only = [&all](MoveKind kind) {
    std::erase_if(all, [kind](const Move& move) { return move.kind != kind; });
  };
  if (is_idle_forever(world)) {
    const auto news = std::ranges::find_if(all, is_of_process, &Move::kind);
    if (news != all.end()) return {*news};
    std::erase_if(all, [](const Move& move) { return is_fault_of_process(move.kind); });
  } else if (job_event_changes_nothing(world)) {
    keep_only(MoveKind::kJobEvent);
  } else if (pod_event_changes_nothing(world)) {
    keep_only(MoveKind::kPodEvent);
  } else if (world.process.may_plan() && plan_changes_nothing(world)) {
    keep_only(MoveKind::kPlan);
  } else if (const std::optional<MoveKind> seed = seed_for(world)) {
    const Kinds in = closure(world, *seed);
    std::erase_if(all, [&](const Move& move) { return !in.test(static_cast<size_t>(move.kind)); });
  }
  return all;
}

}  // namespace lockstep::search
