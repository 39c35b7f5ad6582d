// Custom resources: the effects of their definition's schema.
#include "tests/conformance/support/widgets.h"

namespace lockstep::conformance {
namespace {

class CustomResources : public WidgetCase {
 protected:
  // Returns the refusal of a widget with this spec.
  Reply refusal(const Json& spec) { return ask("POST", widgets(), widget("a", spec)); }
  Json spec_of(const Json& spec) { return make(widgets(), widget("a", spec))["spec"]; }
};

TEST_F(CustomResources, AnObjectIsMadeReadAndListed) {
  Json made = make(widgets(), widget("a"));
  EXPECT_EQ(made["kind"], "Widget");
  EXPECT_EQ(made["apiVersion"], group_version());
  EXPECT_EQ(get(widgets() + "/a").body, made);
  Reply list = get(widgets());
  ASSERT_TRUE(is_code(list, 200));
  EXPECT_EQ(list.body["kind"], "WidgetList");
  EXPECT_EQ(list.body["apiVersion"], group_version());
  EXPECT_EQ(list.body["items"], Json::array({made}));
}

TEST_F(CustomResources, NotFoundAndAlreadyExistsNameTheGroup) {
  Reply missing = get(widgets() + "/a");
  ASSERT_TRUE(is_failure(missing, 404, "NotFound"));
  EXPECT_EQ(missing.body["message"], "widgets." + group() + " \"a\" not found");
  EXPECT_EQ(missing.body["details"],
            Json({{"name", "a"}, {"group", group()}, {"kind", "widgets"}}));
  make(widgets(), widget("a"));
  Reply again = ask("POST", widgets(), widget("a"));
  ASSERT_TRUE(is_failure(again, 409, "AlreadyExists"));
  EXPECT_EQ(again.body["message"], "widgets." + group() + " \"a\" already exists");
}

TEST_F(CustomResources, UnknownFieldsArePrunedAtEveryDepth) {
  Json spec = {{"unknown", 1},
               {"parts", Json::array({{{"name", "x"}, {"unknown", {{"deep", 1}}}}})}};
  Json object = widget("a", spec);
  object["unknown"] = "x";
  Json made = make(widgets(), object);
  EXPECT_FALSE(made.contains("unknown"));
  EXPECT_FALSE(made["spec"].contains("unknown"));
  EXPECT_EQ(made["spec"]["parts"][0], Json({{"name", "x"}, {"count", 5}}));
}

TEST_F(CustomResources, WhatPreservesUnknownFieldsKeepsThem) {
  Json anything = {{"a", {{"b", Json::array({1, "x", nullptr})}}}};
  EXPECT_EQ(spec_of({{"anything", anything}})["anything"], anything);
}

TEST_F(CustomResources, DefaultsAreFilledInAndStored) {
  EXPECT_EQ(spec_of(Json::object())["size"], 1);
  EXPECT_EQ(get(widgets() + "/a").body["spec"]["size"], 1);
  EXPECT_EQ(get(widgets()).body["items"][0]["spec"]["size"], 1);
}

TEST_F(CustomResources, AMissingFieldIs422WithItsPathAsCause) {
  Json object = widget("a");
  object["spec"].erase("color");
  Reply refused = ask("POST", widgets(), object);
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueRequired", "spec.color"));
  EXPECT_EQ(refused.body["details"]["kind"], "Widget");
  EXPECT_EQ(refused.body["details"]["group"], group());
  EXPECT_EQ(refused.body["details"]["name"], "a");
  EXPECT_EQ(refused.body["message"],
            "Widget." + group() + " \"a\" is invalid: spec.color: Required value");
}

TEST_F(CustomResources, AnotherTypeIs422WithItsPathAsCause) {
  Reply refused = refusal({{"size", "three"}});
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "", "spec.size"));
  EXPECT_TRUE(has_cause(refusal({{"list", "x"}}), "", "spec.list"));
  EXPECT_TRUE(has_cause(refusal({{"note", 3}}), "", "spec.note"));
  EXPECT_TRUE(has_cause(refusal({{"limits", {{"x", "y"}}}}), "", "spec.limits.x"));
}

TEST_F(CustomResources, AValueOutsideAnEnumIs422) {
  Reply refused = refusal({{"color", "blue"}});
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueNotSupported", "spec.color"));
  EXPECT_NE(refused.body["message"].get<std::string>().find(
                "Unsupported value: \"blue\": supported values: \"red\", \"green\""),
            std::string::npos)
      << refused.body["message"];
}

TEST_F(CustomResources, ValuesOutsideTheirBoundsAre422) {
  EXPECT_TRUE(has_cause(refusal({{"size", 11}}), "FieldValueInvalid", "spec.size"));
  EXPECT_TRUE(has_cause(refusal({{"size", -1}}), "FieldValueInvalid", "spec.size"));
  EXPECT_TRUE(has_cause(refusal({{"note", "ABC"}}), "FieldValueInvalid", "spec.note"));
  EXPECT_TRUE(has_cause(refusal({{"note", "abcdefghijk"}}), "", "spec.note"));
  EXPECT_TRUE(has_cause(refusal({{"list", {"a", "b", "c", "d"}}}), "", "spec.list"));
}

