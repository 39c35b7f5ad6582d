#include "tests/local/patch/apply_fixture.h"

namespace lockstep::local {
namespace {

TEST(Apply, CreatesAnObjectWithItsOwner) {
  Written w;
  EXPECT_EQ(w.apply("a", R"({"size":"big","map":{"k":"v"}})"), "");
  EXPECT_EQ(*w.object, json(R"({"apiVersion":"x.dev/v1","kind":"Widget",
      "metadata":{"name":"w","managedFields":[{"manager":"a","operation":"Apply",
        "apiVersion":"x.dev/v1","time":"2020-09-13T12:26:41Z","fieldsType":"FieldsV1",
        "fieldsV1":{"f:spec":{"f:size":{},"f:map":{"f:k":{}}}}}]},
      "spec":{"size":"big","map":{"k":"v"}}})"));
}

struct FieldsCase {
  const char* spec;
  const char* applied;
  const char* updated;
};

// An applier owns exactly the fields it sets; a creator also owns containers.
const FieldsCase kFields[] = {
    {R"({"size":"b"})", R"({"f:size":{}})", R"({".":{},"f:size":{}})"},
    {R"({"part":{"x":1}})", R"({"f:part":{"f:x":{}}})", R"({".":{},"f:part":{".":{},"f:x":{}}})"},
    {R"({"part":{}})", R"({"f:part":{}})", R"({".":{},"f:part":{}})"},
    {R"({"box":{"x":1}})", R"({"f:box":{}})", R"({".":{},"f:box":{}})"},
    {R"({"map":{"k":"v"}})", R"({"f:map":{"f:k":{}}})", R"({".":{},"f:map":{".":{},"f:k":{}}})"},
    {R"({"any":{"k":{"l":[1]}}})", R"({"f:any":{"f:k":{".":{},"f:l":{}}}})",
     R"({".":{},"f:any":{".":{},"f:k":{".":{},"f:l":{}}}})"},
    {R"({"list":["a","b"]})", R"({"f:list":{}})", R"({".":{},"f:list":{}})"},
    {R"({"set":["a"]})", R"({"f:set":{"v:\"a\"":{}}})",
     R"({".":{},"f:set":{".":{},"v:\"a\"":{}}})"},
    {R"({"ports":[{"port":1,"name":"n"}]})",
     R"({"f:ports":{"k:{\"port\":1,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:name":{}}}})",
     R"({".":{},"f:ports":{".":{},
         "k:{\"port\":1,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:name":{}}}})"},
};

TEST(Apply, RecordsFieldsOfEverySort) {
  for (const FieldsCase& row : kFields) {
    Written applied, updated;
    EXPECT_EQ(applied.apply("a", row.spec), "");
    EXPECT_EQ(applied.fields("a", "Apply"), Json({{"f:spec", json(row.applied)}})) << row.spec;
    updated.update_spec("u", row.spec);
    EXPECT_EQ(updated.fields("u", "Update"), Json({{"f:spec", json(row.updated)}})) << row.spec;
  }
}

TEST(Apply, LeavesAnObjectAloneThatIsAsWanted) {
  Written w;
  EXPECT_EQ(w.apply("a", R"({"size":"big","set":["x"],"ports":[{"port":1}]})"), "");
  const Json before = *w.object;
  EXPECT_EQ(w.apply("a", R"({"size":"big","set":["x"],"ports":[{"port":1}]})"), "");
  EXPECT_EQ(*w.object, before);
}

TEST(Apply, RemovesWhatTheManagerLeavesOut) {
  Written w;
  EXPECT_EQ(w.apply("a", R"({"size":"big","color":"red","part":{"x":1},"map":{"k":"v","l":"v"},
                             "set":["p","q"],"ports":[{"port":1},{"port":2}]})"),
            "");
  EXPECT_EQ(w.apply("a", R"({"size":"big","map":{"l":"v"},"set":["q"],"ports":[{"port":2}]})"), "");
  EXPECT_EQ(w.spec(), json(R"({"size":"big","map":{"l":"v"},"set":["q"],"ports":[{"port":2}]})"));
  EXPECT_EQ(w.apply("a", R"({"size":"big"})"), "");
  EXPECT_EQ(w.spec(), json(R"({"size":"big"})"));
}

