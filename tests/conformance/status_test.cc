// The status and scale subresources, and metadata.generation.
#include "tests/conformance/support/widgets.h"

namespace lockstep::conformance {
namespace {

class Status : public WidgetCase {
 protected:
  static int64_t generation(const Json& object) {
    return int_or(object["metadata"], "generation", 0);
  }
};

TEST_F(Status, ACreateIgnoresTheStatus) {
  Json object = widget("a");
  object["status"] = {{"phase", "Done"}};
  EXPECT_FALSE(make(widgets(), object).contains("status"));
}

TEST_F(Status, AWriteOfTheStatusChangesNothingElse) {
  Json made = make(widgets(), widget("a"));
  Json object = made;
  object["spec"]["size"] = 7;
  object["metadata"]["labels"] = {{"x", "y"}};
  object["status"] = {{"phase", "Running"}};
  Reply written = ask("PUT", widgets() + "/a/status", object);
  ASSERT_TRUE(is_code(written, 200));
  EXPECT_EQ(written.body["status"], Json({{"phase", "Running"}}));
  EXPECT_EQ(written.body["spec"], made["spec"]);
  EXPECT_FALSE(written.body["metadata"].contains("labels"));
  EXPECT_NE(meta(written.body, "resourceVersion"), meta(made, "resourceVersion"));
}

TEST_F(Status, AWriteOfTheObjectLeavesTheStatus) {
  Json made = make(widgets(), widget("a"));
  Json status = {{"status", {{"phase", "Running"}}}};
  Json object = patch(widgets() + "/a/status", status).body;
  object["status"] = {{"phase", "Stolen"}};
  object["spec"]["size"] = 2;
  Reply written = ask("PUT", widgets() + "/a", object);
  ASSERT_TRUE(is_code(written, 200));
  EXPECT_EQ(written.body["status"], Json({{"phase", "Running"}}));
  EXPECT_EQ(written.body["spec"]["size"], 2);
  Reply patched = patch(widgets() + "/a", {{"status", {{"phase", "Stolen"}}}});
  ASSERT_TRUE(is_code(patched, 200));
  EXPECT_EQ(patched.body["status"], Json({{"phase", "Running"}}));
}

TEST_F(Status, GenerationCountsChangesOfTheSpecAlone) {
  Json made = make(widgets(), widget("a"));
  EXPECT_EQ(generation(made), 1);
  Json object = patch(widgets() + "/a/status", {{"status", {{"phase", "x"}}}}).body;
  EXPECT_EQ(generation(object), 1);
  object = patch(widgets() + "/a", {{"metadata", {{"labels", {{"x", "y"}}}}}}).body;
  EXPECT_EQ(generation(object), 1);
  object = patch(widgets() + "/a", {{"spec", {{"size", 4}}}}).body;
  EXPECT_EQ(generation(object), 2);
  object = patch(widgets() + "/a", {{"spec", {{"size", 4}}}}).body;
  EXPECT_EQ(generation(object), 2);
}

TEST_F(Status, AWriteOfTheStatusFromAnOldVersionIs409) {
  Json old = make(widgets(), widget("a"));
  EXPECT_TRUE(is_code(patch(widgets() + "/a/status", {{"status", {{"phase", "x"}}}}), 200));
  old["status"] = {{"phase", "y"}};
  EXPECT_TRUE(is_failure(ask("PUT", widgets() + "/a/status", old), 409, "Conflict"));
}

TEST_F(Status, TheStatusIsCheckedAgainstTheSchemaToo) {
  make(widgets(), widget("a"));
  Reply refused = patch(widgets() + "/a/status", {{"status", {{"phase", 3}}}});
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "", "status.phase"));
  Reply pruned = patch(widgets() + "/a/status", {{"status", {{"phase", "x"}, {"unknown", 1}}}});
  EXPECT_EQ(pruned.body["status"], Json({{"phase", "x"}}));
}

TEST_F(Status, TheStatusOfNothingIs404) {
  EXPECT_TRUE(
      is_failure(patch(widgets() + "/a/status", {{"status", Json::object()}}), 404, "NotFound"));
}

