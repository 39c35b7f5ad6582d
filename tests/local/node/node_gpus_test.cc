// Tests which GPUs the containers of a local node see.
#include <set>

#include "tests/local/node/node_fixture.h"

namespace lockstep::local {
namespace {

TEST(VisibleGpus, AreThoseThatCudaWouldSee) {
  struct Case {
    int64_t count;
    const char* visible;
    Gpus gpus;
  };
  const Case cases[] = {
      {0, nullptr, {}},
      {3, nullptr, {"0", "1", "2"}},
      {3, "", {}},
      {3, "-1", {}},
      {3, "2,0", {"2", "0"}},
      {3, "1,7,0", {"1"}},
      {3, "1,x,0", {"1"}},
      {3, "GPU-ab,MIG-cd", {"GPU-ab", "MIG-cd"}},
      {3, "99999999999999999999", {}},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(visible_gpus(one.count, one.visible), one.gpus)
        << (one.visible == nullptr ? "unset" : one.visible);
  }
}

TEST(GpuPool, GivesEachGpuToOneAtATime) {
  GpuPool pool;
  pool.add("m", {"0", "1", "2"});
  EXPECT_EQ(pool.total("m"), 3);
  EXPECT_EQ(pool.total("other"), 0);
  EXPECT_EQ(pool.take("m", 2), (Gpus{"0", "1"}));
  EXPECT_EQ(pool.take("m", 2), std::nullopt);
  EXPECT_EQ(pool.take("m", -1), std::nullopt);
  EXPECT_EQ(pool.take("other", 1), std::nullopt);
  EXPECT_EQ(pool.take("m", 0), Gpus{});
  EXPECT_EQ(pool.take("m", 1), Gpus{"2"});
  pool.give_back("m", {"1"});
  pool.give_back("m", {"0"});
  EXPECT_EQ(pool.take("m", 2), (Gpus{"0", "1"})) << "in their order";
}

Json with_gpus(Json pod, int gpus) {
  pod["spec"]["containers"][0]["resources"] = {{"limits", {{"nvidia.com/gpu", gpus}}}};
  return pod;
}

constexpr char kTell[] =
    "echo \"gpus $CUDA_VISIBLE_DEVICES of $NVIDIA_VISIBLE_DEVICES\"; sleep 1000";

TEST_F(NodeTest, ContainersWithALimitHaveGpusOfTheirOwn) {
  start_node(0, {"0", "1", "2"});
  EXPECT_EQ(ask("GET", "/api/v1/nodes/local").body["status"]["capacity"]["nvidia.com/gpu"], "3");
  make(with_gpus(shell_pod("a", kTell), 2));
  ASSERT_TRUE(wait_for_log("a", "gpus 0,1 of 0,1\n")) << log_of("a");
  make(with_gpus(shell_pod("c", kTell), 1));
  ASSERT_TRUE(wait_for_log("c", "gpus 2 of 2\n")) << log_of("c");
  make(with_gpus(shell_pod("b", kTell), 2));
  ASSERT_TRUE(wait_until([&] {
    return dump_json(get("b")["status"]).find("Insufficient nvidia.com/gpu") != std::string::npos;
  }));
  EXPECT_EQ(ask("DELETE", std::string(kPods) + "/a", {{"gracePeriodSeconds", 0}}).code, 200);
  ASSERT_TRUE(wait_for_log("b", "gpus 0,1 of 0,1\n")) << log_of("b");
}

TEST_F(NodeTest, WhatAsksForMoreGpusThanThereAreIsRefused) {
  start_node(0, {"0"});
  Json pod = with_gpus(shell_pod("p", "true"), 2);
  pod["spec"]["nodeName"] = "local";  // bypasses the scheduler
  make(pod);
  ASSERT_TRUE(wait_for_phase("p", "Failed"));
  EXPECT_EQ(get("p")["status"]["reason"], "UnexpectedAdmissionError");
  EXPECT_NE(get("p")["status"]["message"].get<std::string>().find("Requested: 2, Available: 1"),
            std::string::npos);
}

TEST_F(NodeTest, APodThatIsEarlyWaitsForItsGpus) {
  start_node(0, {"0"});
  make(with_gpus(shell_pod("a", kTell), 1));
  ASSERT_TRUE(wait_for_log("a", "gpus 0 of 0\n"));
  Json pod = with_gpus(shell_pod("b", kTell), 1);
  pod["spec"]["nodeName"] = "local";
  make(pod);
  ASSERT_TRUE(wait_for_event("GpusInUse", "waiting for GPUs"));
  EXPECT_EQ(ask("DELETE", std::string(kPods) + "/a", {{"gracePeriodSeconds", 0}}).code, 200);
  ASSERT_TRUE(wait_for_log("b", "gpus 0 of 0\n"));
}

}  // namespace
}  // namespace lockstep::local
