#include <gtest/gtest.h>

#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

// A job of two nodes that trains, whose agents report this precision.
Scene computing_in(const std::string& precision, const std::string& asked = "bf16") {
  Scene scene(2);
  scene.seen.job.spec.train->precision = asked;
  scene.train();
  scene.agent(0).progress.emplace().precision = precision;
  scene.agent(0).progress->step = 1;
  return scene;
}

TEST(PrecisionReduced, IsAConditionAndOneEventThatNameTheRanks) {
  Scene scene = computing_in("fp32");
  scene.agent(1).workers[0].lacks_bf16 = true;
  scene.seen.pods[1].node_name = "node-b";
  const Plan plan = scene.plan();
  const Condition reduced = condition(written(scene, plan), kPrecisionReduced);
  EXPECT_EQ(reduced.status, "True");
  EXPECT_EQ(reduced.reason, "NoNativeBf16");
  EXPECT_EQ(
      reduced.message,
      "spec.train.precision is bf16, but the job computes in fp32: neither AVX512_BF16 nor AMX "
      "on the CPU of rank 1 on node-b");
  ASSERT_EQ(only<EmitEvent>(plan).size(), 1u);
  EXPECT_TRUE(only<EmitEvent>(plan)[0].warning);
  EXPECT_EQ(only<EmitEvent>(plan)[0].reason, "PrecisionReduced");
  EXPECT_EQ(only<EmitEvent>(plan)[0].message, reduced.message);
  scene.settle();
  scene.agent(0).progress->step = 2;
  EXPECT_TRUE(only<EmitEvent>(scene.plan()).empty()) << "it is sent once";
}

TEST(PrecisionReduced, KeepsItsMessageWhileNoReportNamesARank) {
  Scene scene = computing_in("fp32");
  scene.agent(1).workers[0].lacks_bf16 = true;
  scene.settle();
  const std::string before = condition(scene.status(), kPrecisionReduced).message;
  scene.agent(1).workers[0].lacks_bf16 = false;
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kPrecisionReduced).message, before);
}

TEST(PrecisionReduced, NamesSomeOfManyRanks) {
  Scene scene = computing_in("fp32");
  std::vector<WorkerState>& workers = scene.agent(0).workers;
  workers[0].lacks_bf16 = true;
  workers.resize(10, workers[0]);
  scene.settle();
  const std::string message = condition(scene.status(), kPrecisionReduced).message;
  EXPECT_NE(message.find(" and 2 more"), std::string::npos) << message;
}

TEST(PrecisionReduced, DoesNotAppearWhereTheJobComputesAsItAsks) {
  for (const auto& [precision, asked] : std::vector<std::pair<std::string, std::string>>{
           {"bf16", "bf16"}, {"fp32", "fp32"}, {"", "bf16"}}) {
    Scene scene = computing_in(precision, asked);
    scene.settle();
    EXPECT_EQ(find_condition(scene.status(), kPrecisionReduced), nullptr) << precision << asked;
  }
}

TEST(PrecisionReduced, EndsWhenAllRanksComputeInBf16) {
  Scene scene = computing_in("fp32");
  scene.settle();
  ASSERT_TRUE(is_true(scene.status(), kPrecisionReduced));
  scene.agent(0).progress->precision = "bf16";
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kPrecisionReduced).status, "False");
  EXPECT_EQ(condition(scene.status(), kPrecisionReduced).reason, "AsRequested");
}

}  // namespace
}  // namespace lockstep::plan