TEST_F(Status, AKindWithoutStatusHasNoSuchPath) {
  make(secrets(), named("a"));
  EXPECT_EQ(get(secrets() + "/a/status").code, 404);
}

TEST_F(Status, AReadOfTheStatusIsTheWholeObject) {
  Json made = make(widgets(), widget("a"));
  EXPECT_EQ(get(widgets() + "/a/status").body, made);
}

class Scale : public WidgetCase {};

TEST_F(Scale, AReadShowsReplicasAndSelector) {
  Json made = make(widgets(), widget("a", {{"size", 3}}));
  EXPECT_TRUE(is_code(
      patch(widgets() + "/a/status", {{"status", {{"replicas", 2}, {"selector", "x=y"}}}}), 200));
  Reply scale = get(widgets() + "/a/scale");
  ASSERT_TRUE(is_code(scale, 200));
  EXPECT_EQ(scale.body["kind"], "Scale");
  EXPECT_EQ(scale.body["apiVersion"], "autoscaling/v1");
  EXPECT_EQ(scale.body["spec"], Json({{"replicas", 3}}));
  EXPECT_EQ(scale.body["status"], Json({{"replicas", 2}, {"selector", "x=y"}}));
  EXPECT_EQ(meta(scale.body, "name"), "a");
  EXPECT_EQ(meta(scale.body, "uid"), meta(made, "uid"));
}

TEST_F(Scale, AWriteChangesTheSpecAndTheGeneration) {
  make(widgets(), widget("a", {{"size", 3}}));
  Json scale = get(widgets() + "/a/scale").body;
  scale["spec"]["replicas"] = 5;
  Reply written = ask("PUT", widgets() + "/a/scale", scale);
  ASSERT_TRUE(is_code(written, 200));
  EXPECT_EQ(written.body["spec"]["replicas"], 5);
  Json object = get(widgets() + "/a").body;
  EXPECT_EQ(object["spec"]["size"], 5);
  EXPECT_EQ(object["metadata"]["generation"], 2);
}

TEST_F(Scale, AMergePatchIsAsGood) {
  make(widgets(), widget("a", {{"size", 3}}));
  ASSERT_TRUE(is_code(patch(widgets() + "/a/scale", {{"spec", {{"replicas", 4}}}}), 200));
  EXPECT_EQ(get(widgets() + "/a").body["spec"]["size"], 4);
}

TEST_F(Scale, AWriteFromAnOldVersionIs409) {
  make(widgets(), widget("a", {{"size", 3}}));
  Json old = get(widgets() + "/a/scale").body;
  EXPECT_TRUE(is_code(patch(widgets() + "/a", {{"spec", {{"size", 4}}}}), 200));
  old["spec"]["replicas"] = 5;
  EXPECT_TRUE(is_failure(ask("PUT", widgets() + "/a/scale", old), 409, "Conflict"));
}

TEST_F(Scale, ABodyWhoseMetadataIsWrongIs400) {
  make(widgets(), widget("a", {{"size", 3}}));
  const Json scale = get(widgets() + "/a/scale").body;
  for (const Json& metadata :
       {Json(5), Json::array(), Json("a"), Json({{"name", 5}}), Json({{"name", "b"}}),
        Json::object(), Json({{"name", "a"}, {"resourceVersion", 7}}),
        Json({{"name", "a"}, {"labels", {{"x", 1}}}})}) {
    Json wrong = scale;
    wrong["metadata"] = metadata;
    EXPECT_TRUE(is_failure(ask("PUT", widgets() + "/a/scale", wrong), 400, "BadRequest"))
        << metadata;
  }
  EXPECT_EQ(get(widgets() + "/a").body["spec"]["size"], 3);
}

TEST_F(Scale, FewerThanNoneAndMoreThanTheSchemaAllowsAreRefused) {
  make(widgets(), widget("a", {{"size", 3}}));
  EXPECT_TRUE(
      is_failure(patch(widgets() + "/a/scale", {{"spec", {{"replicas", -1}}}}), 422, "Invalid"));
  EXPECT_TRUE(
      is_failure(patch(widgets() + "/a/scale", {{"spec", {{"replicas", 99}}}}), 422, "Invalid"));
}

}  // namespace
}  // namespace lockstep::conformance
