// Patches: merge (RFC 7386), JSON (RFC 6902), and strategic merge for built-in kinds.
#include "tests/conformance/support/widgets.h"

namespace lockstep::conformance {
namespace {

class Patches : public WidgetCase {
 protected:
  static Json data(const Json& values) { return {{"data", values}}; }
  Json config(const Json& values) {
    Json object = named("a");
    object["data"] = values;
    return make(configmaps(), object);
  }
  static Json operation(const char* op, const char* path, const Json& value = Json()) {
    Json one = {{"op", op}, {"path", path}};
    if (!value.is_null()) one["value"] = value;
    return one;
  }
  Reply json_patch(const Json& operations) {
    return patch(configmaps() + "/a", operations, kJsonPatch);
  }
};

TEST_F(Patches, AMergePatchAddsReplacesAndRemoves) {
  config({{"keep", "1"}, {"change", "1"}, {"drop", "1"}});
  Reply patched =
      patch(configmaps() + "/a", data({{"change", "2"}, {"drop", nullptr}, {"add", "3"}}));
  ASSERT_TRUE(is_code(patched, 200));
  EXPECT_EQ(patched.body["data"], Json({{"keep", "1"}, {"change", "2"}, {"add", "3"}}));
}

TEST_F(Patches, AMergePatchReplacesListsAsAWhole) {
  make(widgets(), widget("a", {{"list", {"x", "y"}}}));
  Reply patched = patch(widgets() + "/a", {{"spec", {{"list", {"z"}}}}});
  ASSERT_TRUE(is_code(patched, 200));
  EXPECT_EQ(patched.body["spec"]["list"], Json({"z"}));
}

TEST_F(Patches, AMergePatchThatIsNoObjectIsRefused) {
  Json made = config({{"x", "1"}});
  Reply refused = patch(configmaps() + "/a", Json::array());
  EXPECT_TRUE(refused.code == 400 || refused.code == 422) << refused.text;
  EXPECT_EQ(get(configmaps() + "/a").body, made);
}

TEST_F(Patches, APatchOfNothingIs404) {
  EXPECT_TRUE(is_failure(patch(configmaps() + "/a", data({{"x", "1"}})), 404, "NotFound"));
}

TEST_F(Patches, APatchThatChangesNothingWritesNothing) {
  Json made = config({{"x", "1"}});
  Reply patched = patch(configmaps() + "/a", data({{"x", "1"}}));
  ASSERT_TRUE(is_code(patched, 200));
  EXPECT_EQ(meta(patched.body, "resourceVersion"), meta(made, "resourceVersion"));
}

TEST_F(Patches, APatchCanNotRename) {
  config({{"x", "1"}});
  EXPECT_FALSE(patch(configmaps() + "/a", {{"metadata", {{"name", "b"}}}}).code < 300);
  EXPECT_EQ(get(configmaps() + "/b").code, 404);
}

TEST_F(Patches, APatchCanNotTouchWhatTheServerGave) {
  Json made = config({{"x", "1"}});
  Reply patched =
      patch(configmaps() + "/a", {{"metadata", {{"creationTimestamp", "2001-01-01T00:00:00Z"}}}});
  ASSERT_TRUE(is_code(patched, 200));
  EXPECT_EQ(meta(patched.body, "creationTimestamp"), meta(made, "creationTimestamp"));
}

TEST_F(Patches, AJsonPatchAddsReplacesRemovesMovesAndCopies) {
  config({{"a", "1"}, {"b", "2"}, {"c", "3"}});
  Reply patched = json_patch({operation("add", "/data/new", "4"),
                              operation("replace", "/data/a", "5"),
                              operation("remove", "/data/b"),
                              {{"op", "move"}, {"from", "/data/c"}, {"path", "/data/d"}},
                              {{"op", "copy"}, {"from", "/data/new"}, {"path", "/data/e"}}});
  ASSERT_TRUE(is_code(patched, 200));
  EXPECT_EQ(patched.body["data"], Json({{"a", "5"}, {"new", "4"}, {"d", "3"}, {"e", "4"}}));
}

TEST_F(Patches, AJsonPatchsTestGuardsTheRest) {
  config({{"a", "1"}});
  Json guarded = {operation("test", "/data/a", "1"), operation("replace", "/data/a", "2")};
  EXPECT_TRUE(is_code(json_patch(guarded), 200));
  EXPECT_TRUE(is_failure(json_patch(guarded), 422, "Invalid"));
  EXPECT_EQ(get(configmaps() + "/a").body["data"]["a"], "2");
}

TEST_F(Patches, AJsonPatchOfAPathThatIsNotThereIs422) {
  config({{"a", "1"}});
  EXPECT_TRUE(
      is_failure(json_patch(Json::array({operation("remove", "/data/none")})), 422, "Invalid"));
  EXPECT_TRUE(
      is_failure(json_patch(Json::array({operation("replace", "/none/x", "1")})), 422, "Invalid"));
}

TEST_F(Patches, AJsonPatchThatIsNoListIs400) {
  config({{"a", "1"}});
  EXPECT_TRUE(is_failure(json_patch(Json::object()), 400, "BadRequest"));
}

TEST_F(Patches, AJsonPatchReadsTildesAndAppendsWithADash) {
  make(widgets(), widget("a", {{"list", {"x"}}, {"anything", {{"a/b", 1}, {"c~d", 2}}}}));
  Reply patched =
      patch(widgets() + "/a",
            {operation("add", "/spec/list/-", "y"), operation("replace", "/spec/anything/a~1b", 3),
             operation("remove", "/spec/anything/c~0d")},
            kJsonPatch);
  ASSERT_TRUE(is_code(patched, 200));
  EXPECT_EQ(patched.body["spec"]["list"], Json({"x", "y"}));
  EXPECT_EQ(patched.body["spec"]["anything"], Json({{"a/b", 3}}));
}

TEST_F(Patches, AStrategicPatchMergesListsByTheirKeys) {
  Json object = pod("a");
  object["spec"]["containers"].push_back({{"name", "other"}, {"image", "none"}});
  make(pods(), object);
  Json change = {{"spec", {{"containers", Json::array({{{"name", "other"}, {"image", "new"}}})}}}};
  Reply patched = patch(pods() + "/a", change, kStrategicPatch);
  ASSERT_TRUE(is_code(patched, 200));
  const Json& containers = patched.body["spec"]["containers"];
  ASSERT_EQ(containers.size(), 2u);
  EXPECT_EQ(containers[0]["image"], "none");
  EXPECT_EQ(containers[1]["image"], "new");
}

TEST_F(Patches, AStrategicPatchMergesListsOfValuesAndDeletesFromThem) {
  Json object = named("a");
  object["metadata"]["finalizers"] = {"lockstep.dev/x"};
  make(configmaps(), object);
  Reply patched = patch(configmaps() + "/a", {{"metadata", {{"finalizers", {"lockstep.dev/y"}}}}},
                        kStrategicPatch);
  ASSERT_TRUE(is_code(patched, 200));
  EXPECT_EQ(patched.body["metadata"]["finalizers"], Json({"lockstep.dev/y", "lockstep.dev/x"}));
  Json change = {{"metadata",
                  {{"$deleteFromPrimitiveList/finalizers", {"lockstep.dev/x", "lockstep.dev/y"}}}}};
  patched = patch(configmaps() + "/a", change, kStrategicPatch);
  ASSERT_TRUE(is_code(patched, 200));
  EXPECT_FALSE(patched.body["metadata"].contains("finalizers"));
}

TEST_F(Patches, AStrategicPatchDeletesAnItemByItsKey) {
  Json owner = config({{"x", "1"}});
  Json object = named("b");
  object["metadata"]["ownerReferences"] = Json::array(
      {{{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"name", "a"}, {"uid", meta(owner, "uid")}}});
  make(configmaps(), object);
  Json item = {{"$patch", "delete"}, {"uid", meta(owner, "uid")}};
  Reply patched =
      patch(configmaps() + "/b", {{"metadata", {{"ownerReferences", Json::array({item})}}}},
            kStrategicPatch);
  ASSERT_TRUE(is_code(patched, 200));
  EXPECT_FALSE(patched.body["metadata"].contains("ownerReferences"));
}

TEST_F(Patches, AStrategicPatchReplacesWhatItIsToldTo) {
  config({{"x", "1"}, {"y", "2"}});
  Json change = data({{"$patch", "replace"}, {"z", "3"}});
  Reply patched = patch(configmaps() + "/a", change, kStrategicPatch);
  ASSERT_TRUE(is_code(patched, 200));
  EXPECT_EQ(patched.body["data"], Json({{"z", "3"}}));
}

}  // namespace
}  // namespace lockstep::conformance
