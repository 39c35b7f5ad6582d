// Server-side apply: field ownership and its effects.
#include "tests/conformance/support/widgets.h"

namespace lockstep::conformance {
namespace {

class Apply : public WidgetCase {
 protected:
  Reply apply(const std::string& manager, const Json& object, const std::string& more = "") {
    bool custom = object["kind"] == "Widget";
    std::string target = (custom ? widgets() : configmaps()) + "/" + meta(object, "name");
    return patch(target + "?fieldManager=" + manager + more, object, kApplyPatch);
  }
  static Json config(const Json& data) {
    return {
        {"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", "a"}}}, {"data", data}};
  }
  // Returns the entry of a manager; null if it has none.
  static Json entry(const Json& object, const std::string& manager) {
    for (const Json& one : object["metadata"].value("managedFields", Json::array()))
      if (one["manager"] == manager) return one;
    return {};
  }
};

TEST_F(Apply, MakesWhatIsNotThereAndChangesNothingTheSecondTime) {
  Reply made = apply("one", config({{"x", "1"}}));
  ASSERT_TRUE(is_code(made, 201));
  EXPECT_EQ(made.body["data"], Json({{"x", "1"}}));
  Reply again = apply("one", config({{"x", "1"}}));
  ASSERT_TRUE(is_code(again, 200));
  EXPECT_EQ(meta(again.body, "resourceVersion"), meta(made.body, "resourceVersion"));
}

TEST_F(Apply, WritesDownWhoOwnsWhat) {
  Reply made = apply("one", config({{"x", "1"}}));
  ASSERT_TRUE(is_code(made, 201));
  Json owned = entry(made.body, "one");
  ASSERT_FALSE(owned.is_null()) << made.text;
  EXPECT_EQ(owned["operation"], "Apply");
  EXPECT_EQ(owned["apiVersion"], "v1");
  EXPECT_EQ(owned["fieldsType"], "FieldsV1");
  EXPECT_EQ(owned["fieldsV1"], Json({{"f:data", {{"f:x", Json::object()}}}}));
  EXPECT_TRUE(owned["time"].is_string());
}

TEST_F(Apply, WithoutAManagerItIs422) {
  Reply refused = patch(configmaps() + "/a", config({{"x", "1"}}), kApplyPatch);
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueRequired", "fieldManager"));
}

TEST_F(Apply, AnotherManagersValueIsAConflictThatNamesTheField) {
  ASSERT_TRUE(is_code(apply("one", config({{"x", "1"}})), 201));
  Reply refused = apply("two", config({{"x", "2"}}));
  ASSERT_TRUE(is_failure(refused, 409, "Conflict"));
  EXPECT_TRUE(has_cause(refused, "FieldManagerConflict", ".data.x"));
  EXPECT_NE(refused.body["message"].get<std::string>().find("conflict with \"one\""),
            std::string::npos)
      << refused.text;
  EXPECT_EQ(get(configmaps() + "/a").body["data"]["x"], "1");
}

TEST_F(Apply, ForceTakesTheFieldOver) {
  ASSERT_TRUE(is_code(apply("one", config({{"x", "1"}})), 201));
  Reply forced = apply("two", config({{"x", "2"}}), "&force=true");
  ASSERT_TRUE(is_code(forced, 200));
  EXPECT_EQ(forced.body["data"]["x"], "2");
  EXPECT_TRUE(entry(forced.body, "one").is_null()) << forced.text;
  EXPECT_FALSE(entry(forced.body, "two").is_null());
}

TEST_F(Apply, EqualValuesAreOwnedTogether) {
  ASSERT_TRUE(is_code(apply("one", config({{"x", "1"}})), 201));
  Reply shared = apply("two", config({{"x", "1"}}));
  ASSERT_TRUE(is_code(shared, 200));
  EXPECT_FALSE(entry(shared.body, "one").is_null());
  EXPECT_FALSE(entry(shared.body, "two").is_null());
}

TEST_F(Apply, WhatIsNoLongerAppliedIsRemoved) {
  ASSERT_TRUE(is_code(apply("one", config({{"x", "1"}, {"y", "1"}})), 201));
  Reply applied = apply("one", config({{"x", "1"}}));
  ASSERT_TRUE(is_code(applied, 200));
  EXPECT_EQ(applied.body["data"], Json({{"x", "1"}}));
}

TEST_F(Apply, WhatAnotherStillAppliesStays) {
  ASSERT_TRUE(is_code(apply("one", config({{"x", "1"}, {"y", "1"}})), 201));
  ASSERT_TRUE(is_code(apply("two", config({{"y", "1"}})), 200));
  Reply applied = apply("one", config({{"x", "1"}}));
  ASSERT_TRUE(is_code(applied, 200));
  EXPECT_EQ(applied.body["data"], Json({{"x", "1"}, {"y", "1"}}));
}

TEST_F(Apply, OthersFieldsAreLeftAlone) {
  ASSERT_TRUE(is_code(apply("one", config({{"x", "1"}})), 201));
  Reply applied = apply("two", config({{"y", "1"}}));
  ASSERT_TRUE(is_code(applied, 200));
  EXPECT_EQ(applied.body["data"], Json({{"x", "1"}, {"y", "1"}}));
}