TEST(Apply, LeavesFieldsOfOthers) {
  Written w;
  EXPECT_EQ(w.apply("a", R"({"part":{"x":1},"ports":[{"port":1}]})"), "");
  EXPECT_EQ(w.apply("b", R"({"part":{"y":2},"ports":[{"port":1,"name":"n"}]})"), "");
  w.update_spec("u", R"({"color":"red","part":{"x":1,"y":2},"ports":[{"port":1,"name":"n"}]})");
  EXPECT_EQ(w.apply("a", R"({})"), "");
  EXPECT_EQ(w.spec(), json(R"({"color":"red","part":{"y":2},"ports":[{"port":1,"name":"n"}]})"));
}

TEST(Apply, SharesAFieldOfTheSameValue) {
  Written w;
  EXPECT_EQ(w.apply("a", R"({"size":"big"})"), "");
  EXPECT_EQ(w.apply("b", R"({"size":"big"})"), "");
  EXPECT_EQ(w.applied("a"), w.applied("b"));
  EXPECT_EQ(w.apply("a", R"({})"), "");
  EXPECT_EQ(w.spec(), json(R"({"size":"big"})")) << "b owns it too";
  EXPECT_EQ(w.apply("b", R"({"color":"red"})"), "");
  EXPECT_EQ(w.spec(), json(R"({"color":"red"})"));
}

TEST(Apply, ReportsAConflictInTheWordsOfAServer) {
  Written w;
  EXPECT_EQ(w.apply("a", R"({"size":"big","map":{"k":"v"}})"), "");
  EXPECT_EQ(w.apply("b", R"({"size":"small"})"),
            "Apply failed with 1 conflict: conflict with \"a\": .spec.size");
  EXPECT_EQ(w.apply("b", R"({"size":"small","map":{"k":"w"}})"),
            "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.size\n- .spec.map.k");
  w.update_spec("u", R"({"size":"huge","map":{"k":"v"}})");
  EXPECT_EQ(w.apply("b", R"({"size":"small","map":{"k":"w"}})"),
            "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.map.k\n"
            "conflicts with \"u\" using x.dev/v1:\n- .spec.size");
  EXPECT_EQ(w.spec()["size"], "huge");
}

TEST(Apply, NamesSubresourcesInConflicts) {
  Written w;
  EXPECT_EQ(w.apply("a", R"({"size":"big"})"), "");
  Json next = *w.object;
  next["spec"]["size"] = "5";
  w.update("scaler", next, "scale");
  EXPECT_EQ(
      w.apply("a", R"({"size":"big"})"),
      "Apply failed with 1 conflict: conflict with \"scaler\" with subresource \"scale\" using "
      "x.dev/v1: .spec.size");
}

TEST(Apply, TakesFieldsByForce) {
  Written w;
  EXPECT_EQ(w.apply("a", R"({"size":"big","color":"red"})"), "");
  EXPECT_EQ(w.apply("b", R"({"size":"small"})", true), "");
  EXPECT_EQ(w.spec(), json(R"({"size":"small","color":"red"})"));
  EXPECT_EQ(w.applied("a"), R"({"f:spec":{"f:color":{}}})");
  EXPECT_EQ(w.applied("b"), R"({"f:spec":{"f:size":{}}})");
}

TEST(Apply, MergesElementsAndKeepsTheOrderOfTheIntent) {
  Written w;
  EXPECT_EQ(w.apply("a", R"({"set":["a","b","c"],"ports":[{"port":1},{"port":2}]})"), "");
  EXPECT_EQ(w.apply("b", R"({"set":["d","c","b"],"ports":[{"port":2,"name":"n"},{"port":1}]})"),
            "");
  EXPECT_EQ(w.spec(), json(R"({"set":["a","d","c","b"],
                               "ports":[{"port":2,"name":"n"},{"port":1}]})"));
}

TEST(Apply, TellsElementsApartByDefaultsOfTheirKeys) {
  Written w;
  EXPECT_EQ(w.apply("a", R"({"ports":[{"port":1,"protocol":"TCP"}]})"), "");
  EXPECT_EQ(w.apply("b", R"({"ports":[{"port":1,"name":"n"},{"port":1,"protocol":"UDP"}]})"), "");
  EXPECT_EQ(w.spec()["ports"].size(), 2u);
}

