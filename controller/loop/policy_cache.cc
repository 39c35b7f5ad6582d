#include "controller/loop/policy_cache.h"

#include <algorithm>
#include <utility>

#include "controller/plan/names.h"

namespace lockstep::loop {
namespace {

bool writes_policy(const plan::Plan& plan) {
  return std::any_of(plan.actions.begin(), plan.actions.end(), [](const plan::Action& action) {
    return std::holds_alternative<plan::WriteNetworkPolicy>(action) ||
           std::holds_alternative<plan::DeleteNetworkPolicy>(action);
  });
}

InformerOptions with_answers(InformerOptions informer,
                             std::function<void(const ApiReply&)> on_list_failed) {
  informer.on_list_failed = std::move(on_list_failed);
  return informer;
}

}  // namespace

PolicyCache::PolicyCache(ApiClient& api, Timers& timers, Random& random, Options options)
    : timers_(timers),
      options_(std::move(options)),
      policies_(
          api, timers, random,
          with_answers(options_.informer, [this](const ApiReply& reply) { on_unlisted(reply); }),
          [this](const std::string&, const Json* before, const Json* after) {
            // Somebody may have removed the owner or the label: both sides count.
            for (const Json* policy : {before, after}) {
              if (policy != nullptr) options_.on_change(*policy);
            }
          },
          [this] { on_listed(); }) {}

void PolicyCache::on_listed() {
  trouble_ = {};
  lists_failed_ = 0;
  options_.on_all_changed();
}

// Jobs go on without policies where the server refuses to list them, or fails to again and again. A
// server that only asks for time has not failed.
void PolicyCache::on_unlisted(const ApiReply& reply) {
  if (reply.outcome == ApiOutcome::kThrottled) return;
  const bool is_refused = reply.outcome == ApiOutcome::kForbidden ||
                          reply.outcome == ApiOutcome::kNotFound ||
                          reply.outcome == ApiOutcome::kInvalid;
  if (!is_refused && ++lists_failed_ <= kTroublesBorne) return;
  const bool is_new = trouble_.reason.empty();
  trouble_ = {.reason = reply.outcome == ApiOutcome::kForbidden  ? "PolicyForbidden"
                        : reply.outcome == ApiOutcome::kNotFound ? "PolicyKindMissing"
                                                                 : "PolicyFailed",
              .message = "NetworkPolicies cannot be listed: " + reply.message};
  if (is_new) options_.on_all_changed();
}

plan::NetworkPolicyView PolicyCache::view(const ObjectMeta& job) const {
  const CachedObject* known = policies_.find(job.namespace_ + "/" + plan::network_policy_name(job));
  plan::NetworkPolicyView view{.object = known == nullptr ? nullptr : &*known->json()};
  if (!policies_.synced()) {
    view.reason = trouble_.reason;
    view.message = trouble_.message;
    view.writable_at = TimePoint::max();
  } else if (const auto writes = writes_.find(job.uid); writes != writes_.end()) {
    view.reason = writes->second.trouble.reason;
    view.message = writes->second.trouble.message;
    view.writable_at = writes->second.next_at;
  }
  return view;
}

void PolicyCache::planned(const std::string& job_uid, const plan::Plan& plan) {
  Writes& writes = writes_[job_uid];
  if (!writes_policy(plan) && timers_.now() >= writes.next_at) writes.answered = 0;
}

PolicyCache::Writes* PolicyCache::writes_of(const JobContext& job) {
  const auto found = writes_.find(job.uid);
  return found == writes_.end() ? nullptr : &found->second;
}

void PolicyCache::written(const JobContext& job, const SharedJson& policy) {
  if (Writes* writes = writes_of(job)) {
    writes->trouble = {};
    writes->failed = 0;
    writes->next_at = options_.next_try(writes->answered++);
  }
  policies_.learn_written(policy);
}

void PolicyCache::gone(const JobContext& job, const std::string& name, const std::string& uid) {
  if (Writes* writes = writes_of(job)) {
    writes->trouble = {};
    writes->failed = 0;
  }
  policies_.learn_absent(job.namespace_ + "/" + name, uid);
}

void PolicyCache::outdated(const JobContext& job) {
  if (Writes* writes = writes_of(job)) writes->next_at = options_.next_try(writes->answered++);
}

void PolicyCache::refused(const JobContext& job, const std::string& reason,
                          const std::string& message) {
  Writes* writes = writes_of(job);
  if (writes == nullptr) return;
  writes->trouble = {.reason = reason, .message = message};
  writes->next_at = options_.next_try(writes->answered++);
}

bool PolicyCache::failed(const JobContext& job, const std::string& message) {
  Writes* writes = writes_of(job);
  if (writes == nullptr || ++writes->failed <= kTroublesBorne) return false;
  refused(job, "PolicyFailed", message);
  return true;
}

}  // namespace lockstep::loop
