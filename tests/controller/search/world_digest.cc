#include "tests/controller/search/digest.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "controller/plan/conditions.h"
#include "tests/controller/search/world.h"

namespace lockstep::search {
namespace {

// Longer spans of time change no plan: Limits::exit_timeout is the longest that does.
constexpr Duration kSpanMax = std::chrono::seconds(60);

uint64_t span(Duration since) {
  return static_cast<uint64_t>(std::clamp(since, -kSpanMax, kSpanMax).count());
}

bool is_about_job(const OpenRequest& open) {
  return open.request->api.type.plural == loop::kTrainingJobs.plural;
}

// Names for versions and UIDs. The canonical name of a version is its rank among the versions of
// all objects of its kind in the world, and that of a UID is its rank among those of the same
// object's name. Later versions and UIDs are newer than all of them, and nothing does more with
// them than to compare them, so worlds that are equal under these names behave alike. The position
// of a watch is only asked which objects are newer. The exact names count all changes and births.
class Names {
 public:
  Names(const World& world, bool is_exact) : world_(world), is_exact_(is_exact) {
    if (is_exact) {
      jobs_ = world.job_versions;
      pods_ = world.pod_versions;
      return;
    }
    collect();
    for (std::vector<int64_t>* versions : {&jobs_, &pods_}) {
      std::ranges::sort(*versions);
      versions->erase(std::unique(versions->begin(), versions->end()), versions->end());
    }
    has_twins_ =
        std::ranges::any_of(world.births, [](const auto& entry) { return entry.second > 1; });
    if (has_twins_) collect_uids();
    std::ranges::sort(uids_);
    uids_.erase(std::unique(uids_.begin(), uids_.end()), uids_.end());
  }

  uint64_t job(int64_t version) const { return rank(jobs_, version); }
  uint64_t pod(int64_t version) const { return rank(pods_, version); }
  uint64_t uid(const std::string& uid) const {
    const Uid it = read(uid);
    if (is_exact_) return static_cast<uint64_t>(it.second);
    const auto of_name = std::ranges::lower_bound(uids_, Uid{it.first, 0});
    return static_cast<uint64_t>(std::ranges::lower_bound(uids_, it) - of_name);
  }
  // Returns the UID without its number.
  static std::string_view name_in(const std::string& uid) { return read(uid).first; }

 private:
  using Uid = std::pair<std::string_view, int>;

  static uint64_t rank(const std::vector<int64_t>& versions, int64_t version) {
    return static_cast<uint64_t>(versions.end() - std::ranges::upper_bound(versions, version));
  }
  static Uid read(const std::string& uid) {
    const size_t hash = uid.find('#');
    if (hash == std::string::npos) return {uid, 0};
    int number = 0;
    std::from_chars(uid.data() + hash + 1, uid.data() + uid.size(), number);
    return {std::string_view(uid).substr(0, hash), number};
  }

  void add_job(const DocumentPtr& job) {
    if (job != nullptr) jobs_.push_back(job->version);
  }
  void collect() {
    const Process& process = world_.process;
    add_job(world_.job);
    add_job(process.job);
    for (const WatchedChange& change : process.coming_jobs) add_job(change.document);
    for (const WatchedChange& change : process.coming_pods)
      pods_.push_back(change.document->version);
    for (const auto& [key, pod] : world_.pods) pods_.push_back(pod->version);
    for (const auto& [key, pod] : process.pods) pods_.push_back(pod->version);
    for (const auto& [key, version] : process.ends) pods_.push_back(version);
    for (const RequestPtr& stray : world_.strays) add_job(stray->job);
    if (!process.run) return;
    add_job(process.run->order->job);
    for (const OpenRequest& open : process.run->open) {
      if (open.answer) (is_about_job(open) ? jobs_ : pods_).push_back(open.answer->version);
    }
  }
  void collect_uids() {
    const Process& process = world_.process;
    const auto add = [this](const std::string& uid) { uids_.push_back(read(uid)); };
    for (const auto& [key, pod] : world_.pods) add(pod->uid);
    for (const auto& [key, pod] : process.pods) add(pod->uid);
    for (const WatchedChange& change : process.coming_pods) add(change.document->uid);
    for (const auto& [uid, agent] : world_.agents) add(uid);
    for (const auto& [uid, view] : process.agents) add(uid);
    for (const std::string& uid : world_.lost_pods) add(uid);
    for (const RequestPtr& stray : world_.strays) add(stray->uid);
    if (!process.run) return;
    for (const std::string& uid : process.run->order->uids) add(uid);
    for (const OpenRequest& open : process.run->open) {
      add(open.request->uid);
      if (open.answer) add(open.answer->uid);
    }
  }

