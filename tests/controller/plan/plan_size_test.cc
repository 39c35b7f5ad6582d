// One job can't fill the controller's memory: its template is limited, and a plan holds no pods.
#include <gtest/gtest.h>
#include <malloc.h>

#include <string>
#include <vector>

#include "controller/plan/fixed_fields.h"
#include "controller/plan/names.h"
#include "controller/plan/template_size.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

// A template of `bytes` bytes as JSON, half of it many small values.
Json template_of(size_t bytes) {
  constexpr size_t kNoteBytes = 20;  // at most
  Json result = {{"metadata", {{"annotations", Json::object()}}}};
  Json& annotations = result["metadata"]["annotations"];
  for (size_t i = 0; i < bytes / 2 / kNoteBytes; ++i) {
    annotations["note-" + std::to_string(i)] = "v";
  }
  annotations["pad"] = "";
  annotations["pad"] = std::string(bytes - dump_json(result).size(), 'x');
  return result;
}

size_t heap_bytes() {
  return ::mallinfo2().uordblks;
}

TEST(PlanSize, NoPodsBodyIsInThePlanOfALargeJob) {
  constexpr size_t kNodes = 1000;
  Scene scene(kNodes);
  scene.seen.job.spec.podTemplate = template_of(kPodTemplateBytesMax);
  scene.settle();
  const size_t before = heap_bytes();
  const Plan plan = scene.plan();
  const size_t took = heap_bytes() - before;
  ASSERT_EQ(only<CreatePod>(plan).size(), kNodes);
  EXPECT_LT(took / kNodes, 8 * 1024u);
  const Json last = body_of(only<CreatePod>(plan)[kNodes - 1]);
  EXPECT_EQ(last["metadata"]["name"], "job-worker-999-1");
  EXPECT_EQ(last["metadata"]["labels"][kNodeIndexLabel], "999");
  EXPECT_TRUE(last["metadata"]["annotations"].contains("note-0"));
}

TEST(PlanSize, ATemplateAboveTheLimitIsRefusedByItsPath) {
  for (const size_t above : {0u, 1u}) {
    Scene scene(2);
    scene.seen.job.spec.podTemplate = template_of(kPodTemplateBytesMax + above);
    const TrainingJobStatus status = written(scene, scene.plan());
    EXPECT_EQ(condition(status, kValid).status, above == 0 ? "True" : "False");
    if (above == 0) continue;
    EXPECT_EQ(condition(status, kValid).message,
              "spec.podTemplate: found 65537 bytes as JSON, expected at most 65536; move large "
              "texts to a ConfigMap and mount it");
  }
}

// An earlier version accepted it. The user changes something else after the upgrade, and a pod is
// missing.
TEST(PlanSize, AJobThatRunsWithALargerTemplateGoesOn) {
  Scene scene(2);
  scene.settle();
  scene.add_pod(0);
  scene.seen.job.spec.podTemplate = template_of(2 * kPodTemplateBytesMax);
  scene.status().fixed = fixed_fields(scene.seen.job.spec);
  ++scene.seen.job.metadata.generation;
  scene.seen.job.spec.failure.maxRestarts = 77;
  const Plan plan = scene.plan();
  EXPECT_EQ(condition(written(scene, plan), kValid).status, "True");
  const std::vector<CreatePod> made = only<CreatePod>(plan);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_TRUE(body_of(made[0])["metadata"]["annotations"].contains("note-0"));
  scene.seen.job.spec.podTemplate = template_of(2 * kPodTemplateBytesMax + 1);
  EXPECT_EQ(condition(written(scene, scene.plan()), kValid).status, "False");
}

TEST(PlanSize, AJobThatIsSuspendedMeetsTheLimitBeforeItGoesOn) {
  Scene scene(2);
  scene.train();
  scene.seen.job.spec.podTemplate = template_of(2 * kPodTemplateBytesMax);
  scene.status().fixed = "";
  scene.settle();
  ++scene.seen.job.metadata.generation;
  scene.seen.job.spec.suspend = true;
  scene.settle();
  EXPECT_EQ(scene.status().state, "Suspended");
  scene.seen.pods.clear();
  ++scene.seen.job.metadata.generation;
  scene.seen.job.spec.suspend = false;
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kValid).status, "False");
  EXPECT_TRUE(only<CreatePod>(scene.plan()).empty());
}

}  // namespace
}  // namespace lockstep::plan
