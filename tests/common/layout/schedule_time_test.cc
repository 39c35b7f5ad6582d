#include "common/layout/schedule_time.h"

#include <gtest/gtest.h>

#include "common/layout/pipeline_schedule.h"

namespace lockstep {
namespace {

ScheduleTime time_of(const PipelineShape& shape, const PassSeconds& seconds) {
  return schedule_time(shape, pipeline_schedule(shape).value(), seconds);
}

// The share of idle time that the sources of PipelineKind state, for every shape of up to 8 stages,
// 32 micro-batches and 4 chunks.
double stated_ratio(const PipelineShape& shape) {
  const auto p = static_cast<double>(shape.stages);
  const auto work = static_cast<double>(shape.micro_batches * shape.chunks);
  return shape.kind == PipelineKind::kNaive ? 1 - 1 / p : (p - 1) / (work + p - 1);
}

TEST(ScheduleTime, HasTheIdleShareThatIsStated) {
  for (const PassSeconds& seconds : {PassSeconds{}, {.forward = 1, .backward = 1}}) {
    for (const PipelineKind kind :
         {PipelineKind::kNaive, PipelineKind::kGpipe, PipelineKind::kOneForwardOneBackward}) {
      for (int64_t stages = 1; stages <= 8; ++stages) {
        for (int64_t micro_batches = 1; micro_batches <= 32; ++micro_batches) {
          const PipelineShape shape{.kind = kind, .stages = stages, .micro_batches = micro_batches};
          EXPECT_NEAR(time_of(shape, seconds).idle_ratio, stated_ratio(shape), 1e-9)
              << pipeline_kind_name(kind) << " " << stages << " " << micro_batches;
        }
      }
    }
  }
}

TEST(ScheduleTime, OfInterleavedChunksIsShorter) {
  for (int64_t stages = 2; stages <= 8; ++stages) {
    for (int64_t micro_batches = stages; micro_batches <= 32; micro_batches += stages) {
      for (int64_t chunks = 2; chunks <= 4; ++chunks) {
        const PipelineShape shape{.kind = PipelineKind::kInterleaved,
                                  .stages = stages,
                                  .micro_batches = micro_batches,
                                  .chunks = chunks};
        EXPECT_NEAR(time_of(shape, {}).idle_ratio, stated_ratio(shape), 1e-9)
            << stages << " " << micro_batches << " " << chunks;
      }
    }
  }
}

// (p - 1)(F + B - W) on each stage, if there are as many micro-batches as stages. Source: Qi et
// al., "Zero bubble pipeline parallelism", 2023, table 2.
TEST(ScheduleTime, OfZeroBubbleIdlesOnlyForActivations) {
  for (const PassSeconds& seconds : {PassSeconds{},
                                     {.forward = 1, .backward = 2.2},
                                     {.forward = 1, .backward = 1.8, .weights = 0.9}}) {
    for (int64_t stages = 1; stages <= 8; ++stages) {
      for (int64_t micro_batches = stages; micro_batches <= 32; ++micro_batches) {
        const PipelineShape shape{
            .kind = PipelineKind::kZeroBubble, .stages = stages, .micro_batches = micro_batches};
        const double idle = static_cast<double>(stages - 1) *
                            (seconds.forward + seconds.backward - 2 * seconds.weights);
        for (const double each : time_of(shape, seconds).idle_seconds) {
          EXPECT_NEAR(each, idle, 1e-9) << stages << " " << micro_batches;
        }
      }
    }
  }
}

TEST(ScheduleTime, IsThatOfTheWorkOnOneStage) {
  const ScheduleTime time = time_of({.micro_batches = 3}, {.forward = 2, .backward = 5});
  EXPECT_EQ(time.step_seconds, 21);
  EXPECT_EQ(time.idle_seconds, std::vector<double>{0});
}

}  // namespace
}  // namespace lockstep
