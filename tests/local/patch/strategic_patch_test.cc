#include <memory>

#include "tests/local/patch/patch_cases.h"

namespace lockstep::local {
namespace {

// An object with each kind of list: merged by `name` (containers), merged by value (finalizers),
// and atomic (args, both here and in containers).
SchemaNode merging_list(std::string merge_key) {
  SchemaNode list;
  list.type = "array";
  list.merges = true;
  list.merge_key = std::move(merge_key);
  list.items = std::make_unique<SchemaNode>();
  return list;
}

SchemaNode pod_like() {
  SchemaNode root, ports = merging_list("containerPort"), containers = merging_list("name");
  containers.items->properties["ports"] = std::move(ports);
  root.properties["containers"] = std::move(containers);
  root.properties["finalizers"] = merging_list("");
  return root;
}

const PatchCase kCases[] = {
    {"merges objects, known or not", R"({"a":{"b":1,"c":2}})", R"({"a":{"b":3,"c":null,"d":null}})",
     R"({"a":{"b":3}})"},
    {"merges elements by their key", R"({"containers":[{"name":"a","image":"1"},{"name":"b"}]})",
     R"({"containers":[{"name":"a","tty":true}]})",
     R"({"containers":[{"image":"1","name":"a","tty":true},{"name":"b"}]})"},
    {"new elements come first", R"({"containers":[{"name":"a"}]})",
     R"({"containers":[{"name":"b"}]})", R"({"containers":[{"name":"b"},{"name":"a"}]})"},
    {"merges lists in elements",
     R"({"containers":[{"name":"a","ports":[{"containerPort":1,"name":"x"}],"args":["1"]}]})",
     R"({"containers":[{"name":"a","ports":[{"containerPort":1,"hostPort":2}],"args":["2"]}]})",
     R"({"containers":[{"name":"a","ports":[{"containerPort":1,"hostPort":2,"name":"x"}],
         "args":["2"]}]})"},
    {"deletes an element", R"({"containers":[{"name":"a"},{"name":"b"},{"name":"a"}]})",
     R"({"containers":[{"name":"a","$patch":"delete"}]})", R"({"containers":[{"name":"b"}]})"},
    {"deletes an element that is not there", R"({"containers":[{"name":"b"}]})",
     R"({"containers":[{"name":"a","$patch":"delete"}]})", R"({"containers":[{"name":"b"}]})"},
    {"replaces a list", R"({"containers":[{"name":"a"},{"name":"b"}]})",
     R"({"containers":[{"name":"c"},{"$patch":"replace"}]})", R"({"containers":[{"name":"c"}]})"},
    {"empties a list", R"({"containers":[{"name":"a"}]})",
     R"({"containers":[{"$patch":"replace"}]})", R"({"containers":[]})"},
    {"replaces an object", R"({"a":{"b":1,"c":2}})", R"({"a":{"d":3,"$patch":"replace"}})",
     R"({"a":{"d":3}})"},
    {"deletes the members of an object", R"({"a":{"b":1,"c":2}})", R"({"a":{"$patch":"delete"}})",
     R"({"a":{}})"},
    {"unions values", R"({"finalizers":["a","b"]})", R"({"finalizers":["b","c"]})",
     R"({"finalizers":["a","b","c"]})"},
    {"deletes values", R"({"finalizers":["a","b","c"]})",
     R"({"$deleteFromPrimitiveList/finalizers":["a","c","x"]})", R"({"finalizers":["b"]})"},
    {"deletes and adds values", R"({"finalizers":["a","b"]})",
     R"({"$deleteFromPrimitiveList/finalizers":["a"],"finalizers":["c"]})",
     R"({"finalizers":["c","b"]})"},
    {"deletes values of a list that is not there", R"({"a":1})",
     R"({"$deleteFromPrimitiveList/finalizers":["a"]})", R"({"a":1})"},
    {"replaces lists without a merge key", R"({"args":["a"]})", R"({"args":["b"]})",
     R"({"args":["b"]})"},
    {"orders elements", R"({"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]})",
     R"({"$setElementOrder/containers":[{"name":"c"},{"name":"a"}]})",
     R"({"containers":[{"name":"b"},{"name":"c"},{"name":"a"}]})"},
    {"orders elements that it merges", R"({"containers":[{"name":"a"},{"name":"b"}]})",
     R"({"$setElementOrder/containers":[{"name":"a"},{"name":"c"},{"name":"b"}],
         "containers":[{"name":"c","image":"1"}]})",
     R"({"containers":[{"name":"a"},{"image":"1","name":"c"},{"name":"b"}]})"},
    {"orders values", R"({"finalizers":["a","b"]})",
     R"({"$setElementOrder/finalizers":["b","a","c"],"finalizers":["c"]})",
     R"({"finalizers":["b","a","c"]})"},
    {"orders a list that it makes", R"({})",
     R"({"$setElementOrder/containers":[{"name":"a"},{"name":"b"}],
         "containers":[{"name":"a"},{"name":"b"}]})",
     R"({"containers":[{"name":"a"},{"name":"b"}]})"},
    {"deletes an element beside an order", R"({"containers":[{"name":"a"},{"name":"b"}]})",
     R"({"$setElementOrder/containers":[{"name":"b"}],
         "containers":[{"name":"a","$patch":"delete"}]})",
     R"({"containers":[{"name":"b"}]})"},
    {"retains keys", R"({"a":{"type":"Rolling","rolling":{"x":1}}})",
     R"({"a":{"$retainKeys":["type"],"type":"Recreate"}})", R"({"a":{"type":"Recreate"}})"},
    {"directives in what is new leave nothing behind", R"({})",
     R"({"a":{"$retainKeys":["b"],"b":1,"c":null,"d":{"$patch":"delete"}},
         "containers":[{"name":"a"},{"name":"b","$patch":"delete"}]})",
     R"({"a":{"b":1},"containers":[{"name":"a"}]})"},
    {"another type replaces", R"({"a":{"b":1}})", R"({"a":[1]})", R"({"a":[1]})"},

    {"an element without the key", R"({"containers":[{"name":"a"}]})",
     R"({"containers":[{"image":"x"}]})",
     "422 map: map[image:x] does not contain declared merge key: name"},
    {"a deleted element without the key", R"({"containers":[{"name":"a"}]})",
     R"({"containers":[{"$patch":"delete"}]})",
     "422 map: map[$patch:delete] does not contain declared merge key: name"},
    {"a merged list of lists", R"({"finalizers":["a"]})", R"({"finalizers":[["b"]]})",
     "422 lists of lists are not supported"},
    {"elements of two sorts", R"({"containers":[{"name":"a"}]})", R"({"containers":["b"]})",
     "422 list element types are not identical: [[map[name:a]] [b]]"},
    {"an unknown directive of an object", R"({"a":{}})", R"({"a":{"$patch":"drop"}})",
     "400 unknown patch type: drop in map: map[$patch:drop]"},
    {"an unknown directive of an element", R"({"containers":[]})",
     R"({"containers":[{"name":"a","$patch":1}]})",
     "400 unknown patch type: 1 in map: map[$patch:1 name:a]"},
    {"a merge of elements by directive", R"({"containers":[]})",
     R"({"containers":[{"name":"a","$patch":"merge"}]})",
     "422 merging lists cannot yet be specified in the patch"},
    {"retained keys that the patch goes past", R"({"a":{}})",
     R"({"a":{"$retainKeys":["type"],"other":1}})", "400 invalid patch format of retainKeys"},
    {"an order that the patch contradicts", R"({"finalizers":[]})",
     R"({"$setElementOrder/finalizers":["a","b"],"finalizers":["b","a"]})",
     "400 The order in patch list:\n[b a]\n doesn't match $setElementOrder list:\n[a b]\n"},
    {"an order that is no list", R"({"finalizers":[]})", R"({"$setElementOrder/finalizers":1})",
     "400 invalid patch format of setElementOrder list"},
    {"deleted values that are no list", R"({"finalizers":[]})",
     R"({"$deleteFromPrimitiveList/finalizers":"a"})",
     "400 invalid patch format of primitive list"},
    {"not an object", R"({"a":1})", "[]",
     "400 error decoding patch: expected an object, found array"},
};

TEST(StrategicPatch, DoesWhatTheTableSays) {
  const SchemaNode schema = pod_like();
  for (const PatchCase& row : kCases)
    expect_case(row, apply_strategic_patch(schema, json(row.object), json(row.patch)));
}

TEST(StrategicPatch, BoundsTheResult) {
  const PatchResult result =
      apply_strategic_patch(SchemaNode(), {{"a", std::string(60, 'x')}},
                            {{"b", std::string(60, 'x')}}, {.bytes_max = 100});
  EXPECT_EQ(std::get<PatchError>(result).code, 413);
}

TEST(StrategicPatch, MergesLongListsWithoutComparingAllPairs) {
  Json elements = Json::array();
  for (int i = 0; i < 50'000; ++i) elements.push_back({{"name", "c" + std::to_string(i)}});
  const Json object = {{"containers", elements}};
  const PatchResult result =
      apply_strategic_patch(pod_like(), object, object, {.bytes_max = 100u << 20});
  EXPECT_EQ(std::get<Json>(result), object);
}

}  // namespace
}  // namespace lockstep::local
