#include "tests/controller/search/carry_out.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "controller/plan/conditions.h"
#include "controller/plan/damage.h"
#include "tests/controller/search/digest.h"
#include "tests/controller/search/without_policies.h"

namespace lockstep::search {
namespace {

using sim::member;

std::string uid_in(const loop::ApiRequest& request) {
  return string_or(member(request.body, "preconditions"), "uid", "");
}

uint64_t digest_of(const loop::ApiRequest& request, uint64_t plan) {
  Digester digest;
  digest.add(static_cast<uint64_t>(request.verb)).add(request.type.plural).add(request.name);
  digest.add(string_or(member(request.body, "metadata"), "name", ""));
  digest.add(name_in_uid(uid_in(request)));
  digest.add(static_cast<uint64_t>(request.query.size()));
  if (request.verb == loop::ApiVerb::kReplaceStatus) digest.add(plan);
  return digest.value();
}

uint64_t digest_of(const Assignment& assignment, const loop::AgentAddress& agent) {
  return Digester()
      .add(agent.ip)
      .add(assignment.hash)
      .add(assignment.action)
      .add_signed(assignment.exit_code)
      .add_signed(assignment.world.round)
      .add_signed(assignment.restarts)
      .value();
}

// The executor's surroundings: they note what it sends, and pass on the last answer's news.
class Surroundings final : public loop::ApiClient,
                           public loop::AgentClient,
                           public CacheWithoutPolicies {
 public:
  Surroundings(const Order& order, loop::CacheUpdater& news) : order_(order), news_(news) {}

  CarriedOut result{};
  bool is_last = false;

  void answer(const Answer& answer) {
    Waiting& waiting = waiting_[answer.number];
    if (waiting.agent) return waiting.agent(answer.agent);
    waiting.api(answer.api);
  }

  void send(loop::ApiRequest request, loop::ApiClient::Done done) override {
    if (request.type.plural == loop::kEvents.plural) return;
    if (!is_last) return wait_for({.api = std::move(done)});
    if (request.make_text) request.body = Json::parse(std::exchange(request.make_text, nullptr)());
    const uint64_t digest = digest_of(request, order_.digest);
    std::string uid = uid_in(request);
    note({.digest = digest, .uid = std::move(uid), .job = order_.job, .api = std::move(request)},
         {.api = std::move(done)});
  }
  std::unique_ptr<loop::WatchHandle> watch(loop::WatchRequest, loop::WatchHandler) override {
    return nullptr;
  }
  void put_assignment(const loop::AgentAddress& agent,
                      const std::shared_ptr<const Assignment>& assignment, int64_t node_index,
                      loop::AgentClient::Done done) override {
    if (!is_last) return wait_for({.agent = std::move(done)});
    auto sent = std::make_shared<Assignment>(*assignment);
    sent->node_index = node_index;
    const uint64_t digest = digest_of(*sent, agent);
    note({.digest = digest, .job = order_.job, .agent = agent, .assignment = std::move(sent)},
         {.agent = std::move(done)});
  }
  void poll_state(const loop::AgentAddress&, const loop::StatePoll&,
                  loop::AgentClient::Done) override {}
  void forget(const loop::AgentAddress&) override {}

  void job_written(const loop::SharedJson& job) override {
    if (is_last) news_.job_written(job);
  }
  void job_read(const loop::SharedJson& job) override {
    if (is_last) news_.job_read(job);
  }
  void job_gone(const loop::JobContext& job) override {
    if (is_last) news_.job_gone(job);
  }
  void pod_written(const loop::SharedJson& pod) override {
    if (is_last) news_.pod_written(pod);
  }
  void pod_read(const loop::SharedJson& pod) override {
    if (is_last) news_.pod_read(pod);
  }
  void pod_gone(const loop::JobContext& job, const std::string& name,
                const std::string& uid) override {
    if (is_last) news_.pod_gone(job, name, uid);
  }
  void pod_absent(const loop::JobContext& job, const std::string& name) override {
    if (is_last) news_.pod_absent(job, name);
  }
  void pod_refused(const loop::JobContext& job, const std::string& reason,
                   const std::string& message) override {
    if (is_last) news_.pod_refused(job, reason, message);
  }
  void create_failed(const loop::JobContext& job, const std::string& message) override {
    if (is_last) news_.create_failed(job, message);
  }
  bool status_refused(const loop::JobContext&) override { return false; }
  void pod_checked(const loop::JobContext& job, int64_t generation, const std::string& refusal,
                   bool is_answered) override {
    if (is_last) news_.pod_checked(job, generation, refusal, is_answered);
  }
  void pod_accepted(const loop::JobContext& job) override {
    if (is_last) news_.pod_accepted(job);
  }
  void agent_reported(const loop::JobContext& job, const std::string& pod_uid,
                      const AgentState& state) override {
    if (is_last) news_.agent_reported(job, pod_uid, state);
  }

 private:
  struct Waiting {
    loop::ApiClient::Done api{};
    loop::AgentClient::Done agent{};
  };

  void note(Request request, Waiting waiting) {
    result.sent.emplace_back(waiting_.size(), std::make_shared<Request>(std::move(request)));
    wait_for(std::move(waiting));
  }
  void wait_for(Waiting waiting) { waiting_.push_back(std::move(waiting)); }

  const Order& order_;
  loop::CacheUpdater& news_;
  std::deque<Waiting> waiting_;  // callbacks may add to it
};

template <class Change>
void for_each_failure(TrainingJobStatus& status, Change change) {
  for (FailureStatus& failure : status.failures) change(failure);
  if (status.lastFailure) change(*status.lastFailure);
}

}  // namespace

CarriedOut carry_out(const Order& order, const std::vector<Answer>& answers,
                     loop::CacheUpdater& news, const sim::Mutation& mutation) {
  const ManualClock clock;
  loop::Timers timers(clock);
  Random random(1);
  Surroundings around(order, news);
  const auto api = mutation.api ? mutation.api(around) : nullptr;
  const auto agents = mutation.agents ? mutation.agents(around) : nullptr;
  loop::Executor executor(api ? *api : around, agents ? *agents : around, timers, random, around,
                          {.instance = "controller"});
  around.is_last = answers.empty();
  executor.run(order.context, order.actions,
               [&around](loop::Execution execution) { around.result.done = std::move(execution); });
  for (size_t i = 0; i < answers.size(); ++i) {
    around.is_last = i + 1 == answers.size();
    around.answer(answers[i]);
  }
  return std::move(around.result);
}

uint64_t digest_of(const TrainingJobStatus& status) {
  TrainingJobStatus timeless = status;
  for (Condition& condition : timeless.conditions) condition.lastTransitionTime.clear();
  for_each_failure(timeless, [](FailureStatus& failure) {
    failure.time.clear();
    failure.recoverySeconds = 0;
    failure.recovery = {};
  });
  if (timeless.progress) timeless.progress->updatedAt.clear();
  timeless.lost.seconds = timeless.trainedSeconds = timeless.longestRunSeconds = 0;
  timeless.startTime.clear();
  timeless.completionTime.clear();
  return Digester().add(dump_json(status_to_json(timeless))).value();
}

uint64_t digest_of_stored(const TrainingJobStatus& status) {
  TrainingJobStatus rest = status;
  for (Condition& condition : rest.conditions) {
    condition.message.clear();
    if (condition.type == kRunning) condition.reason.clear();
  }
  for_each_failure(rest, [](FailureStatus& failure) {
    failure.rank = failure.nodeIndex = failure.exitCode = 0;
    failure.node.clear();
    failure.message.clear();
    if (failure.reason != plan::kAgentDisagrees) failure.reason.clear();
  });
  return digest_of(rest);
}

uint64_t digest_of(const std::vector<plan::Action>& actions) {
  struct Visitor {
    Digester& digest;
    void operator()(const plan::CreateSecret& action) { digest.add(action.name); }
    // Nothing here reads where the pod may run; all else follows from the job.
    void operator()(const plan::CreatePod& action) { digest.add(action.name); }
    void operator()(const plan::CheckPod& action) { digest.add_signed(action.generation); }
    void operator()(const plan::ConfirmPod& action) { digest.add(action.name); }
    void operator()(const plan::DeletePod& action) { digest.add(name_in_uid(action.uid)); }
    void operator()(const plan::DeleteJob& action) { digest.add(action.uid); }
    void operator()(const plan::PutAssignment& action) {
      digest.add(name_in_uid(action.target.pod_uid))
          .add(digest_of(*action.assignment, {.ip = action.target.ip}));
    }
    void operator()(const plan::WriteStatus& action) {
      digest.add(search::digest_of(action.status));
    }
    void operator()(const plan::WriteNetworkPolicy& action) { digest.add(dump_json(action.body)); }
    void operator()(const plan::DeleteNetworkPolicy& action) { digest.add(action.uid); }
    void operator()(const plan::EmitEvent&) {}
  };
  Digester digest;
  for (const plan::Action& action : actions) {
    if (std::holds_alternative<plan::EmitEvent>(action)) continue;
    digest.add(static_cast<uint64_t>(action.index()));
    std::visit(Visitor{digest}, action);
  }
  return digest.value();
}

std::vector<std::string> uids_in(const std::vector<plan::Action>& actions) {
  std::vector<std::string> uids;
  for (const plan::Action& action : actions) {
    if (const auto* one = std::get_if<plan::DeletePod>(&action)) uids.push_back(one->uid);
    if (const auto* put = std::get_if<plan::PutAssignment>(&action)) {
      uids.push_back(put->target.pod_uid);
    }
  }
  return uids;
}

}  // namespace lockstep::search
