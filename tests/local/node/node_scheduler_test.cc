// Tests the scheduler in isolation: where pods go, and what it reports for pods that fit nowhere.
#include <gtest/gtest.h>

#include "local/node/scheduler.h"

namespace lockstep::local {
namespace {

class SchedulerTest : public testing::Test {
 protected:
  static Json node(const std::string& name, const std::string& cpu = "8", int pods = 110) {
    return {{"metadata",
             {{"name", name}, {"labels", {{"kubernetes.io/hostname", name}, {"slots", "4"}}}}},
            {"status",
             {{"allocatable", {{"cpu", cpu}, {"memory", "8Gi"}, {"pods", std::to_string(pods)}}}}}};
  }
  static Json pod(const std::string& name, const std::string& owner = "", Json spec = {}) {
    Json made = {{"metadata",
                  {{"name", name},
                   {"namespace", "default"},
                   {"uid", "uid-" + name},
                   {"creationTimestamp", "2026-01-01T00:00:00Z"}}},
                 {"spec", spec.is_null() ? Json::object() : std::move(spec)}};
    if (!owner.empty())
      made["metadata"]["ownerReferences"] = Json::array(
          {{{"kind", "TrainingJob"}, {"name", owner}, {"uid", owner}, {"controller", true}}});
    return made;
  }
  static Json asking(const std::string& cpu) {
    return {{"containers", Json::array({{{"resources", {{"requests", {{"cpu", cpu}}}}}}})}};
  }
  void add(const Json& pod) { scheduler_.pod_changed(pod, clock_.now()); }
  void end(Json pod, const std::string& node) {
    pod["spec"]["nodeName"] = node;
    pod["status"]["phase"] = "Succeeded";
    add(pod);
  }
  // Places pods. Returns, for example, "a>m0, b: why".
  std::string placed() {
    std::string text;
    for (const Placement& placement : scheduler_.place(clock_.now())) {
      text += (text.empty() ? "" : ", ") + placement.name;
      text += placement.node.empty() ? ": " + placement.message : ">" + placement.node;
    }
    return text;
  }