TEST_F(Apply, APlainWriteOwnsWhatItChanged) {
  ASSERT_TRUE(is_code(apply("one", config({{"x", "1"}})), 201));
  Reply patched = patch(configmaps() + "/a?fieldManager=editor", {{"data", {{"x", "2"}}}});
  ASSERT_TRUE(is_code(patched, 200));
  Json owned = entry(patched.body, "editor");
  ASSERT_FALSE(owned.is_null()) << patched.text;
  EXPECT_EQ(owned["operation"], "Update");
  EXPECT_EQ(owned["fieldsV1"], Json({{"f:data", {{"f:x", Json::object()}}}}));
  Reply refused = apply("one", config({{"x", "1"}}));
  ASSERT_TRUE(is_failure(refused, 409, "Conflict"));
  EXPECT_TRUE(has_cause(refused, "FieldManagerConflict", ".data.x"));
}

TEST_F(Apply, ADryRunShowsTheResultAndWritesNothing) {
  Reply shown = apply("one", config({{"x", "1"}}), "&dryRun=All");
  EXPECT_TRUE(is_code(shown, 201));
  EXPECT_EQ(shown.body["data"], Json({{"x", "1"}}));
  EXPECT_EQ(get(configmaps() + "/a").code, 404);
}

TEST_F(Apply, ManagedFieldsMustNotBeApplied) {
  Json object = config({{"x", "1"}});
  object["metadata"]["managedFields"] = Json::array({{{"manager", "one"}}});
  EXPECT_TRUE(is_failure(apply("one", object), 400, "BadRequest"));
}

TEST_F(Apply, AnOldResourceVersionIs409) {
  Reply made = apply("one", config({{"x", "1"}}));
  ASSERT_TRUE(is_code(apply("one", config({{"x", "2"}})), 200));
  Json object = config({{"x", "3"}});
  object["metadata"]["resourceVersion"] = meta(made.body, "resourceVersion");
  EXPECT_TRUE(is_failure(apply("one", object), 409, "Conflict"));
}

TEST_F(Apply, YamlIsWhatItIsWrittenIn) {
  Reply made = server().send({.method = "PATCH",
                              .target = configmaps() + "/a?fieldManager=one",
                              .headers = {{"Content-Type", kApplyPatch}},
                              .body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"
                                      "data:\n  x: \"1\"\n"});
  ASSERT_TRUE(is_code(made, 201));
  EXPECT_EQ(made.body["data"], Json({{"x", "1"}}));
}

TEST_F(Apply, ItemsOfAKeyedListAreOwnedOneByOne) {
  auto parts = [](const char* name, int count) {
    return Json{{"parts", Json::array({{{"name", name}, {"count", count}}})}};
  };
  ASSERT_TRUE(is_code(apply("one", widget("a", parts("x", 1))), 201));
  Reply both = apply("two", widget("a", parts("y", 2)));
  ASSERT_TRUE(is_code(both, 200));
  EXPECT_EQ(both.body["spec"]["parts"],
            Json::array({{{"name", "x"}, {"count", 1}}, {{"name", "y"}, {"count", 2}}}));
  Reply refused = apply("two", widget("a", parts("x", 9)));
  ASSERT_TRUE(is_failure(refused, 409, "Conflict"));
  EXPECT_TRUE(has_cause(refused, "FieldManagerConflict", ".spec.parts[name=\"x\"].count"));
  Reply left = apply("one", widget("a"));
  ASSERT_TRUE(is_code(left, 200));
  EXPECT_EQ(left.body["spec"]["parts"], Json::array({{{"name", "y"}, {"count", 2}}}));
}

TEST_F(Apply, CustomResourcesAreCheckedPrunedAndDefaulted) {
  EXPECT_TRUE(is_failure(apply("one", widget("a", {{"size", 11}})), 422, "Invalid"));
  Reply made = apply("one", widget("a"));
  ASSERT_TRUE(is_code(made, 201));
  EXPECT_EQ(made.body["spec"]["size"], 1);
  EXPECT_EQ(made.body["metadata"]["generation"], 1);
}

TEST_F(Apply, AManagerCanBeResetByAnEmptyEntry) {
  ASSERT_TRUE(is_code(apply("one", config({{"x", "1"}})), 201));
  Reply reset = patch(configmaps() + "/a",
                      {{"metadata", {{"managedFields", Json::array({Json::object()})}}}});
  ASSERT_TRUE(is_code(reset, 200));
  EXPECT_TRUE(entry(reset.body, "one").is_null()) << reset.text;
}

TEST_F(Apply, TheNameOfTheBodyMustBeThatOfThePath) {
  Reply refused = patch(configmaps() + "/b?fieldManager=one", config({{"x", "1"}}), kApplyPatch);
  EXPECT_TRUE(is_failure(refused, 400, "BadRequest"));
}

}  // namespace
}  // namespace lockstep::conformance
