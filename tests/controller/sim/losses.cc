// Losses that are not finite or have a spike, and what ranks do about them.
#include <algorithm>

#include "common/api/worker_config.h"
#include "tests/controller/sim/nodes.h"

namespace lockstep::sim {
namespace {

// Without a rule a loss that is not finite ends the job: one of this many.
constexpr uint64_t kEndsOne = 5;

const Assignment& assignment_of_first_rank(const std::vector<Node*>& round) {
  const auto first = std::ranges::find_if(
      round, [](const Node* node) { return node->state.workers.front().rank == 0; });
  return first == round.end() ? round.front()->assignment : (*first)->assignment;
}

std::string batches_of(int64_t from, int64_t step) {
  if (step - from == 1) return "without this batch";
  return "without the batches of steps " + std::to_string(from + 1) + " to " + std::to_string(step);
}

}  // namespace

int64_t Nodes::newest_checkpoint(const std::string& job_uid) const {
  const auto found = checkpoints_.find(job_uid);
  return found == checkpoints_.end() || found->second.empty() ? 0 : found->second.rbegin()->first;
}

void Nodes::resume(const Node& node, int64_t step) {
  Training& training = trainings_[node.state.hash];
  training.resumed_step = step;
  const std::map<int64_t, int64_t>& saved = checkpoints_[node.job_uid];
  const auto checkpoint = saved.find(step);
  if (checkpoint != saved.end()) training.skips = checkpoint->second;
}

void Nodes::save(const Node& node, int64_t step) {
  if (step < newest_checkpoint(node.job_uid)) return;
  checkpoints_[node.job_uid][step] = trainings_[node.state.hash].skips;
}

// A step has the same loss whenever it is computed, by whatever ranks.
Nodes::Loss Nodes::loss_of(const std::string& job_uid, int64_t step) {
  const auto [known, is_new] = step_losses_[job_uid].try_emplace(step, Loss::kGood);
  if (!is_new) return known->second;
  if (chance_.happens(Fault::kLossNotFinite, job_uid)) known->second = Loss::kNotFinite;
  if (chance_.happens(Fault::kLossSpike, job_uid)) known->second = Loss::kSpike;
  return known->second;
}

// Returns whether the ranks end because of the step's loss.
bool Nodes::ends_by_loss(const Round& round, int64_t step) {
  const Assignment& assignment = assignment_of_first_rank(round);
  if (!assignment.train) return false;
  const std::string& uid = round.front()->job_uid;
  Loss loss = loss_of(uid, step);
  const LossRules& rules = assignment.losses;
  const bool is_spared = loss == Loss::kNotFinite && rules == LossRules{} && !chance_.is_quiet &&
                         chance_.random.below(kEndsOne) > 0;
  if (is_spared) step_losses_[uid][step] = loss = Loss::kGood;
  const std::string& action = loss == Loss::kSpike ? rules.spike : rules.not_finite;
  if (loss == Loss::kGood || action.empty()) return false;
  if (go_on_without(trainings_[assignment.hash], uid, action, step)) return false;
  fail_by_loss(round, loss);
  return true;
}

// Returns false if the action is to fail, or there is nothing to go back to.
bool Nodes::go_on_without(Training& training, const std::string& job_uid, std::string_view action,
                          int64_t step) {
  int64_t from = step - 1;
  if (action == kFailAction) return false;
  if (action == kRollBack) {
    const std::map<int64_t, int64_t>& saved = checkpoints_[job_uid];
    const auto newer = saved.lower_bound(step);
    if (newer == saved.begin()) return false;
    from = std::prev(newer)->first;
  }
  ++training.skips;
  ++skips_[job_uid];
  training.skip = "step " + std::to_string(step) +
                  ": bad; training goes on from the state of step " + std::to_string(from) + ", " +
                  batches_of(from, step);
  return true;
}

// All ranks judge by the same bits; some may notice first that another one has left.
void Nodes::fail_by_loss(const Round& round, Loss loss) {
  const bool is_spike = loss == Loss::kSpike;
  bool is_first = true;
  count_failure(round.front()->job_uid);
  for (Node* node : round) {
    if (!node->state.workers.front().running) continue;
    if (!std::exchange(is_first, false) && chance_.flip(0.25)) {
      fail(*node, kExitPeerLost, "Error");
      continue;
    }
    failed_by_loss_.insert({{node->job_uid, node->index, node->incarnation}, node->state.round});
    fail(*node, is_spike ? kExitLossSpike : kExitNotFinite, is_spike ? kLossSpike : kLossNotFinite);
  }
}

void Nodes::report_storage(Node& node) const {
  const Assignment& assignment = node.assignment;
  if (!assignment.train || node.state.workers.front().rank != 0) return;
  const Training& training = trainings_.at(node.state.hash);
  const bool keeps = !assignment.checkpoint.path.empty() || assignment.checkpoint.memory;
  node.state.storage = {.resumed_step = keeps ? training.resumed_step : -1,
                        .skips = training.skips,
                        .skip = training.skip};
}

}  // namespace lockstep::sim