TEST(Apply, ReplacesAtomicFieldsAsAWhole) {
  Written w;
  EXPECT_EQ(w.apply("a", R"({"box":{"x":1},"list":["a"]})"), "");
  EXPECT_EQ(w.apply("b", R"({"box":{"y":1},"list":["b"]})"),
            "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.box\n- .spec.list");
  EXPECT_EQ(w.apply("b", R"({"box":{"y":1},"list":["b"]})", true), "");
  EXPECT_EQ(w.spec(), json(R"({"box":{"y":1},"list":["b"]})"));
  EXPECT_EQ(w.applied("a"), "null") << "nothing is left of it";
}

TEST(Apply, OwnsNothingOfWhatTheServerSets) {
  Written w;
  Json intent = Written::widget(json(R"({"size":"b"})"), json(R"({"labels":{"a":"b"},"uid":"u",
      "finalizers":["f"],"generation":3,"namespace":"n","resourceVersion":"5"})"));
  EXPECT_EQ(w.apply_object("a", intent), "");
  EXPECT_EQ(w.fields("a", "Apply"), json(R"({"f:metadata":{"f:labels":{"f:a":{}},
      "f:finalizers":{"v:\"f\"":{}}},"f:spec":{"f:size":{}}})"));
}

struct RefusedCase {
  const char* intent;
  int code;
  const char* message;
};

const RefusedCase kRefused[] = {
    {"[]", 400, "error decoding YAML: expected an object, found array"},
    {R"({"apiVersion":"x.dev/v2","kind":"Widget"})", 400,
     "Incorrect version specified in apply patch. Specified patch version: x.dev/v2, expected: "
     "x.dev/v1"},
    {R"({"apiVersion":"x.dev/v1","kind":"Widget","metadata":{"managedFields":[{}]}})", 400,
     "metadata.managedFields must be nil"},
    {R"({"apiVersion":"x.dev/v1","kind":"Widget","metadata":{"name":"w","namespace":"n"},
         "spec":{"sizes":1}})",
     500,
     "failed to create typed patch object (n/w; x.dev/v1, Kind=Widget): .spec.sizes: field not "
     "declared in schema"},
    {R"({"apiVersion":"x.dev/v1","kind":"Widget","metadata":{"name":"w"},"more":1,
         "spec":{"part":{"z":1},"ports":[{"name":"n"}],"set":["a","a",{}]}})",
     500,
     "failed to create typed patch object (/w; x.dev/v1, Kind=Widget): errors:\n"
     "  .more: field not declared in schema\n"
     "  .spec.part.z: field not declared in schema\n"
     "  .spec.ports: element 0: associative list with keys has an element that omits key field "
     "\"port\" (and doesn't have default value)\n"
     "  .spec.set: duplicate entries for key [=\"a\"]\n"
     "  .spec.set: element 2: associative list without keys has an element that's a map type"},
};

TEST(Apply, RefusesValuesOfOtherTypes) {
  Written w;
  for (const auto& [spec, problem] :
       {std::pair(R"({"size":3})", ".spec.size: expected string"),
        std::pair(R"({"part":"x"})", ".spec.part: expected map"),
        std::pair(R"({"part":{"x":"1"}})", ".spec.part.x: expected numeric (int or float)"),
        std::pair(R"({"ports":{}})", ".spec.ports: expected list")}) {
    EXPECT_NE(w.apply("a", spec).find(problem), std::string::npos) << spec;
  }
}

TEST(Apply, RemovesAnElementWithWhatOthersSetInIt) {
  Written w;
  EXPECT_EQ(w.apply("a", R"({"size":"big","ports":[{"port":1}]})"), "");
  w.update_spec("u", R"({"size":"big","ports":[{"port":1,"name":"n"}]})");
  EXPECT_EQ(w.apply("a", R"({"size":"big","ports":[]})"), "");
  EXPECT_EQ(w.spec(), json(R"({"size":"big","ports":[]})"));
  EXPECT_EQ(w.updated("u"), "null");
}

TEST(Apply, LeavesWhatAnUpdateOwnsToo) {
  Written w;
  w.update_spec("u", R"({"size":"big"})");
  EXPECT_EQ(w.apply("a", R"({"size":"big","color":"red"})"), "");
  EXPECT_EQ(w.apply("a", R"({})"), "");
  EXPECT_EQ(w.spec(), json(R"({"size":"big"})"));
}

TEST(Apply, RefusesWhatIsNoIntent) {
  const SchemaNode schema = widget_schema();
  for (const RefusedCase& row : kRefused) {
    const ApplyResult result =
        apply_intent(schema, nullptr, json(row.intent), {"a", "x.dev/v1", "", WallTime()}, false);
    const auto* error = std::get_if<PatchError>(&result);
    ASSERT_NE(error, nullptr) << row.intent;
    EXPECT_EQ(error->code, row.code);
    EXPECT_EQ(error->message, row.message);
  }
}