  ManualClock clock_;
  std::map<std::string, OwnerFacts> owners_;
  Scheduler scheduler_{[this](const std::string&, const Json& owner) {
                         return owners_[owner["name"].get<std::string>()];
                       },
                       {}};
};

TEST_F(SchedulerTest, SpreadsPodsOverMachines) {
  for (const char* name : {"m0", "m1", "m2"}) scheduler_.node_changed(node(name));
  for (const char* name : {"a", "b", "c", "d"}) {
    add(pod(name));
  }
  EXPECT_EQ(placed(), "a>m0, b>m1, c>m2, d>m0");
}

TEST_F(SchedulerTest, SpreadsThePodsOfAnOwnerFirst) {
  for (const char* name : {"m0", "m1"}) scheduler_.node_changed(node(name));
  for (const char* name : {"a", "b", "c"}) add(pod(name));
  EXPECT_EQ(placed(), "a>m0, b>m1, c>m0");
  owners_["job"].pods = 2;
  add(pod("job-0", "job"));
  add(pod("job-1", "job"));
  EXPECT_EQ(placed(), "job-0>m1, job-1>m0");
}

TEST_F(SchedulerTest, SaysInTheWordsOfKubeSchedulerWhyNot) {
  EXPECT_EQ((add(pod("none")), placed()), "none: no nodes available to schedule pods");
  Json cordoned = node("m0");
  cordoned["spec"]["unschedulable"] = true;
  Json tainted = node("m1");
  tainted["spec"]["taints"] =
      Json::array({{{"key", "k"}, {"value", "v"}, {"effect", "NoSchedule"}}});
  scheduler_.node_changed(cordoned);
  scheduler_.node_changed(tainted);
  scheduler_.node_changed(node("m2", "1"));
  scheduler_.node_changed(node("m3", "8", 0));
  add(pod("p", "", asking("1500m")));
  std::string text = placed();
  EXPECT_NE(text.find("p: 0/4 nodes are available: 1 Insufficient cpu, 1 Too many pods, 1 node(s) "
                      "had untolerated taint {k: v}, 1 node(s) were unschedulable."),
            std::string::npos)
      << text;
  EXPECT_EQ(placed(), "");
}

TEST_F(SchedulerTest, PlacesAPodOnceThereIsRoom) {
  scheduler_.node_changed(node("m0", "2"));
  add(pod("a", "", asking("2")));
  EXPECT_EQ(placed(), "a>m0");
  add(pod("b", "", asking("1")));
  EXPECT_EQ(placed(), "b: 0/1 nodes are available: 1 Insufficient cpu.");
  end(pod("a", "", asking("2")), "m0");
  EXPECT_EQ(placed(), "b>m0");
}

TEST_F(SchedulerTest, HonoursSelectorsAffinityAndTolerations) {
  Json tainted = node("m1");
  tainted["spec"]["taints"] =
      Json::array({{{"key", "k"}, {"value", "v"}, {"effect", "NoExecute"}}});
  scheduler_.node_changed(node("m0"));
  scheduler_.node_changed(tainted);
  add(pod("selects", "",
          {{"nodeSelector", {{"kubernetes.io/hostname", "m1"}}},
           {"tolerations", Json::array({{{"key", "k"}, {"operator", "Exists"}}})}}));
  EXPECT_EQ(placed(), "selects>m1");
  auto affine = [](const char* how, const char* key, Json values) {
    Json terms = Json::array(
        {{{"matchExpressions",
           Json::array({{{"key", key}, {"operator", how}, {"values", std::move(values)}}})}}});
    Json required = {{"nodeSelectorTerms", std::move(terms)}};
    return Json{{"affinity",
                 {{"nodeAffinity",
                   {{"requiredDuringSchedulingIgnoredDuringExecution", std::move(required)}}}}}};
  };
  const char* kHost = "kubernetes.io/hostname";
  add(pod("in", "", affine("In", kHost, {"m0", "m7"})));
  EXPECT_EQ(placed(), "in>m0");
  add(pod("greater", "", affine("Gt", "slots", {"3"})));
  EXPECT_EQ(placed(), "greater>m0");
  for (auto [how, values] : {std::pair<const char*, Json>{"NotIn", {"m0"}},
                             {"DoesNotExist", Json::array()},
                             {"In", {"m7"}}}) {
    add(pod(how, "", affine(how, kHost, values)));
    EXPECT_NE(placed().find("1 node(s) didn't match Pod's node affinity/selector"),
              std::string::npos)
        << how;
  }
}

TEST_F(SchedulerTest, PlacesThePodsOfAnOwnerTogetherOrNotAtAll) {
  owners_["job"].pods = 2;
  scheduler_.node_changed(node("m0", "8", 1));
  add(pod("job-0", "job"));
  EXPECT_EQ(placed(), "") << "the other one is not there yet";
  add(pod("job-1", "job"));
  std::string text = placed();
  EXPECT_EQ(text.find(">m0"), std::string::npos) << text;
  EXPECT_NE(text.find("1 node(s) had no room for all pods of its owner"), std::string::npos)
      << text;
  scheduler_.node_changed(node("m1", "8", 1));
  EXPECT_EQ(placed(), "job-0>m0, job-1>m1");
}

TEST_F(SchedulerTest, DoesNotWaitForEverForThePodsThatAreNotMade) {
  owners_["job"].pods = 2;
  scheduler_.node_changed(node("m0"));
  add(pod("job-0", "job"));
  EXPECT_EQ(placed(), "");
  clock_.advance(scheduler_.next_deadline() - clock_.now());
  EXPECT_EQ(placed(), "job-0>m0");
}

TEST_F(SchedulerTest, TwoHalfPlacedJobsDoNotBlockEachOther) {
  owners_["old"] = {"2026-01-01T00:00:00Z", 2};
  owners_["new"] = {"2026-01-01T00:00:01Z", 2};
  scheduler_.node_changed(node("m0", "8", 2));
  add(pod("x"));
  EXPECT_EQ(placed(), "x>m0");
  for (const char* name : {"new-0", "old-0", "old-1", "new-1"})
    add(pod(name, std::string(name).substr(0, 3)));
  std::string text = placed();
  EXPECT_EQ(text.find(">m0"), std::string::npos) << text;
  // A younger pod that fits now does not take the place that the oldest owner waits for.
  Json young = pod("y");
  young["metadata"]["creationTimestamp"] = "2026-01-01T00:00:09Z";
  add(young);
  EXPECT_EQ(placed(), "y: 0/1 nodes are available: 1 node(s) are reserved for older pods.");
  end(pod("x"), "m0");
  EXPECT_EQ(placed(), "old-0>m0, old-1>m0");
  end(pod("old-0", "old"), "m0");
  end(pod("old-1", "old"), "m0");
  EXPECT_EQ(placed(), "new-0>m0, new-1>m0");
}

TEST_F(SchedulerTest, WhatNeverFitsKeepsNobodyWaiting) {
  owners_["huge"] = {"2020-01-01T00:00:00Z", 3};
  scheduler_.node_changed(node("m0", "8", 2));
  for (const char* name : {"huge-0", "huge-1", "huge-2"}) add(pod(name, "huge"));
  add(pod("small"));
  EXPECT_NE(placed().find("small>m0"), std::string::npos);
}

TEST_F(SchedulerTest, ARefusedBindingIsTriedAgain) {
  scheduler_.node_changed(node("m0", "8", 1));
  add(pod("a"));
  EXPECT_EQ(placed(), "a>m0");
  scheduler_.not_bound("uid-a", clock_.now());
  EXPECT_EQ(placed(), "a>m0");
  scheduler_.pod_gone("uid-a");
  add(pod("b"));
  EXPECT_EQ(placed(), "b>m0");
}

TEST_F(SchedulerTest, LeavesOtherSchedulersPodsAlone) {
  scheduler_.node_changed(node("m0"));
  add(pod("theirs", "", {{"schedulerName", "volcano"}}));
  add(pod("gated", "", {{"schedulingGates", Json::array({{{"name", "g"}}})}}));
  EXPECT_EQ(placed(), "");
}

TEST_F(SchedulerTest, AThousandPodsOnTwoMachinesCostLittle) {
  for (const char* name : {"m0", "m1"}) scheduler_.node_changed(node(name));
  for (int job = 0; job < 500; ++job) {
    std::string owner = "job" + std::to_string(job);
    owners_[owner].pods = 2;
    add(pod(owner + "-0", owner));
    add(pod(owner + "-1", owner));
  }
  size_t bound = 0;
  for (const Placement& placement : scheduler_.place(clock_.now()))
    bound += placement.node.empty() ? 0 : 1;
  EXPECT_EQ(bound, 220u);
  EXPECT_EQ(placed(), "");
}

TEST(Quantity, ReadsWhatKubernetesWrites) {
  for (auto [text, milli] : std::vector<std::pair<const char*, int64_t>>{{"250m", 250},
                                                                         {"2", 2000},
                                                                         {"1.5", 1500},
                                                                         {"0.0001", 1},
                                                                         {"1Ki", 1024000},
                                                                         {"1e3", 1000000},
                                                                         {"1E", INT64_MAX},
                                                                         {"3M", 3000000000},
                                                                         {"-1", -1000}})
    EXPECT_EQ(milli_quantity(text).value(), milli) << text;
  for (const char* text : {"", "m", "1.2.3", "1 Gi", "1KiB", "abc", ".", "e3", "--1"})
    EXPECT_FALSE(milli_quantity(text).ok()) << text;
}

}  // namespace
}  // namespace lockstep::local
