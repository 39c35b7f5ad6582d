#include "common/layout/pipeline_schedule.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "common/layout/stage_pass.h"

namespace lockstep {
namespace {

std::vector<Pass> one_at_a_time(const PipelineShape& shape) {
  std::vector<Pass> passes;
  for (int64_t micro = 0; micro < shape.micro_batches; ++micro) {
    passes.push_back({ActionKind::kForward, micro, 0});
    passes.push_back({ActionKind::kBackward, micro, 0});
  }
  return passes;
}

// Begins with `ahead` forwards, then alternates. `forward` and `backward` give the n-th pass.
template <class Forward, class Backward>
std::vector<Pass> alternating(int64_t count, int64_t ahead, Forward forward, Backward backward) {
  std::vector<Pass> passes;
  for (int64_t n = 0; n < count + ahead; ++n) {
    if (n < count) passes.push_back(forward(n));
    if (n >= ahead) passes.push_back(backward(n - ahead));
  }
  return passes;
}

std::vector<Pass> plain(const PipelineShape& shape, int64_t ahead) {
  return alternating(
      shape.micro_batches, std::min(ahead, shape.micro_batches),
      [](int64_t n) {
        return Pass{ActionKind::kForward, n, 0};
      },
      [](int64_t n) {
        return Pass{ActionKind::kBackward, n, 0};
      });
}

// Chunks take turns: each processes as many micro-batches as there are stages, then the next one.
std::vector<Pass> interleaved(const PipelineShape& shape, int64_t stage) {
  const int64_t stages = shape.stages;
  const int64_t chunks = shape.chunks;
  const auto micro_batch = [=](int64_t n) { return n / (stages * chunks) * stages + n % stages; };
  const auto chunk = [=](int64_t n) { return n % (stages * chunks) / stages; };
  const int64_t count = shape.micro_batches * chunks;
  const int64_t ahead = std::min(count, (stages - stage - 1) * 2 + (chunks - 1) * stages);
  return alternating(
      count, ahead,
      [=](int64_t n) {
        return Pass{ActionKind::kForward, micro_batch(n), chunk(n)};
      },
      [=](int64_t n) {
        return Pass{ActionKind::kBackward, micro_batch(n), chunks - 1 - chunk(n)};
      });
}

// As plain(), where the gradients of parameters follow `stage` backwards later, so that every stage
// keeps as many micro-batches as the first one. Those that are left after the last backward fill
// the time in which a stage would wait for the stages before it.
std::vector<Pass> zero_bubble(const PipelineShape& shape, int64_t stage) {
  std::vector<Pass> passes;
  int64_t backwards = 0;
  int64_t weights = 0;
  for (const Pass& pass : plain(shape, shape.stages - stage - 1)) {
    passes.push_back(pass);
    if (pass.kind != ActionKind::kBackward || backwards++ < stage) continue;
    passes.push_back({ActionKind::kBackwardWeights, weights++, 0});
  }
  while (weights < shape.micro_batches) {
    passes.push_back({ActionKind::kBackwardWeights, weights++, 0});
  }
  return passes;
}

std::vector<Pass> passes_of(const PipelineShape& shape, int64_t stage) {
  switch (shape.kind) {
    case PipelineKind::kNaive:
      return one_at_a_time(shape);
    case PipelineKind::kGpipe:
      return plain(shape, shape.micro_batches);
    case PipelineKind::kOneForwardOneBackward:
      return plain(shape, shape.stages - stage - 1);
    case PipelineKind::kZeroBubble:
      return zero_bubble(shape, stage);
    case PipelineKind::kInterleaved:
    case PipelineKind::kPipeDream:
      break;
  }
  return interleaved(shape, stage);
}

// Builds the list of one stage.
class StageList {
 public:
  StageList(const PipelineShape& shape, int64_t stage)
      : shape_(shape),
        stage_(stage),
        left_(static_cast<size_t>(shape.chunks), shape.micro_batches) {}

  std::vector<Action> build(const std::vector<Pass>& passes) && {
    for (const Pass& pass : passes) add(pass);
    actions_.push_back({.kind = ActionKind::kFinishReductions});
    actions_.push_back({.kind = ActionKind::kUpdate});
    return std::move(actions_);
  }

 private:
  void add(Pass pass) {
    if (pass.kind == gradients_in(shape_)) {
      pass.completes_gradients = --left_[static_cast<size_t>(pass.chunk)] == 0;
    }
    add_pass(shape_, stage_, pass, actions_);
  }