  const World& world_;
  bool is_exact_;
  bool has_twins_ = false;
  std::vector<int64_t> jobs_;
  std::vector<int64_t> pods_;
  std::vector<Uid> uids_;
};

class WorldDigester {
 public:
  WorldDigester(const World& world, bool is_exact)
      : world_(world), process_(world.process), is_exact_(is_exact), names_(world, is_exact) {}

  uint64_t value() {
    digest_.add_signed(world_.faults_left);
    digest_.add_signed(std::min(world_.edits_left, world_.faults_left));
    digest_.add_signed(std::min(world_.others_left, world_.faults_left));
    digest_.add(world_.job != nullptr ? 1 : 0);
    add_job(world_.job);
    add_size(world_.pods);
    for (const auto& [key, pod] : world_.pods) add_pod(pod);
    if (is_exact_) {
      for (const auto& [key, count] : world_.births) digest_.add_signed(count);
    }
    digest_.add(static_cast<uint64_t>(world_.store.all(loop::kSecrets).size()));
    add_size(world_.agents);
    for (const auto& [uid, agent] : world_.agents) {
      add_uid(uid);
      add_agent(agent);
    }
    add_size(world_.lost_pods);
    for (const std::string& uid : world_.lost_pods) add_uid(uid);
    add_strays();
    add_process();
    add_history();
    return digest_.value();
  }

 private:
  // So that the values of one container are not taken for those of the next.
  template <class Container>
  void add_size(const Container& container) {
    digest_.add(static_cast<uint64_t>(container.size()));
  }
  void add_uid(const std::string& uid) { digest_.add(Names::name_in(uid)).add(names_.uid(uid)); }

  // How long ago a job ended, and failed if that still delays something.
  void add_job(const DocumentPtr& job) {
    if (job == nullptr) return;
    digest_.add(is_exact_ ? job->exact_digest : job->digest).add(names_.job(job->version));
    if (job->completed_at) digest_.add(span(world_.wall_now() - *job->completed_at));
    const auto& failure = job->job.status.lastFailure;
    const bool delays = failure && failure->attempt > 1 && is_true(job->job.status, kRestarting);
    if (delays && job->failed_at) digest_.add(span(world_.wall_now() - *job->failed_at));
  }

  // A job that is resumed waits for the end of its old pods' grace period.
  bool may_wait_for_pods() const {
    if (is_exact_) return world_.history.was_suspended;
    const auto is_suspended = [](const DocumentPtr& job) {
      return job != nullptr && (job->job.spec.suspend || is_true(job->job.status, kSuspended));
    };
    const auto tells_of_one = [&](const WatchedChange& change) {
      return is_suspended(change.document);
    };
    return world_.may_be_edited() || is_suspended(world_.job) || is_suspended(process_.job) ||
           std::ranges::any_of(process_.coming_jobs, tells_of_one);
  }
  void add_pod(const DocumentPtr& pod) {
    digest_.add(pod->digest).add(names_.uid(pod->uid)).add(names_.pod(pod->version));
    const auto& gone_by = pod->pod->gone_by;
    if (gone_by && may_wait_for_pods()) {
      digest_.add(span(std::max(*gone_by - world_.wall_now(), Duration{0})));
    }
  }

  void add_state(const AgentState& state) {
    digest_.add_signed(state.round).add(state.hash).add(state.phase);
    for (const WorkerState& worker : state.workers) {
      digest_.add(static_cast<uint64_t>(worker.phase)).add(worker.running ? 1 : 0);
      digest_.add_signed(worker.exit_code).add_signed(worker.suspect_rank);
    }
  }
  // Only a fault delivers an old report.
  void add_agent(const Agent& agent) {
    digest_.add(agent.ip).add(agent.is_silent ? 1 : 0);
    add_state(agent.state);
    if (agent.old && (is_exact_ || world_.faults_left > 0)) add_state(*agent.old);
  }

  void add_strays() {
    uint64_t sum = 0;  // in no order
    for (const RequestPtr& stray : world_.strays) {
      Digester one;
      one.add(stray->digest).add(names_.uid(stray->uid)).add(names_.job(stray->job->version));
      sum += one.value();
    }
    add_size(world_.strays);
    digest_.add(sum);
  }

