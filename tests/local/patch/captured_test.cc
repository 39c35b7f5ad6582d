// Replays writes that were sent to a kube-apiserver 1.20.2, and compares its responses. Kinds are
// Widget (its CRD has the schema of the fixture) and ConfigMap. Cases that later versions handle
// differently are left out.
#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/local/patch/apply_fixture.h"

namespace lockstep::local {
namespace {

Json captured() {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/tests/local/patch/kube_apiserver_1_20.json");
  std::stringstream text;
  text << file.rdbuf();
  return json(text.str());
}

// Returns the entries sorted and without times.
std::vector<std::string> entries_of(const Json& entries) {
  std::vector<std::string> list;
  for (Json entry : entries) {
    entry.erase("time");
    list.push_back(dump_json(entry));
  }
  std::sort(list.begin(), list.end());
  return list;
}

class Replay {
 public:
  explicit Replay(const std::string& kind)
      : widget_(kind == "widget"),
        schema_(widget_ ? std::make_shared<const SchemaNode>(widget_schema())
                        : built_in_schema("v1", "ConfigMap")) {}

  // Performs a step. Returns the error message; "" if the step succeeded.
  std::string write(const Json& step) {
    const FieldWriter by{step["manager"], widget_ ? "x.dev/v1" : "v1", "",
                         WallTime(std::chrono::seconds(1'600'000'000 + ++writes_))};
    if (step["op"] == "apply") {
      ApplyResult result =
          apply_intent(*schema_, live(), whole(step["object"]), by, bool_or(step, "force", false));
      if (auto* error = std::get_if<PatchError>(&result)) return error->message;
      if (auto* list = std::get_if<std::vector<ApplyConflict>>(&result))
        return conflict_message(*list);
      object = std::get<Json>(std::move(result));
      if (widget_) apply_defaults(*schema_, object);
      return "";
    }
    PatchResult next = patched(step["op"], step["object"]);
    if (auto* error = std::get_if<PatchError>(&next)) return error->message;
    if (widget_) apply_defaults(*schema_, std::get<Json>(next));
    record_update(*schema_, live(), std::get<Json>(next), by);
    object = std::get<Json>(std::move(next));
    return "";
  }

  Json object;

 private:
  const Json* live() const { return object.is_null() ? nullptr : &object; }

  Json whole(Json given) const {
    given["apiVersion"] = widget_ ? "x.dev/v1" : "v1";
    given["kind"] = widget_ ? "Widget" : "ConfigMap";
    given["metadata"]["name"] = "w";
    return given;
  }

  PatchResult patched(const std::string& op, const Json& given) const {
    if (op == "create") return whole(given);
    if (op == "merge") return apply_merge_patch(object, given);
    if (op == "json") return apply_json_patch(object, given);
    return apply_strategic_patch(*schema_, object, given);
  }

  bool widget_;
  std::shared_ptr<const SchemaNode> schema_;
  int writes_ = 0;
};

TEST(FieldManagers, AnswerAsKubeApiserverDid) {
  const Json sequences = captured();
  ASSERT_GE(sequences.size(), 15u);
  for (const Json& sequence : sequences) {
    Replay replay(sequence["kind"]);
    int number = 0;
    for (const Json& step : sequence["steps"]) {
      SCOPED_TRACE(sequence["name"].get<std::string>() + ", step " + std::to_string(number++));
      EXPECT_EQ(replay.write(step), string_or(step, "conflict", ""));
      if (step.contains("conflict")) continue;
      const Json& metadata = replay.object["metadata"];
      EXPECT_EQ(entries_of(metadata.value("managedFields", Json::array())),
                entries_of(step["managedFields"]));
      EXPECT_EQ(metadata.value("annotations", Json()), step.value("annotations", Json()));
      EXPECT_EQ(replay.object.value("spec", Json()), step.value("spec", Json()));
      EXPECT_EQ(replay.object.value("data", Json()), step.value("data", Json()));
    }
  }
}

}  // namespace
}  // namespace lockstep::local