  const PipelineShape& shape_;
  int64_t stage_;
  std::vector<int64_t> left_;  // backwards of each chunk
  std::vector<Action> actions_;
};

}  // namespace

namespace {

Status refused(const PipelineShape& shape, const std::string& reason) {
  return invalid("[schedule] " + std::string(pipeline_kind_name(shape.kind)) + " with " +
                 std::to_string(shape.stages) + " stages, " + std::to_string(shape.micro_batches) +
                 " micro-batches and " + std::to_string(shape.chunks) + " chunks: " + reason);
}

}  // namespace

Status validate(const PipelineShape& shape) {
  if (shape.stages < 1 || shape.micro_batches < 1 || shape.chunks < 1) {
    return refused(shape, "each must be at least 1");
  }
  if (shape.kind != PipelineKind::kInterleaved) {
    return shape.chunks == 1 ? Status()
                             : refused(shape, "only an interleaved schedule has several chunks");
  }
  if (shape.chunks < 2) return refused(shape, "an interleaved schedule has several chunks");
  if (shape.micro_batches % shape.stages != 0) {
    return refused(shape, "the micro-batches must be a multiple of the stages");
  }
  return {};
}

std::string_view pipeline_kind_name(PipelineKind kind) {
  constexpr std::array<std::string_view, 6> kNames{"naive",       "gpipe",      "1f1b",
                                                   "interleaved", "zerobubble", "pipedream"};
  return kNames[static_cast<size_t>(kind)];
}

Result<PipelineKind> parse_pipeline_kind(std::string_view name) {
  for (const PipelineKind kind :
       {PipelineKind::kNaive, PipelineKind::kGpipe, PipelineKind::kOneForwardOneBackward,
        PipelineKind::kInterleaved, PipelineKind::kZeroBubble, PipelineKind::kPipeDream}) {
    if (name == pipeline_kind_name(kind)) return kind;
  }
  return invalid(
      "[schedule] expected naive, gpipe, 1f1b, interleaved, zerobubble or pipedream, got \"" +
          std::string(name) + "\"",
      Blame::kConfig);
}

std::string_view action_name(ActionKind kind) {
  constexpr std::array<std::string_view, 10> kNames{
      "take",     "receive activation", "forward",          "send activation",   "receive gradient",
      "backward", "send gradient",      "backward weights", "finish reductions", "update"};
  return kNames[static_cast<size_t>(kind)];
}

ActionKind gradients_in(const PipelineShape& shape) {
  return shape.kind == PipelineKind::kZeroBubble ? ActionKind::kBackwardWeights
                                                 : ActionKind::kBackward;
}

Result<PipelineSchedule> pipeline_schedule(const PipelineShape& shape) {
  TRY(validate(shape));
  if (shape.kind == PipelineKind::kPipeDream) return refused(shape, "its steps overlap").error();
  PipelineSchedule schedule;
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    schedule.push_back(StageList(shape, stage).build(passes_of(shape, stage)));
  }
  return schedule;
}

namespace {

template <class Counts>
int64_t peak_of(const std::vector<Action>& actions, Counts counts) {
  const bool splits = std::ranges::count(actions, ActionKind::kBackwardWeights, &Action::kind) > 0;
  const ActionKind last = splits ? ActionKind::kBackwardWeights : ActionKind::kBackward;
  int64_t now = 0;
  int64_t peak = 0;
  for (const Action& action : actions) {
    if (!counts(action)) continue;
    if (action.kind == ActionKind::kForward) peak = std::max(peak, ++now);
    if (action.kind == last) --now;
  }
  return peak;
}

}  // namespace

int64_t peak_in_flight(const std::vector<Action>& actions) {
  return peak_of(actions, [](const Action&) { return true; });
}

int64_t peak_in_flight(const std::vector<Action>& actions, int64_t chunk) {
  return peak_of(actions, [chunk](const Action& action) { return action.chunk == chunk; });
}

int64_t automatic_micro_batch(int64_t share, int64_t stages, int64_t turn) {
  if (stages == 1) return share;
  const int64_t wanted = std::min(share, kMicroBatchesPerStage * stages);
  int64_t micro = share / wanted;
  while (micro > 1 && share % (micro * turn) != 0) --micro;
  return micro;
}

}  // namespace lockstep
