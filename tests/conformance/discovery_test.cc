// Documents that a client reads before it knows the server: versions, groups, resources, OpenAPI.
#include "tests/conformance/support/widgets.h"

namespace lockstep::conformance {
namespace {

class Discovery : public WidgetCase {
 protected:
  // Returns the entry of a resource in a list of resources; null if there is none.
  static Json resource(const Json& list, const std::string& name) {
    for (const Json& one : list.value("resources", Json::array()))
      if (one["name"] == name) return one;
    return {};
  }
  static bool has_verbs(const Json& entry, const std::vector<std::string>& wanted) {
    Json verbs = entry.value("verbs", Json::array());
    return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& verb) {
      return std::find(verbs.begin(), verbs.end(), verb) != verbs.end();
    });
  }
};

TEST_F(Discovery, TheVersionIsTold) {
  Reply reply = get("/version");
  ASSERT_TRUE(is_code(reply, 200));
  EXPECT_EQ(reply.body["major"], "1");
  EXPECT_FALSE(string_or(reply.body, "minor", "").empty());
  EXPECT_TRUE(string_or(reply.body, "gitVersion", "").starts_with("v1."));
}

TEST_F(Discovery, TheCoreGroupHasVersionV1) {
  Reply reply = get("/api");
  ASSERT_TRUE(is_code(reply, 200));
  EXPECT_EQ(reply.body["kind"], "APIVersions");
  EXPECT_EQ(reply.body["versions"], Json({"v1"}));
}

TEST_F(Discovery, GroupsComeWithTheirPreferredVersions) {
  Reply reply = get("/apis");
  ASSERT_TRUE(is_code(reply, 200));
  EXPECT_EQ(reply.body["kind"], "APIGroupList");
  for (const std::string& wanted :
       {std::string("coordination.k8s.io"), std::string("events.k8s.io"),
        std::string("apiextensions.k8s.io"), group()}) {
    bool found = false;
    for (const Json& one : reply.body["groups"]) {
      if (one["name"] != wanted) continue;
      found = true;
      EXPECT_EQ(one["preferredVersion"]["groupVersion"], wanted + "/v1");
      EXPECT_EQ(one["versions"][0]["version"], "v1");
    }
    EXPECT_TRUE(found) << wanted;
  }
}

TEST_F(Discovery, ResourcesComeWithKindsShortNamesAndVerbs) {
  Reply reply = get("/api/v1");
  ASSERT_TRUE(is_code(reply, 200));
  EXPECT_EQ(reply.body["kind"], "APIResourceList");
  EXPECT_EQ(reply.body["groupVersion"], "v1");
  Json pods = resource(reply.body, "pods");
  ASSERT_FALSE(pods.is_null());
  EXPECT_EQ(pods["kind"], "Pod");
  EXPECT_EQ(pods["namespaced"], true);
  EXPECT_EQ(pods["shortNames"], Json({"po"}));
  EXPECT_TRUE(has_verbs(
      pods, {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}))
      << pods;
  EXPECT_TRUE(has_verbs(resource(reply.body, "pods/status"), {"get", "patch", "update"}));
  EXPECT_TRUE(has_verbs(resource(reply.body, "pods/log"), {"get"}));
  EXPECT_TRUE(has_verbs(resource(reply.body, "pods/binding"), {"create"}));
  EXPECT_EQ(resource(reply.body, "nodes")["namespaced"], false);
  for (const char* name : {"secrets", "configmaps", "events", "namespaces", "services"})
    EXPECT_FALSE(resource(reply.body, name).is_null()) << name;
}

TEST_F(Discovery, ADefinedKindIsListedLikeOthers) {
  Reply reply = get("/apis/" + group_version());
  ASSERT_TRUE(is_code(reply, 200));
  Json widgets = resource(reply.body, "widgets");
  ASSERT_FALSE(widgets.is_null());
  EXPECT_EQ(widgets["kind"], "Widget");
  EXPECT_EQ(widgets["singularName"], "widget");
  EXPECT_EQ(widgets["namespaced"], true);
  EXPECT_EQ(widgets["shortNames"].size(), 1u);
  EXPECT_FALSE(resource(reply.body, "widgets/status").is_null());
  Json scale = resource(reply.body, "widgets/scale");
  EXPECT_EQ(scale["kind"], "Scale");
  EXPECT_EQ(scale["group"], "autoscaling");
  EXPECT_EQ(scale["version"], "v1");
}

TEST_F(Discovery, AnUnknownGroupIs404) {
  EXPECT_EQ(get("/apis/no.such.group").code, 404);
  EXPECT_EQ(get("/apis/coordination.k8s.io/v77").code, 404);
}

TEST_F(Discovery, OpenApiDescribesTheKinds) {
  Reply reply = get("/openapi/v2");
  ASSERT_TRUE(is_code(reply, 200));
  EXPECT_EQ(reply.body["swagger"], "2.0");
  auto described = [](const Json& document, const std::string& wanted_group,
                      const std::string& kind) {
    for (const Json& one : document["definitions"]) {
      for (const Json& gvk : one.value("x-kubernetes-group-version-kind", Json::array()))
        if (gvk["group"] == wanted_group && gvk["kind"] == kind) return one;
    }
    return Json();
  };
  EXPECT_TRUE(described(reply.body, "", "Pod").contains("properties"));
  Json widget;
  EXPECT_TRUE(eventually([&] {
    widget = described(get("/openapi/v2").body, group(), "Widget");
    return !widget.is_null();
  }));
  EXPECT_EQ(widget["properties"]["spec"]["properties"]["size"]["type"], "integer");
}

TEST_F(Discovery, OpenApiComesAsProtobufToWhoAsksForIt) {
  constexpr char kType[] = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
  Reply reply = server().send({.target = "/openapi/v2", .headers = {{"Accept", kType}}});
  ASSERT_TRUE(is_code(reply, 200));
  EXPECT_TRUE(reply.body.is_null()) << "JSON, though protobuf was asked for";
  // Field 1 of the Document: its swagger version.
  EXPECT_EQ(reply.text.substr(0, 5), std::string("\n\x03") + "2.0");
}

TEST_F(Discovery, OpenApiV3IsThereWhereTheServerIsNewEnough) {
  Reply index = get("/openapi/v3");
  NEEDS(index.code != 404, "the server has no OpenAPI v3");
  ASSERT_TRUE(is_code(index, 200));
  const Json& paths = index.body["paths"];
  ASSERT_TRUE(paths.contains("api/v1"));
  std::string url = paths["api/v1"]["serverRelativeURL"];
  Reply document = get(url);
  ASSERT_TRUE(is_code(document, 200));
  EXPECT_TRUE(string_or(document.body, "openapi", "").starts_with("3."));
  EXPECT_TRUE(paths.contains("apis/" + group_version()));
}

}  // namespace
}  // namespace lockstep::conformance
