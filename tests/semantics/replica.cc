#include "tests/semantics/replica.h"

#include <algorithm>

#include "controller/plan/pod_view.h"

namespace lockstep::semantics {
namespace {

using conformance::is_code;
using conformance::meta;
using conformance::Reply;
using conformance::server;

constexpr Duration kAgentAnswer = std::chrono::seconds(1);
constexpr Duration kQuiet = std::chrono::seconds(25);  // longer than a job's recheck interval

const Json& condition_of(const Json& job, const std::string& type) {
  static const Json kNone = Json::object();
  const auto status = job.find("status");
  if (status == job.end() || !status->contains("conditions")) return kNone;
  for (const Json& one : (*status)["conditions"])
    if (string_or(one, "type", "") == type) return one;
  return kNone;
}

}  // namespace

void NoAgents::answer(Done done) {
  timers_.after(kAgentAnswer,
                [done = std::move(done)] { done(unavailable("no agent is reachable")); });
}

void NoAgents::put_assignment(const loop::AgentAddress&, const std::shared_ptr<const Assignment>&,
                              int64_t, Done done) {
  answer(std::move(done));
}

void NoAgents::poll_state(const loop::AgentAddress&, const loop::StatePoll&, Done done) {
  answer(std::move(done));
}

void NoAgents::forget(const loop::AgentAddress&) {}

Replica::Replica(Loop& loop, FaultProxy& proxy, loop::ControllerOptions options)
    : random_(new_seed()),
      client(client_options(loop, proxy), loop.mailbox, loop.timers, loop.clock),
      agents(loop.timers),
      controller(client, agents, loop.timers, random_, std::move(options),
                 [this] { is_lost = true; }) {}

void Jobs::SetUp() {
  Semantics::SetUp();
  NEEDS(server().serves("lockstep.dev/v1alpha1", "trainingjobs"),
        "the TrainingJob CRD is not installed");
}

void Jobs::TearDown() {
  if (!namespace_.empty()) {
    const Json none = {{"metadata", {{"finalizers", nullptr}}}};
    for (const std::string& collection : {jobs(), pods()}) {
      const Reply list = get(collection);
      for (const Json& item : list.body.value("items", Json::array())) {
        const std::string name = meta(item, "name");
        if (item["metadata"].contains("finalizers")) (void)patch(collection + "/" + name, none);
        (void)ask("DELETE", collection + "/" + name + "?gracePeriodSeconds=0");
      }
    }
  }
  Semantics::TearDown();
}

Json Jobs::make_job(const std::string& name, int nodes) {
  Json document = named(name);
  document["apiVersion"] = "lockstep.dev/v1alpha1";
  document["kind"] = "TrainingJob";
  document["spec"] = {{"nodes", nodes}, {"image", "none"}, {"command", Json::array({"true"})}};
  return make(jobs(), document);
}

std::string Jobs::pods_of(const Json& job) {
  std::vector<std::string> found;
  const Reply list = get(pods());
  for (const Json& one : list.body.value("items", Json::array()))
    if (plan::controller_uid(one) == meta(job, "uid") && meta(one, "deletionTimestamp").empty())
      found.push_back(meta(one, "name"));
  std::sort(found.begin(), found.end());
  std::string text;
  for (const std::string& name : found) text += (text.empty() ? "" : " ") + name;
  return text;
}

std::string Jobs::condition(const Json& job, const std::string& type) {
  return string_or(condition_of(job, type), "status", "");
}

std::string Jobs::condition_reason(const Json& job, const std::string& type) {
  return string_or(condition_of(job, type), "reason", "");
}

void Jobs::run_until_quiet(Loop& loop) {
  size_t before = 0;
  do {
    before = proxy.writes().size();
    loop.run_for(kQuiet);
  } while (proxy.writes().size() != before && !HasFailure());
}

}  // namespace lockstep::semantics
