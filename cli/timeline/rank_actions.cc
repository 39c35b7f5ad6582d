#include "cli/timeline/rank_actions.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace lockstep::cli {
namespace {

bool is_transfer(ActionKind kind) {
  return kind == ActionKind::kReceiveActivation || kind == ActionKind::kSendActivation ||
         kind == ActionKind::kReceiveGradient || kind == ActionKind::kSendGradient;
}

int64_t to_rank_zero(const RankTimeline& timeline) {
  return timeline.begin_ns + timeline.clock.offset_ns;
}

bool continues(const ActionSpan& span, const TimelineRecord& record) {
  return span.action == record.action && span.step == record.step &&
         span.micro_batch == record.micro_batch && span.chunk == record.chunk;
}

int64_t& part_of(StepUse& use, const TimelineRecord& record) {
  switch (record.part) {
    case StepPart::kData:
      return use.data;
    case StepPart::kForward:
      return use.forward;
    case StepPart::kBackward:
      return use.backward;
    case StepPart::kUpdate:
      return use.update;
    case StepPart::kCommunication:
      break;
  }
  return is_transfer(*record.action) ? use.transfers : use.collectives;
}

StepUse use_of(const RankTimeline& rank, const TimelineStep& step) {
  StepUse use{.rank = rank.rank,
              .stage = rank.stage,
              .begin = to_rank_zero(rank) + step.begin_ns,
              .step = step.end_ns - step.begin_ns};
  for (const TimelineRecord& record : rank.records) {
    if (record.step != step.step) continue;
    // The others are waited for, but nothing is transferred.
    if (!record.action && record.part == StepPart::kCommunication) continue;
    part_of(use, record) += record.end_ns - record.begin_ns;
  }
  return use;
}

}  // namespace

std::string ActionSpan::name() const {
  if (!action) return computes ? "begin of step" : "end of step";
  const std::string kind(action_name(*action));
  if (micro_batch < 0) return kind;
  const std::string number = kind + " " + std::to_string(micro_batch);
  return chunk == 0 ? number : number + ", chunk " + std::to_string(chunk);
}

std::vector<ActionSpan> action_spans(const RankTimeline& timeline) {
  std::vector<ActionSpan> spans;
  const int64_t shift = to_rank_zero(timeline);
  for (const TimelineRecord& record : timeline.records) {
    const int64_t begin = shift + record.begin_ns;
    const int64_t end = shift + record.end_ns;
    if (spans.empty() || !continues(spans.back(), record)) {
      spans.push_back({.action = record.action,
                       .step = record.step,
                       .micro_batch = record.micro_batch,
                       .chunk = record.chunk,
                       .version = record.version,
                       .begin_ns = begin,
                       .waits = {}});
    }
    ActionSpan& span = spans.back();
    span.end_ns = std::max(end, span.end_ns);
    if (record.part == StepPart::kCommunication) {
      span.waits.push_back({begin, end});
    } else {
      span.computes = true;
    }
  }
  for (ActionSpan& span : spans) {
    if (!span.computes) span.waits.clear();
  }
  return spans;
}

double StepUse::bubble() const {
  if (step <= 0) return 0;
  return std::clamp(1 - static_cast<double>(computing()) / static_cast<double>(step), 0.0, 1.0);
}

std::vector<StepUse> step_uses(const Recording& recording, int64_t step) {
  std::vector<StepUse> uses;
  for (const RankTimeline& rank : recording.ranks) {
    const auto found = std::ranges::find(rank.steps, step, &TimelineStep::step);
    if (found != rank.steps.end()) uses.push_back(use_of(rank, *found));
  }
  return uses;
}

std::vector<StageBubble> stage_bubbles(const std::vector<StepUse>& uses) {
  std::map<int64_t, std::vector<double>> by_stage;
  for (const StepUse& use : uses) by_stage[use.stage].push_back(use.bubble());
  std::vector<StageBubble> bubbles;
  for (const auto& [stage, shares] : by_stage) {
    double sum = 0;
    for (const double share : shares) sum += share;
    bubbles.push_back({stage, sum / static_cast<double>(shares.size())});
  }
  return bubbles;
}

std::string bubble_text(const std::vector<StepUse>& uses) {
  double sum = 0;
  for (const StepUse& use : uses) sum += use.bubble();
  std::string text = "bubble " + percent(uses.empty() ? 0 : sum / static_cast<double>(uses.size()));
  const std::vector<StageBubble> stages = stage_bubbles(uses);
  if (stages.size() < 2) return text;
  std::string list;
  for (const StageBubble& stage : stages) {
    list += (list.empty() ? "" : ", ") + std::string("stage ") + std::to_string(stage.stage) +
            ": " + percent(stage.bubble);
  }
  return text + " (" + list + ")";
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

}  // namespace lockstep::cli