  void add_process() {
    digest_.add(process_.lists_jobs ? 1 : 0).add(process_.lists_pods ? 1 : 0);
    digest_.add(process_.has_jobs ? 1 : 0).add(process_.has_pods ? 1 : 0);
    digest_.add(process_.is_queued ? 1 : 0).add_signed(process_.checked_generation);
    digest_.add(process_.job != nullptr ? 1 : 0);
    add_job(process_.job);
    digest_.add(names_.job(process_.jobs_position)).add(names_.pod(process_.pods_position));
    add_size(process_.pods);
    for (const auto& [key, pod] : process_.pods) add_pod(pod);
    add_size(process_.coming_jobs);
    for (const WatchedChange& change : process_.coming_jobs) {
      digest_.add(change.is_deleted ? 1 : 0);
      add_job(change.document);
    }
    add_size(process_.coming_pods);
    for (const WatchedChange& change : process_.coming_pods) {
      digest_.add(change.is_deleted ? 1 : 0);
      add_pod(change.document);
    }
    digest_.add(process_.wakes_at ? span(*process_.wakes_at - world_.now) : 0);
    add_size(process_.ends);
    for (const auto& [key, version] : process_.ends) digest_.add(key).add(names_.pod(version));
    add_size(process_.absent_pods);
    for (const std::string& name : process_.absent_pods) digest_.add(name);
    if (process_.refusal) {
      digest_.add(span(process_.refusal->retry_at - world_.now));
      digest_.add_signed(process_.refused_generation);
    }
    add_views();
    digest_.add(process_.run ? 1 : 0);
    if (process_.run) add_run(*process_.run);
  }

  void add_views() {
    add_size(process_.agents);
    for (const auto& [uid, view] : process_.agents) {
      add_uid(uid);
      digest_.add(view.state ? 1 : 0);
      digest_.add(span(world_.now - view.last_heard));
      if (!view.state) continue;
      add_state(*view.state);
      const bool failed = view.state->failed_seconds_ago > 0;
      if (failed) digest_.add(span(world_.now - view.state_at));
      const auto agent = world_.agents.find(uid);
      if (agent == world_.agents.end()) continue;
      digest_.add_signed(agent->second.state.sequence - view.state->sequence);
    }
  }

  void add_run(const Run& run) {
    digest_.add(run.order->digest);
    for (const std::string& uid : run.order->uids) digest_.add(names_.uid(uid));
    add_job(run.order->job);
    add_answers(run);
    add_size(run.open);
    uint64_t sum = 0;  // in no order
    for (const OpenRequest& open : run.open) {
      Digester one;
      one.add(static_cast<uint64_t>(open.number)).add(open.answer ? 1 : 0);
      if (open.answer) {
        one.add(open.answer->digest).add(names_.uid(open.answer->uid));
        const int64_t version = open.answer->version;
        one.add(is_about_job(open) ? names_.job(version) : names_.pod(version));
      }
      sum += one.value();
    }
    digest_.add(sum);
  }
  // The caches contain what answers have revealed. The executor only remembers which requests were
  // answered and whether one failed, so the order and the versions do not count.
  void add_answers(const Run& run) {
    add_size(run.answers);
    uint64_t sum = 0;
    for (const Answer& answer : run.answers) {
      Digester one;
      one.add(static_cast<uint64_t>(answer.number)).add(answer.digest);
      if (is_exact_) one.add(sum).add(names_.job(answer.version)).add(names_.pod(answer.version));
      sum += one.value();
    }
    digest_.add(sum);
  }

  // Once a round is over in status, the properties only use its hash and whether a rank had failed.
  void add_history() {
    const History& history = world_.history;
    const int64_t newest = world_.job == nullptr ? INT64_MAX : world_.job->job.status.round;
    for (const auto& [round, record] : history.rounds) {
      digest_.add_signed(round).add(record.hash);
      if (!is_exact_ && round < newest) {
        digest_.add(record.failed.empty() ? 1 : 0);
        continue;
      }
      digest_.add(record.is_counted ? 1 : 0);
      add_size(record.ended);
      for (const int64_t node : record.ended) digest_.add_signed(node);
      add_size(record.failed);
      for (const auto& [index, incarnation] : record.failed) {
        digest_.add_signed(index).add_signed(incarnation);
      }
    }
    digest_.add_signed(history.trained);
    if (!is_exact_ && world_.job == nullptr) return;
    add_size(history.pods_counted);
    for (const auto& [index, incarnation] : history.pods_counted) {
      digest_.add_signed(index).add_signed(incarnation);
    }
    digest_.add_signed(history.causes);
    if (is_exact_) digest_.add(history.was_suspended ? 1 : 0);
  }

  const World& world_;
  const Process& process_;
  bool is_exact_;
  Names names_;
  Digester digest_;
};

}  // namespace

std::string_view name_in_uid(const std::string& uid) {
  return Names::name_in(uid);
}

uint64_t World::digest() const {
  return WorldDigester(*this, false).value();
}

uint64_t World::exact_digest() const {
  return WorldDigester(*this, true).value();
}

}  // namespace lockstep::search
