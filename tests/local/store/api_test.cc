// Tests responses against those of a kube-apiserver, case by case. Cases marked "real" were
// captured from version 1.20.2.
#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

std::string path(const std::string& collection, const std::string& name,
                 const std::string& more = "") {
  return collection + "/" + name + more;
}

TEST_F(ApiTest, GivesANewObjectItsIdentity) {
  Json made = make(kJobs, job("a"));
  const Json& metadata = made["metadata"];
  EXPECT_EQ(metadata["namespace"], "default");
  EXPECT_EQ(metadata["generation"], 1);
  EXPECT_EQ(metadata["creationTimestamp"], rfc3339(clock_.wall_now()));
  EXPECT_EQ(metadata["uid"].get<std::string>().size(), 36u);
  EXPECT_FALSE(metadata["resourceVersion"].get<std::string>().empty());
  EXPECT_NE(make(kJobs, job("b"))["metadata"]["uid"], metadata["uid"]);
  EXPECT_EQ(get(path(kJobs, "a")).body, made);
}

struct Refusal {
  std::string what;
  std::string method;
  std::string target;
  Json body;
  int code;
  std::string reason;
  std::string words;  // part of the message
};

TEST_F(ApiTest, RefusesWithTheCodeAndReasonOfARealServer) {
  Json existing = make(kJobs, job("taken"));
  Json pod_existing = make(kPods, pod("p"));
  Json stale = existing;
  stale["metadata"]["resourceVersion"] = "1";
  Json other_uid = existing;
  other_uid["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000";
  Json unversioned = existing;
  unversioned["metadata"].erase("resourceVersion");
  Json misnamed = existing;
  misnamed["metadata"]["name"] = "another";
  Json elsewhere = job("x");
  elsewhere["metadata"]["namespace"] = "kube-system";
  Json wrong_kind = job("x");
  wrong_kind["kind"] = "Pod";
  Json kindless = job("x");
  kindless.erase("kind");
  Json nameless = job("x");
  nameless["metadata"] = Json::object();
  Json versioned = job("x");
  versioned["metadata"]["resourceVersion"] = "5";
  Json bad_labels = job("x");
  bad_labels["metadata"]["labels"] = {{"n", 1}};
  Json ownerless = job("x");
  ownerless["metadata"]["ownerReferences"] = Json::array({{{"kind", "TrainingJob"}}});
  Json moved_pod = pod_existing;
  moved_pod["spec"]["containers"][0]["name"] = "other";
  const std::string jobs = kJobs, pods = kPods;
  const std::vector<Refusal> cases = {
      {"create twice", "POST", jobs, job("taken"), 409, "AlreadyExists", "already exists"},
      {"bad name", "POST", jobs, job("Bad_Name"), 422, "Invalid", "RFC 1123"},
      {"no name", "POST", jobs, nameless, 422, "Invalid", "required"},
      {"other namespace", "POST", jobs, elsewhere, 400, "BadRequest", "namespace"},
      {"wrong kind", "POST", jobs, wrong_kind, 400, "BadRequest", "kind"},
      {"no kind", "POST", jobs, kindless, 400, "BadRequest", "'kind' is missing"},
      {"versioned create", "POST", jobs, versioned, 500, "InternalError", "resourceVersion"},
      {"labels of numbers", "POST", jobs, bad_labels, 400, "BadRequest", "metadata.labels"},
      {"owner without uid", "POST", jobs, ownerless, 422, "Invalid", "ownerReferences"},
      {"no such namespace", "POST", "/api/v1/namespaces/nowhere/pods", pod("x"), 404, "NotFound",
       "namespaces \"nowhere\" not found"},
      {"create in all namespaces", "POST", "/api/v1/pods", pod("x"), 405, "MethodNotAllowed", ""},
      {"get what is not there", "GET", path(jobs, "none"), Json(), 404, "NotFound",
       "trainingjobs.lockstep.dev \"none\" not found"},
      {"update what is not there", "PUT", path(jobs, "none"), job("none"), 404, "NotFound", ""},
      {"patch what is not there", "PATCH", path(jobs, "none"), Json::object(), 404, "NotFound", ""},
      {"delete what is not there", "DELETE", path(jobs, "none"), Json(), 404, "NotFound", ""},
      {"stale update", "PUT", path(jobs, "taken"), stale, 409, "Conflict", "has been modified"},
      {"stale status", "PUT", path(jobs, "taken", "/status"), stale, 409, "Conflict", ""},
      {"stale patch",
       "PATCH",
       path(jobs, "taken"),
       {{"metadata", {{"resourceVersion", "1"}}}},
       409,
       "Conflict",
       ""},
      {"other uid", "PUT", path(jobs, "taken"), other_uid, 409, "Conflict", "UID"},
      {"update without version", "PUT", path(jobs, "taken"), unversioned, 422, "Invalid",
       "must be specified for an update"},
      {"update under another name", "PUT", path(jobs, "taken"), misnamed, 400, "BadRequest", "URL"},
      {"delete another uid",
       "DELETE",
       path(jobs, "taken"),
       {{"preconditions", {{"uid", "x"}}}},
       409,
       "Conflict",
       "UID in precondition"},
      {"delete another version",
       "DELETE",
       path(jobs, "taken"),
       {{"preconditions", {{"resourceVersion", "1"}}}},
       409,
       "Conflict",
       "ResourceVersion"},
      {"negative grace",
       "DELETE",
       path(pods, "p"),
       {{"gracePeriodSeconds", -1}},
       400,
       "BadRequest",
       "gracePeriodSeconds"},
      {"unknown policy",
       "DELETE",
       path(pods, "p"),
       {{"propagationPolicy", "Maybe"}},
       422,
       "Invalid",
       "propagationPolicy"},
      {"a pod's spec is fixed", "PUT", path(pods, "p"), moved_pod, 422, "Invalid",
       "may not change fields"},
      {"unknown group", "GET", "/apis/batch/v1/jobs", Json(), 404, "NotFound", ""},
      {"unknown subresource", "GET", path(jobs, "taken", "/exec"), Json(), 404, "NotFound", ""},
      {"status of what has none", "GET", "/api/v1/namespaces/default/secrets/s/status", Json(), 404,
       "NotFound", ""},
      {"odd method", "POST", path(jobs, "taken"), job("taken"), 405, "MethodNotAllowed", ""},
      {"bad selector", "GET", jobs + "?labelSelector=a%20b", Json(), 400, "BadRequest", "parse"},
      {"unknown field label", "GET", jobs + "?fieldSelector=spec.nodes%3D1", Json(), 400,
       "BadRequest", "field label not supported"},
      {"bad limit", "GET", jobs + "?limit=many", Json(), 400, "BadRequest", "limit"},
      {"bad escape", "GET", jobs + "?limit=%zz", Json(), 400, "BadRequest", "escape"},
      {"version of the future", "GET", jobs + "?resourceVersion=99999", Json(), 504, "Timeout",
       "Too large resource version"},
      {"bad continue", "GET", jobs + "?continue=nonsense", Json(), 400, "BadRequest", "continue"},
  };
  for (const Refusal& refusal : cases) {
    ApiResponse response = ask(refusal.method, refusal.target, refusal.body);
    EXPECT_EQ(response.code, refusal.code) << refusal.what << ": " << response.body;
    EXPECT_EQ(response.body["kind"], "Status") << refusal.what;
    EXPECT_EQ(response.body["status"], "Failure") << refusal.what;
    EXPECT_EQ(response.body["code"], refusal.code) << refusal.what;
    EXPECT_EQ(response.body["reason"], refusal.reason) << refusal.what;
    EXPECT_NE(response.body["message"].get<std::string>().find(refusal.words), std::string::npos)
        << refusal.what << ": " << response.body["message"];
  }
  EXPECT_EQ(get(path(kJobs, "taken")).body, existing);
}

TEST_F(ApiTest, RefusesBodiesItCannotRead) {
  auto post = [&](const std::string& type, const std::string& body) {
    return api_.handle({"POST", kJobs, type, body}).code;
  };
  EXPECT_EQ(post("application/json", "{"), 400);
  EXPECT_EQ(post("application/json", "[]"), 400);
  EXPECT_EQ(post("application/json", ""), 400);
  EXPECT_EQ(post("application/json", std::string(1000, '[')), 400);
  EXPECT_EQ(post("application/json", "\"" + std::string(4u << 20, 'x') + "\""), 413);
  EXPECT_EQ(post("application/vnd.kubernetes.protobuf", "k8s"), 415);
  Json made = make(kJobs, job("a"));
  auto patch = [&](const std::string& type) {
    return api_.handle({"PATCH", path(kJobs, "a"), type, "{}"}).code;
  };
  EXPECT_EQ(patch("application/strategic-merge-patch+json"), 415);  // not for custom types
  EXPECT_EQ(patch("application/json"), 415);
  EXPECT_EQ(patch("application/json-patch+json"), 400);
  EXPECT_EQ(patch("application/apply-patch+yaml"), 422);  // without a fieldManager
  EXPECT_EQ(get(path(kJobs, "a")).body, made);
}

TEST_F(ApiTest, CountsGenerationsOfTheSpecAlone) {
  Json object = make(kJobs, job("a"));
  auto generation = [&] { return get(path(kJobs, "a")).body["metadata"]["generation"]; };
  ask("PATCH", path(kJobs, "a"), {{"metadata", {{"labels", {{"x", "y"}}}}}});
  EXPECT_EQ(generation(), 1);
  ask("PATCH", path(kJobs, "a", "/status"), {{"status", {{"state", "Running"}}}});
  EXPECT_EQ(generation(), 1);
  ask("PATCH", path(kJobs, "a"), {{"spec", {{"nodes", 2}}}});
  EXPECT_EQ(generation(), 2);
  ask("PATCH", path(kJobs, "a"), {{"metadata", {{"generation", 77}}}});
  EXPECT_EQ(generation(), 2);
}

TEST_F(ApiTest, KeepsSpecAndStatusApart) {
  Json with_status = job("a");
  with_status["status"] = {{"state", "Complete"}};
  Json object = make(kJobs, with_status);
  EXPECT_FALSE(object.contains("status"));

  object["status"] = {{"state", "Running"}};
  object["spec"]["nodes"] = 5;
  object["metadata"]["labels"] = {{"ignored", "here"}};
  Json after_status = ask("PUT", path(kJobs, "a", "/status"), object).body;
  EXPECT_EQ(after_status["status"]["state"], "Running");
  EXPECT_EQ(after_status["spec"]["nodes"], 1);
  EXPECT_FALSE(after_status["metadata"].contains("labels"));

  after_status["status"]["state"] = "Failed";
  after_status["spec"]["nodes"] = 3;
  Json after_main = ask("PUT", path(kJobs, "a"), after_status).body;
  EXPECT_EQ(after_main["status"]["state"], "Running");
  EXPECT_EQ(after_main["spec"]["nodes"], 3);
  EXPECT_EQ(get(path(kJobs, "a", "/status")).body, after_main);
}

TEST_F(ApiTest, WritesNothingWhereNothingChanges) {
  Json object = make(kJobs, job("a"));
  EXPECT_EQ(ask("PUT", path(kJobs, "a"), object).body, object);
  EXPECT_EQ(ask("PATCH", path(kJobs, "a"), {{"spec", {{"nodes", 1}}}}).body, object);
  EXPECT_EQ(get(path(kJobs, "a")).body, object);
}

TEST_F(ApiTest, DryRunsLeaveNoTrace) {
  EXPECT_EQ(ask("POST", std::string(kJobs) + "?dryRun=All", job("a")).code, 201);
  EXPECT_EQ(get(path(kJobs, "a")).code, 404);
  Json object = make(kJobs, job("a"));
  Json answer = ask("PATCH", path(kJobs, "a", "?dryRun=All"), {{"spec", {{"nodes", 9}}}}).body;
  EXPECT_EQ(answer["spec"]["nodes"], 9);
  EXPECT_EQ(get(path(kJobs, "a")).body, object);
  EXPECT_EQ(ask("DELETE", path(kJobs, "a", "?dryRun=All")).code, 200);
  EXPECT_EQ(ask("DELETE", path(kJobs, "a"), {{"dryRun", {"All"}}}).code, 200);
  EXPECT_EQ(get(path(kJobs, "a")).body, object);
}

TEST_F(ApiTest, ADeletionWithWrongOptionsDeletesNothing) {
  make(kJobs, job("a"));
  EXPECT_EQ(ask("DELETE", path(kJobs, "a", "?dryRun=Some")).code, 422);
  EXPECT_EQ(ask("DELETE", std::string(kJobs) + "?dryRun=Some").code, 422);
  EXPECT_EQ(ask("DELETE", path(kJobs, "a"), {{"dryRun", {"Some"}}}).code, 422);
  EXPECT_EQ(ask("DELETE", path(kJobs, "a"), {{"dryRun", Json::array({5})}}).code, 422);
  EXPECT_EQ(ask("DELETE", path(kJobs, "a"), {{"dryRun", "All"}}).code, 400);
  EXPECT_EQ(ask("DELETE", path(kJobs, "a"), {{"preconditions", {{"uid", 5}}}}).code, 400);
  EXPECT_EQ(ask("DELETE", path(kJobs, "a"), {{"preconditions", Json::array()}}).code, 400);
  EXPECT_EQ(get(path(kJobs, "a")).code, 200);
}

TEST_F(ApiTest, MergePatchRemovesWhatIsNull) {
  Json object = job("a");
  object["metadata"]["annotations"] = {{"keep", "1"}, {"drop", "2"}};
  make(kJobs, object);
  Json after =
      ask("PATCH", path(kJobs, "a"), {{"metadata", {{"annotations", {{"drop", nullptr}}}}}}).body;
  EXPECT_EQ(after["metadata"]["annotations"], Json({{"keep", "1"}}));
}

TEST_F(ApiTest, ShowsNothingOfMetadataThatIsEmpty) {
  const Json empty = {{"labels", Json::object()},
                      {"annotations", Json()},
                      {"ownerReferences", Json::array()},
                      {"finalizers", Json::array()}};
  auto shows_none = [&](const Json& object) {
    for (const auto& [key, value] : empty.items())
      EXPECT_FALSE(object["metadata"].contains(key)) << object;
  };
  for (auto [list, object] : {std::pair(kJobs, job("a")), std::pair(kPods, pod("a"))}) {
    object["metadata"].update(empty);
    const Json made = ask("POST", list, object).body;
    shows_none(made);
    const std::string path = std::string(list) + "/a";
    ask("PATCH", path,
        {{"metadata", {{"labels", {{"tier", "x"}}}, {"finalizers", {"example.com/a"}}}}});
    const Json patched =
        ask("PATCH", path,
            {{"metadata", {{"labels", {{"tier", Json()}}}, {"finalizers", Json::array()}}}})
            .body;
    shows_none(patched);
    Json again = patched;
    again["metadata"].update(empty);
    EXPECT_EQ(ask("PUT", path, again).body, patched) << "nothing changes";
  }
}

TEST_F(ApiTest, MakesNamesFromGenerateName) {
  Json object = {{"metadata", {{"generateName", "run-"}}}};
  Json a = make(kSecrets, object), b = make(kSecrets, object);
  EXPECT_TRUE(a["metadata"]["name"].get<std::string>().starts_with("run-"));
  EXPECT_NE(a["metadata"]["name"], b["metadata"]["name"]);
}

TEST_F(ApiTest, ListsBySelectors) {
  for (const char* name : {"a", "b", "c"}) {
    Json object = pod(name);
    object["metadata"]["labels"] = {{"name", name}, {"job", name[0] < 'c' ? "x" : "y"}};
    make(kPods, object);
  }
  bind("b");
  auto names = [&](const std::string& query) {
    std::string text;
    const Json list = get(std::string(kPods) + "?" + query).body;
    for (const Json& item : list["items"]) text += item["metadata"]["name"].get<std::string>();
    return text;
  };
  EXPECT_EQ(names(""), "abc");
  EXPECT_EQ(names("labelSelector=job%3Dx"), "ab");
  EXPECT_EQ(names("labelSelector=job%3D%3Dx,name%21%3Da"), "b");
  EXPECT_EQ(names("labelSelector=name%20in%20(a,c)"), "ac");
  EXPECT_EQ(names("labelSelector=name+notin+(a,c)"), "b");
  EXPECT_EQ(names("labelSelector=job"), "abc");
  EXPECT_EQ(names("labelSelector=%21job"), "");
  EXPECT_EQ(names("fieldSelector=metadata.name%3Dc"), "c");
  EXPECT_EQ(names("fieldSelector=spec.nodeName%3Dlocal"), "b");
  EXPECT_EQ(names("fieldSelector=spec.nodeName%21%3Dlocal&labelSelector=job%3Dx"), "a");
}

TEST_F(ApiTest, PagesShowOneMomentWhateverIsWrittenMeanwhile) {
  for (const char* name : {"a", "b", "c", "d"}) make(kJobs, job(name));
  Json first = get(std::string(kJobs) + "?limit=2").body;
  ASSERT_EQ(first["items"].size(), 2u);
  ask("DELETE", path(kJobs, "c"));
  make(kJobs, job("bb"));
  std::string token = first["metadata"]["continue"];
  Json second = get(std::string(kJobs) + "?limit=2&continue=" + token).body;
  EXPECT_EQ(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
  ASSERT_EQ(second["items"].size(), 2u);
  EXPECT_EQ(second["items"][0]["metadata"]["name"], "c");
  EXPECT_EQ(second["items"][1]["metadata"]["name"], "d");
  EXPECT_FALSE(second["metadata"].contains("continue"));

  for (int i = 0; i < 60; ++i) ask("PATCH", path(kJobs, "a"), {{"spec", {{"nodes", i + 2}}}});
  ApiResponse late = get(std::string(kJobs) + "?limit=2&continue=" + token);
  EXPECT_EQ(late.code, 410);
  EXPECT_EQ(late.body["reason"], "Expired");
}

TEST_F(ApiTest, SecretsTakePlainText) {
  Json secret = {{"metadata", {{"name", "s"}}}, {"stringData", {{"token", "abc"}}}};
  Json made = make(kSecrets, secret);
  EXPECT_EQ(made["data"]["token"], "YWJj");
  EXPECT_FALSE(made.contains("stringData"));
}

TEST_F(ApiTest, EventsHaveTwoFaces) {
  make("/api/v1/namespaces/default/events", {{"metadata", {{"name", "e"}}},
                                             {"involvedObject", {{"kind", "Pod"}, {"name", "p"}}},
                                             {"reason", "Started"},
                                             {"message", "words"}});
  Json modern = get("/apis/events.k8s.io/v1/namespaces/default/events/e").body;
  EXPECT_EQ(modern["apiVersion"], "events.k8s.io/v1");
  EXPECT_EQ(modern["regarding"]["name"], "p");
  EXPECT_EQ(modern["note"], "words");
  make("/apis/events.k8s.io/v1/namespaces/default/events",
       {{"apiVersion", "events.k8s.io/v1"},
        {"kind", "Event"},
        {"metadata", {{"name", "f"}}},
        {"type", "Normal"},
        {"eventTime", "2026-01-02T03:04:05.000006Z"},
        {"reportingController", "one"},
        {"reportingInstance", "a"},
        {"action", "Starting"},
        {"reason", "Started"},
        {"regarding", {{"kind", "Pod"}}},
        {"note", "more"}});
  Json core = get("/api/v1/namespaces/default/events/f").body;
  EXPECT_EQ(core["message"], "more");
  EXPECT_EQ(core["apiVersion"], "v1");
}

TEST_F(ApiTest, DiscoveryListsWhatIsServed) {
  EXPECT_EQ(get("/api").body["versions"][0], "v1");
  EXPECT_EQ(get("/apis").body["kind"], "APIGroupList");
  Json list = get("/apis/lockstep.dev/v1alpha1").body;
  EXPECT_EQ(list["resources"][0]["name"], "trainingjobs");
  EXPECT_EQ(list["resources"][1]["name"], "trainingjobs/status");
  EXPECT_EQ(get("/version").code, 200);
  EXPECT_EQ(get("/apis/none/v1").code, 404);
}

// A clock that can fail, as an example of a bug that only shows at run time.
class BrokenClock final : public Clock {
 public:
  TimePoint now() const override { return {}; }
  WallTime wall_now() const override {
    if (broken) throw std::runtime_error("the clock is broken");
    return {};
  }
  bool broken = false;
};

TEST(ApiMistakes, CostOneAnswerAndAreLoggedWithoutTheQuery) {
  BrokenClock clock;
  Api api(clock, 1);
  clock.broken = true;
  testing::internal::CaptureStderr();
  ApiResponse answer = api.handle({.method = "GET", .target = std::string(kPods) + "?limit=71717"});
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_EQ(answer.code, 500);
  EXPECT_EQ(answer.body["reason"], "InternalError");
  EXPECT_NE(logged.find("an internal error ended a request"), std::string::npos);
  EXPECT_NE(logged.find(std::string("method=GET target=") + kPods), std::string::npos) << logged;
  EXPECT_NE(logged.find("the clock is broken"), std::string::npos) << logged;
  EXPECT_EQ(logged.find("71717"), std::string::npos) << logged;
  clock.broken = false;
  EXPECT_EQ(api.handle({.method = "GET", .target = kPods}).code, 200);
}

TEST_F(ApiTest, IsFullAtItsLimits) {
  Api small(clock_, 1, {.objects_max = 6});  // four namespaces and a CRD exist
  auto post = [&](const std::string& name) {
    return small.handle({"POST", kJobs, "application/json", dump_json(job(name))}).code;
  };
  EXPECT_EQ(post("a"), 201);
  EXPECT_EQ(post("b"), 507);
  EXPECT_EQ(small.handle({"DELETE", path(kJobs, "a"), "", ""}).code, 200);
  EXPECT_EQ(post("b"), 201);
}

}  // namespace
}  // namespace lockstep::local