TEST(Apply, MakesWhatNobodyRecordedThePropertyOfOneManager) {
  Written w;
  w.object = Written::widget(json(R"({"size":"big","color":"red"})"));
  EXPECT_EQ(w.apply("a", R"({"size":"small"})"),
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using x.dev/v1: "
            ".spec.size");
  EXPECT_EQ(w.apply("a", R"({"size":"big"})"), "");
  EXPECT_EQ(w.updated("before-first-apply"), R"({"f:spec":{".":{},"f:color":{},"f:size":{}}})");
}

TEST(Apply, LetsKubectlTakeOverWhatItAppliedItselfBefore) {
  Written w;
  Json created = Written::widget(json(R"({"size":"big","color":"red"})"));
  created["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] =
      dump_json(created);
  w.update("kubectl-client-side-apply", created);
  w.update_spec("other", R"({"size":"big","color":"blue"})");
  EXPECT_EQ(w.apply("kubectl", R"({"size":"small"})"), "");
  EXPECT_EQ(w.apply("kubectl", R"({"size":"small","color":"green"})"),
            "Apply failed with 1 conflict: conflict with \"other\" using x.dev/v1: .spec.color");
}

TEST(Update, OwnsWhatItChangesAndNothingElse) {
  Written w;
  w.update_spec("u", R"({"size":"big","map":{"k":"v"}})");
  w.update_spec("v", R"({"size":"big","map":{"k":"w","l":"x"}})");
  EXPECT_EQ(w.updated("u"), R"({"f:spec":{".":{},"f:map":{},"f:size":{}}})");
  EXPECT_EQ(w.updated("v"), R"({"f:spec":{"f:map":{"f:k":{},"f:l":{}}}})");
  w.update_spec("v", R"({"size":"big"})");
  EXPECT_EQ(w.updated("u"), R"({"f:spec":{".":{},"f:size":{}}})");
  EXPECT_EQ(w.updated("v"), "null");
}

TEST(Update, ThatChangesNothingLeavesTimesAlone) {
  Written w;
  w.update_spec("u", R"({"size":"big"})");
  const Json before = *w.object;
  w.update("u", before);
  w.update("v", before);
  EXPECT_EQ(*w.object, before);
}

TEST(Update, IgnoresManagedFieldsThatAClientLeftOutOrWroteWrong) {
  for (const char* sent : {"null", "1", R"([{"manager":"x"}])",
                           R"([{"manager":"x","operation":"Update","apiVersion":"x.dev/v1",
                                "fieldsType":"FieldsV1","fieldsV1":{"bad":{}}}])"}) {
    Written w;
    w.update_spec("u", R"({"size":"big"})");
    const Json before = *w.object;
    Json next = before;
    next["metadata"]["managedFields"] = json(sent);
    w.update("u", next);
    EXPECT_EQ(*w.object, before) << sent;
  }
}

TEST(Update, StopsRecordingWhenAClientEmptiesTheList) {
  for (const char* sent : {"[]", "[{}]"}) {
    Written w;
    w.update_spec("u", R"({"size":"big"})");
    Json next = *w.object;
    next["metadata"]["managedFields"] = json(sent);
    w.update("u", next);
    EXPECT_EQ(w.entries(), Json::array()) << sent;
    w.update_spec("u", R"({"size":"small"})");
    EXPECT_EQ(w.entries(), Json::array()) << sent;
    EXPECT_EQ(w.apply("a", R"({"size":"small"})"), "");
    EXPECT_EQ(w.entries().size(), 2u);
  }
}

// kubectl 1.26 and later makes an applier the owner of what client-side apply owned, by a JSON
// patch.
TEST(Update, TakesOverManagedFieldsThatAClientRewrote) {
  Written w;
  w.update_spec("kubectl-client-side-apply", R"({"size":"big","color":"red"})");
  Json next = *w.object;
  Json& entry = next["metadata"]["managedFields"][0];
  entry["manager"] = "kubectl";
  entry["operation"] = "Apply";
  w.update("kubectl-client-side-apply", next);
  EXPECT_EQ(w.updated("kubectl-client-side-apply"), "null");
  EXPECT_EQ(w.apply("kubectl", R"({"size":"big"})"), "");
  EXPECT_EQ(w.spec(), json(R"({"size":"big"})"));
}