TEST_F(CustomResources, AllThatIsWrongIsSaidAtOnce) {
  Reply refused = refusal({{"size", 11}, {"color", "blue"}});
  EXPECT_TRUE(has_cause(refused, "", "spec.size"));
  EXPECT_TRUE(has_cause(refused, "", "spec.color"));
}

TEST_F(CustomResources, ListsAsSetsAndMapsRefuseTwins) {
  EXPECT_TRUE(has_cause(refusal({{"set", {"a", "a"}}}), "FieldValueDuplicate", "spec.set[1]"));
  Json twins = Json::array({{{"name", "x"}}, {{"name", "x"}}});
  EXPECT_TRUE(has_cause(refusal({{"parts", twins}}), "FieldValueDuplicate", "spec.parts[1]"));
}

TEST_F(CustomResources, NullIsKeptWhereItMayBeAndDefaultedWhereItMayNot) {
  Json spec = spec_of({{"maybe", nullptr}, {"size", nullptr}});
  EXPECT_TRUE(spec.contains("maybe"));
  EXPECT_TRUE(spec["maybe"].is_null());
  EXPECT_EQ(spec["size"], 1);
}

TEST_F(CustomResources, AnUpdateIsCheckedAsACreateIs) {
  Json made = make(widgets(), widget("a"));
  made["spec"]["size"] = 11;
  EXPECT_TRUE(is_failure(ask("PUT", widgets() + "/a", made), 422, "Invalid"));
  EXPECT_TRUE(is_failure(patch(widgets() + "/a", {{"spec", {{"size", 11}}}}), 422, "Invalid"));
  EXPECT_EQ(get(widgets() + "/a").body["spec"]["size"], 1);
}

TEST_F(CustomResources, AnUpdateNeedsAResourceVersion) {
  make(widgets(), widget("a"));
  Reply refused = ask("PUT", widgets() + "/a", widget("a"));
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueInvalid", "metadata.resourceVersion"));
}

TEST_F(CustomResources, TheKindMustBeSaidAndBeTheRightOne) {
  Json object = widget("a");
  object["kind"] = "Gadget";
  Reply refused = ask("POST", widgets(), object);
  EXPECT_TRUE(refused.code == 400 || refused.code == 422) << refused.text;
  object = widget("a");
  object["apiVersion"] = group() + "/v2";
  EXPECT_TRUE(is_failure(ask("POST", widgets(), object), 400, "BadRequest"));
  object.erase("kind");
  object.erase("apiVersion");
  EXPECT_TRUE(is_failure(ask("POST", widgets(), object), 400, "BadRequest"));
}

TEST_F(CustomResources, AStrategicMergePatchIs415) {
  make(widgets(), widget("a"));
  Reply refused = patch(widgets() + "/a", {{"spec", {{"size", 2}}}}, kStrategicPatch);
  EXPECT_TRUE(is_failure(refused, 415, "UnsupportedMediaType"));
}

TEST_F(CustomResources, FieldSelectorsKnowNameAndNamespaceAlone) {
  make(widgets(), widget("a"));
  make(widgets(), widget("b"));
  EXPECT_EQ(names(get(widgets() + "?fieldSelector=metadata.name%3Db")),
            std::vector<std::string>{"b"});
  EXPECT_TRUE(is_failure(get(widgets() + "?fieldSelector=spec.color%3Dred"), 400, "BadRequest"));
}

TEST_F(CustomResources, NumbersKeepTheirKind) {
  Json spec = spec_of({{"ratio", 0.5}, {"size", 3}});
  EXPECT_EQ(spec["ratio"], 0.5);
  EXPECT_TRUE(spec["size"].is_number_integer());
  EXPECT_TRUE(is_failure(ask("POST", widgets(), widget("b", {{"size", 1.5}})), 422, "Invalid"));
}

TEST_F(CustomResources, WatchesSendTheirEvents) {
  Watching watch(widgets() +
                 "?watch=true&resourceVersion=" + meta(get(widgets()).body, "resourceVersion"));
  make(widgets(), widget("a"));
  EXPECT_EQ(watch.next_text(), "ADDED a");
  EXPECT_TRUE(is_code(patch(widgets() + "/a", {{"spec", {{"size", 2}}}}), 200));
  EXPECT_EQ(watch.next_text(), "MODIFIED a");
  EXPECT_TRUE(is_code(ask("DELETE", widgets() + "/a"), 200));
  EXPECT_EQ(watch.next_text(), "DELETED a");
}

}  // namespace
}  // namespace lockstep::conformance
