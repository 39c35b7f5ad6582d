#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "controller/plan/backoff.h"
#include "controller/plan/images.h"
#include "controller/plan/ledger.h"
#include "controller/plan/names.h"
#include "controller/plan/pass.h"
#include "controller/plan/pod_template.h"

namespace lockstep::plan {
namespace {

void delete_superseded(Pass& pass) {
  for (const PodView& pod : pass.seen.pods) {
    const bool is_member = pod.node_index >= 0 &&
                           pod.node_index < static_cast<int64_t>(pass.members.size()) &&
                           pass.members[static_cast<size_t>(pod.node_index)] == pod.incarnation;
    if (is_member || !pod.live()) continue;
    pass.act(DeletePod{
        .name = pod.name, .uid = pod.uid, .grace_seconds = pod_grace_seconds(pass.spec())});
  }
}

// Looks for each pod that a missing one is to replace, but for those that are seen or known to be
// gone, and takes what waits for that from `missing`. Such a pod may have lost the labels by which
// the cache finds it, and its agent would go on in an older round. A confirmation puts them back,
// and then it is deleted.
void confirm_replaced(Pass& pass, std::vector<int64_t>& missing) {
  if (missing.empty()) return;
  std::set<std::pair<int64_t, int64_t>> seen;  // node index and incarnation
  for (const PodView& pod : pass.seen.pods) seen.emplace(pod.node_index, pod.incarnation);
  std::erase_if(missing, [&](int64_t index) {
    const int64_t incarnation = pass.members[static_cast<size_t>(index)] - 1;
    if (incarnation < 1 || seen.contains({index, incarnation})) return false;
    const std::string name = member_pod_name(pass.job(), index, incarnation);
    if (pass.seen.absent_pods.contains(name)) return false;
    pass.act(ConfirmPod{.name = name});
    return true;
  });
}

// After the server refused a pod, sends only one, and not before retry_at.
bool must_wait_after_refusal(Pass& pass, std::vector<int64_t>& missing) {
  const auto& refusal = pass.seen.refusal;
  if (!refusal) return false;
  if (pass.now < refusal->retry_at) {
    pass.requeue(refusal->retry_at);
    return true;
  }
  missing.resize(1);
  return false;
}

bool is_backing_off(Pass& pass) {
  const auto& last = pass.status.lastFailure;
  return last && last->round == pass.status.round && must_back_off(pass, *last);
}

std::shared_ptr<const PodText> text_of_pods(const Pass& pass, MemberRole role) {
  const std::string& image = agent_image_of(pass);
  const NewPod pod{.role = role,
                   .round = pass.status.round,
                   .avoid = nodes_to_avoid(pass.status, pass.spec().failure.avoidNodes),
                   .shun = lately_lost_nodes(pass.status, pass.seen.wall_now),
                   .image = image,
                   .agent_image = pass.limits.agent_image.empty() ? "" : image,
                   .scrape_annotations = pass.limits.scrape_annotations,
                   .requests = requests_of_next_pod(pass)};
  return std::make_shared<const PodText>(make_worker_pod(pass.job(), pod), pass.job().metadata.name,
                                         role);
}

}  // namespace

// Keeps one pod for each member and no others. The pod before a new one has been deleted, or has
// ended, before the new one is created. A pod that hangs in Terminating does not hold up its
// successor, which has another name.
Verdict placement(Pass& pass) {
  delete_superseded(pass);
  std::vector<int64_t> missing;
  for (size_t i = 0; i < pass.current.size(); ++i) {
    if (pass.current[i] == nullptr) missing.push_back(static_cast<int64_t>(i));
  }
  confirm_replaced(pass, missing);
  if (!missing.empty() && !is_backing_off(pass) && !must_wait_after_refusal(pass, missing)) {
    pass.act(CreateSecret{.name = token_secret_name(pass.job().metadata),
                          .body = make_token_secret(pass.job(), pass.seen.job_token)});
    std::map<MemberRole, std::shared_ptr<const PodText>> pods;
    for (const int64_t index : missing) {
      const int64_t incarnation = pass.members[static_cast<size_t>(index)];
      const MemberRole role = role_of_node(pass.spec(), index);
      std::shared_ptr<const PodText>& text = pods[role];
      if (text == nullptr) text = text_of_pods(pass, role);
      pass.act(CreatePod{.name = member_pod_name(pass.job(), index, incarnation),
                         .index = index,
                         .incarnation = incarnation,
                         .pods = text});
    }
  }
  if (pass.plan.actions.empty()) return Verdict::kNext;
  pass.plan.why = "pods must be created or deleted to match the members";
  return Verdict::kActed;
}

}  // namespace lockstep::plan