TEST(Update, ThroughASubresourceLeavesTheListToTheServer) {
  Written w;
  w.update_spec("u", R"({"size":"big"})");
  Json next = *w.object;
  next["metadata"]["managedFields"] = Json::array();
  next["status"]["phase"] = "Ready";
  w.update("u", next, "status");
  ASSERT_EQ(w.entries().size(), 2u);
  EXPECT_EQ(w.entries()[1]["subresource"], "status");
  EXPECT_EQ(w.entries()[1]["fieldsV1"], json(R"({"f:status":{".":{},"f:phase":{}}})"));
}

TEST(Update, FoldsTheOldestOfMoreThanTenManagers) {
  Written w;
  EXPECT_EQ(w.apply("applier", R"({"size":"big"})"), "");
  for (int i = 0; i < 15; ++i) {
    Json spec = w.spec();
    spec["map"]["k" + std::to_string(i)] = "v";
    w.update_spec("u" + std::to_string(i), dump_json(spec));
  }
  const Json entries = w.entries();
  ASSERT_EQ(entries.size(), 11u);
  EXPECT_EQ(entries[0]["manager"], "applier");
  EXPECT_EQ(entries[1]["manager"], "ancient-changes");
  EXPECT_EQ(entries[1]["fieldsV1"],
            json(R"({"f:spec":{"f:map":{".":{},"f:k0":{},"f:k1":{},"f:k2":{},"f:k3":{},"f:k4":{},
                    "f:k5":{}}}})"));
  EXPECT_EQ(entries[1]["time"], "2020-09-13T12:26:47Z") << "that of the youngest in it";
  EXPECT_EQ(entries[2]["manager"], "u6");
}

TEST(Update, SortsAppliersBeforeUpdatesAndThenByTime) {
  Written w;
  w.update_spec("z", R"({"size":"big"})");
  w.update_spec("b", R"({"size":"big","color":"red"})");
  EXPECT_EQ(w.apply("y", R"({"map":{"k":"v"}})"), "");
  std::string order;
  for (const Json& entry : w.entries()) order += entry["manager"].get<std::string>();
  EXPECT_EQ(order, "yzb");
}

struct OddCase {
  const char* object;
  const char* created;  // fields of its creator; "": it has none
};

// Returns the fields of the only manager; "" if there is none.
std::string fields_of_one(const Json& object) {
  const Json entries = object.at("metadata").value("managedFields", Json::array());
  EXPECT_LE(entries.size(), 1u);
  return entries.empty() ? "" : dump_json(entries[0]["fieldsV1"]);
}

TEST(Update, RecordsTheFieldsOfObjectsOfAnyForm) {
  const SchemaNode schema = widget_schema();
  const FieldWriter writer{"u", "x.dev/v1", "", WallTime()};
  const Json plain = json(R"({"spec":{"ports":[{"port":1}],"set":["a"]}})");
  const std::string spec_of_plain =
      R"("f:spec":{".":{},"f:ports":{".":{},)"
      R"("k:{\"port\":1,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},)"
      R"("f:set":{".":{},"v:\"a\"":{}}})";
  const OddCase cases[] = {
      {"{}", ""},
      {R"({"metadata":1})", R"({"f:metadata":{}})"},
      {R"({"metadata":null,"spec":[]})", R"({"f:metadata":{},"f:spec":{}})"},
      {R"({"spec":{"ports":[1,{}]}})", R"({"f:spec":{".":{},"f:ports":{}}})"},
      {R"({"spec":{"set":[{},[],null]}})", R"({"f:spec":{".":{},"f:set":{}}})"},
      {R"({"metadata":{"managedFields":[1,{"fieldsV1":2}]}})", ""},
  };
  for (const OddCase& odd : cases) {
    Json object = json(odd.object);
    record_update(schema, nullptr, object, writer);
    EXPECT_EQ(fields_of_one(object), odd.created) << odd.object;
    Json next = plain;
    record_update(schema, &object, next, writer);
    const std::string updated = fields_of_one(next);
    if (*odd.created == '\0') {
      EXPECT_EQ(updated, "") << "an object without managers stays without: " << odd.object;
    } else {
      EXPECT_NE(updated.find(spec_of_plain), std::string::npos) << odd.object << ": " << updated;
    }
  }
}

}  // namespace
}  // namespace lockstep::local
