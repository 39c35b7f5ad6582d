// Tests gets, lists and watches of clients that accept Tables, and which requests are refused.
#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

// The Accept header of kubectl 1.33.
constexpr char kTable[] =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;"
    "g=meta.k8s.io,application/json";

class TableViewTest : public ApiTest {
 protected:
  ApiResponse show(const std::string& target, const std::string& accept = kTable) {
    return api_.handle({.method = "GET", .target = target, .accept = accept});
  }
};

TEST_F(TableViewTest, AListIsATableWithTheColumnsOfItsKind) {
  make(kJobs, job("a"));
  make(kJobs, job("b"));
  Json table = show(kJobs).body;
  EXPECT_EQ(table["kind"], "Table");
  EXPECT_EQ(table["columnDefinitions"][1]["name"], "STATE");
  ASSERT_EQ(table["rows"].size(), 2u);
  EXPECT_EQ(table["rows"][0]["cells"][0], "a");
  EXPECT_EQ(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
  EXPECT_EQ(table["metadata"]["resourceVersion"], get(kJobs).body["metadata"]["resourceVersion"]);
}

TEST_F(TableViewTest, PagesOfATableGoOn) {
  make(kPods, pod("a"));
  make(kPods, pod("b"));
  const std::string target = std::string(kPods) + "?limit=1";
  Json first = show(target).body;
  ASSERT_EQ(first["rows"].size(), 1u);
  const std::string token = first["metadata"]["continue"];
  EXPECT_EQ(show(target + "&continue=" + token).body["rows"][0]["cells"][0], "b");
}

TEST_F(TableViewTest, AnObjectIsATableOfOneRow) {
  Json made = make(kPods, pod("a"));
  Json table = show(std::string(kPods) + "/a?includeObject=Object").body;
  ASSERT_EQ(table["rows"].size(), 1u);
  EXPECT_EQ(table["rows"][0]["object"], made);
  EXPECT_EQ(table["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
  EXPECT_TRUE(
      show(std::string(kPods) + "/a?includeObject=None").body["rows"][0]["object"].is_null());
  EXPECT_EQ(show(std::string(kPods) + "/a?includeObject=Some").code, 400);
}

TEST_F(TableViewTest, ErrorsAreNotTables) {
  ApiResponse missing = show(std::string(kPods) + "/nope");
  EXPECT_EQ(missing.code, 404);
  EXPECT_EQ(missing.body["kind"], "Status");
}

TEST_F(TableViewTest, TheFirstAnswerThatTheServerKnowsCounts) {
  make(kPods, pod("a"));
  for (const char* accept : {"", "*/*", "application/json",
                             "application/json, application/json;as=Table;v=v1;g=meta.k8s.io",
                             "application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json"})
    EXPECT_EQ(show(kPods, accept).body["kind"], "PodList") << accept;
  for (const char* accept : {kTable, "application/json;g=meta.k8s.io;v=v1;as=Table",
                             "application/yaml, application/json; as=Table; v=v1; g=meta.k8s.io"})
    EXPECT_EQ(show(kPods, accept).body["kind"], "Table") << accept;
}

TEST_F(TableViewTest, WhatItCanNotGiveIsRefused) {
  for (const char* accept : {"application/yaml", ";;,,", "text/html", "application/vnd.custom+json",
                             "application/json;as=Table;v=v9;g=meta.k8s.io"}) {
    for (const char* target : {kPods, "/api/v1", "/version"}) {
      ApiResponse refused = api_.handle({.method = "GET", .target = target, .accept = accept});
      EXPECT_EQ(refused.code, 406) << accept << " " << target;
      EXPECT_EQ(refused.body["reason"], "NotAcceptable");
    }
    auto watch = api_.open_watch(
        {.method = "GET", .target = std::string(kPods) + "?watch=1", .accept = accept});
    EXPECT_TRUE(std::holds_alternative<ApiResponse>(watch)) << accept;
  }
}

TEST_F(TableViewTest, AWatchSaysTheColumnsOnce) {
  make(kPods, pod("a"));
  auto opened = api_.open_watch(
      {.method = "GET", .target = std::string(kPods) + "?watch=1", .accept = kTable});
  Watch watch = std::get<Watch>(std::move(opened));
  make(kPods, pod("b"));
  std::vector<Json> events = api_.next_events(watch, 10);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["type"], "ADDED");
  EXPECT_EQ(events[0]["object"]["kind"], "Table");
  EXPECT_TRUE(events[0]["object"]["columnDefinitions"].is_array());
  EXPECT_TRUE(events[1]["object"]["columnDefinitions"].is_null());
  EXPECT_EQ(events[1]["object"]["rows"][0]["cells"][0], "b");
}

TEST_F(TableViewTest, WhatGoesIntoPodsIsRefusedWithWords) {
  make(kPods, pod("a"));
  for (const char* way : {"exec", "attach", "portforward"}) {
    for (const char* method : {"GET", "POST"}) {
      ApiResponse refused = ask(method, std::string(kPods) + "/a/" + way);
      EXPECT_EQ(refused.code, 501);
      EXPECT_NE(refused.body["message"].get<std::string>().find("lockstep up"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lockstep::local
