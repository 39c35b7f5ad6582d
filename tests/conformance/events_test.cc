// Events: one set of objects under two APIs, v1 and events.k8s.io/v1.
#include "tests/conformance/support/case.h"

namespace lockstep::conformance {
namespace {

class Events : public Case {
 protected:
  std::string core() const { return path("v1", "events"); }
  std::string modern() const { return path("events.k8s.io/v1", "events"); }
  Json about(const std::string& pod) const {
    return {{"apiVersion", "v1"},
            {"kind", "Pod"},
            {"namespace", namespace_},
            {"name", pod},
            {"uid", "11111111-2222-3333-4444-555555555555"}};
  }
  Json event(const std::string& name) const {
    return {{"apiVersion", "events.k8s.io/v1"},
            {"kind", "Event"},
            {"metadata", {{"name", name}}},
            {"eventTime", "2026-01-02T03:04:05.000006Z"},
            {"reportingController", "lockstep.dev/controller"},
            {"reportingInstance", "one"},
            {"action", "Restarting"},
            {"reason", "RankFailed"},
            {"type", "Warning"},
            {"regarding", about("p")},
            {"note", "rank 3 exited with code 1"}};
  }
  Json core_event(const std::string& name) const {
    return {{"metadata", {{"name", name}}},
            {"involvedObject", about("p")},
            {"reason", "Started"},
            {"message", "all is well"},
            {"type", "Normal"},
            {"count", 2},
            {"firstTimestamp", "2026-01-02T03:04:05Z"},
            {"lastTimestamp", "2026-01-02T03:04:06Z"},
            {"source", {{"component", "lockstep"}}}};
  }
};

TEST_F(Events, OneOfTheNewApiIsReadByTheOld) {
  make(modern(), event("e"));
  Reply read = get(core() + "/e");
  ASSERT_TRUE(is_code(read, 200));
  EXPECT_EQ(read.body["apiVersion"], "v1");
  EXPECT_EQ(read.body["message"], "rank 3 exited with code 1");
  EXPECT_EQ(read.body["involvedObject"], about("p"));
  EXPECT_EQ(read.body["reportingComponent"], "lockstep.dev/controller");
  EXPECT_EQ(read.body["eventTime"], "2026-01-02T03:04:05.000006Z");
}

TEST_F(Events, OneOfTheOldApiIsReadByTheNew) {
  make(core(), core_event("e"));
  Reply read = get(modern() + "/e");
  ASSERT_TRUE(is_code(read, 200));
  EXPECT_EQ(read.body["apiVersion"], "events.k8s.io/v1");
  EXPECT_EQ(read.body["note"], "all is well");
  EXPECT_EQ(read.body["regarding"], about("p"));
  EXPECT_EQ(read.body["deprecatedCount"], 2);
  EXPECT_EQ(read.body["deprecatedSource"]["component"], "lockstep");
}

TEST_F(Events, ASeriesCanBeCounted) {
  make(modern(), event("e"));
  Json series = {{"series", {{"count", 2}, {"lastObservedTime", "2026-01-02T03:04:09.000000Z"}}}};
  Reply patched = patch(modern() + "/e", series);
  ASSERT_TRUE(is_code(patched, 200));
  EXPECT_EQ(patched.body["series"]["count"], 2);
}

TEST_F(Events, WhatTheyAreAboutCanBeSelectedAsDescribeDoes) {
  make(core(), core_event("e"));
  Json other = core_event("f");
  other["involvedObject"]["name"] = "q";
  make(core(), other);
  using Names = std::vector<std::string>;
  auto select = [&](const std::string& text) {
    return names(get(core() + "?fieldSelector=" + percent_encoded(text)));
  };
  EXPECT_EQ(select("involvedObject.name=p,involvedObject.kind=Pod,involvedObject.namespace=" +
                   namespace_ + ",involvedObject.uid=11111111-2222-3333-4444-555555555555"),
            Names{"e"});
  EXPECT_EQ(select("involvedObject.name=q"), Names{"f"});
  EXPECT_EQ(select("reason=Started,type=Normal"), (Names{"e", "f"}));
  EXPECT_EQ(select("type=Warning"), Names{});
}

TEST_F(Events, OneAboutAnotherNamespaceIs422) {
  Json object = core_event("e");
  object["involvedObject"]["namespace"] = "default";
  EXPECT_TRUE(is_failure(ask("POST", core(), object), 422, "Invalid"));
}

TEST_F(Events, TheNewApiWantsToKnowWhoReports) {
  Json object = event("e");
  object.erase("reportingController");
  EXPECT_TRUE(is_failure(ask("POST", modern(), object), 422, "Invalid"));
  object = event("e");
  object.erase("eventTime");
  EXPECT_TRUE(is_failure(ask("POST", modern(), object), 422, "Invalid"));
}

TEST_F(Events, TheNewApiTakesTwoTypesAndNoFieldOfTheOld) {
  Json object = event("e");
  object["type"] = "Odd";
  EXPECT_TRUE(is_failure(ask("POST", modern(), object), 422, "Invalid"));
  for (const Json& old :
       {Json({{"deprecatedCount", 3}}), Json({{"deprecatedLastTimestamp", "2026-01-02T03:04:06Z"}}),
        Json({{"deprecatedSource", {{"component", "a"}}}})}) {
    object = event("e");
    object.update(old);
    EXPECT_TRUE(is_failure(ask("POST", modern(), object), 422, "Invalid")) << old;
  }
}

TEST_F(Events, OneThatHasAnEventTimeMayBeAboutAnotherNamespace) {
  Json object = event("e");
  object["regarding"]["namespace"] = "default";
  EXPECT_TRUE(is_code(ask("POST", modern(), object), 201));
}

}  // namespace
}  // namespace lockstep::conformance
