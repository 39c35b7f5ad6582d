#include "common/layout/schedule_play.h"

#include <compare>
#include <deque>
#include <map>

namespace lockstep {
namespace {

std::string step_text(int64_t step) {
  return step < 0 ? "" : " of step " + std::to_string(step);
}

}  // namespace

bool is_of_micro_batch(ActionKind kind) {
  return kind != ActionKind::kFinishReductions && kind != ActionKind::kUpdate;
}

std::string describe(const Action& action) {
  std::string text(action_name(action.kind));
  if (action.micro_batch >= 0) text += " " + std::to_string(action.micro_batch);
  if (is_of_micro_batch(action.kind)) text += " of chunk " + std::to_string(action.chunk);
  text += step_text(action.step);
  if (action.peer >= 0) text += " with stage " + std::to_string(action.peer);
  return text;
}

bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}
bool is_receive(ActionKind kind) {
  return kind == ActionKind::kReceiveActivation || kind == ActionKind::kReceiveGradient;
}

namespace {

// A message, as the receiver names it.
struct Parcel {
  bool is_activation = true;
  int64_t step = -1;
  int64_t micro_batch = 0;
  int64_t chunk = 0;  // of the receiving stage

  bool operator==(const Parcel&) const = default;
};

// From stage to stage.
struct Channel {
  int64_t from = 0;
  int64_t to = 0;
  bool has_activations = true;  // else gradients

  auto operator<=>(const Channel&) const = default;
};

// Plays all stages: a receive waits until its message was sent, a send until its channel has room,
// and everything else happens at once.
class Play {
 public:
  Play(const PipelineShape& shape, const PipelineSchedule& schedule)
      : shape_(shape), schedule_(schedule), next_(schedule.size(), 0) {}

  void run(std::vector<std::string>& problems) {
    bool moves = true;
    while (moves && problems.empty()) {
      moves = false;
      for (size_t stage = 0; stage < schedule_.size(); ++stage) {
        while (next_[stage] < schedule_[stage].size() && step(stage, problems)) moves = true;
      }
    }
    if (problems.empty()) report_stuck(problems);
  }

 private:
  // Returns false if the stage waits.
  bool step(size_t stage, std::vector<std::string>& problems) {
    const Action& action = schedule_[stage][next_[stage]];
    const auto own = static_cast<int64_t>(stage);
    if (is_send(action.kind)) {
      std::deque<Parcel>& queue =
          sent_[{own, action.peer, action.kind == ActionKind::kSendActivation}];
      if (queue.size() == 2 * static_cast<size_t>(kChannelSlots)) return false;
      queue.push_back(parcel_of(own, action));
    }
    if (is_receive(action.kind)) {
      const bool is_activation = action.kind == ActionKind::kReceiveActivation;
      std::deque<Parcel>& queue = sent_[{action.peer, own, is_activation}];
      if (queue.empty()) return false;
      const Parcel expected{is_activation, action.step, action.micro_batch, action.chunk};
      if (queue.front() != expected) {
        problems.push_back(at(stage) + describe(action) + ", but the next message is " +
                           std::string(queue.front().is_activation ? "activation " : "gradient ") +
                           std::to_string(queue.front().micro_batch) +
                           step_text(queue.front().step));
        return false;
      }
      queue.pop_front();
    }
    ++next_[stage];
    return true;
  }

  Parcel parcel_of(int64_t stage, const Action& send) const {
    const bool is_activation = send.kind == ActionKind::kSendActivation;
    const int64_t part = shape_.part(stage, send.chunk) + (is_activation ? 1 : -1);
    return {is_activation, send.step, send.micro_batch, part / shape_.stages};
  }

  std::string at(size_t stage) const {
    return "stage " + std::to_string(stage) + ", action " + std::to_string(next_[stage]) + ": ";
  }

  void report_stuck(std::vector<std::string>& problems) const {
    for (size_t stage = 0; stage < schedule_.size(); ++stage) {
      if (next_[stage] == schedule_[stage].size()) continue;
      problems.push_back(at(stage) + "waits forever to " +
                         describe(schedule_[stage][next_[stage]]));
    }
    for (const auto& [channel, queue] : sent_) {
      if (queue.empty() || !problems.empty()) continue;
      problems.push_back("stage " + std::to_string(channel.to) + " never receives " +
                         std::to_string(queue.size()) + " messages of stage " +
                         std::to_string(channel.from));
    }
  }

  const PipelineShape& shape_;
  const PipelineSchedule& schedule_;
  std::vector<size_t> next_;
  std::map<Channel, std::deque<Parcel>> sent_;
};

}  // namespace

void play(const PipelineShape& shape, const PipelineSchedule& schedule,
          std::vector<std::string>& problems) {
  Play(shape, schedule).run(problems);
}

}  // namespace lockstep
