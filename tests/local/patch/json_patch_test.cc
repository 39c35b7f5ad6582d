#include "local/patch/json_size.h"
#include "tests/local/patch/patch_cases.h"

namespace lockstep::local {
namespace {

// The examples in appendix A of RFC 6902 that concern objects, and cases that the RFC leaves open.
const PatchCase kCases[] = {
    {"A.1 adds a member", R"({"foo":"bar"})", R"([{"op":"add","path":"/baz","value":"qux"}])",
     R"({"baz":"qux","foo":"bar"})"},
    {"A.2 adds an element", R"({"foo":["bar","baz"]})",
     R"([{"op":"add","path":"/foo/1","value":"qux"}])", R"({"foo":["bar","qux","baz"]})"},
    {"A.3 removes a member", R"({"baz":"qux","foo":"bar"})", R"([{"op":"remove","path":"/baz"}])",
     R"({"foo":"bar"})"},
    {"A.4 removes an element", R"({"foo":["bar","qux","baz"]})",
     R"([{"op":"remove","path":"/foo/1"}])", R"({"foo":["bar","baz"]})"},
    {"A.5 replaces a value", R"({"baz":"qux","foo":"bar"})",
     R"([{"op":"replace","path":"/baz","value":"boo"}])", R"({"baz":"boo","foo":"bar"})"},
    {"A.6 moves a value", R"({"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}})",
     R"([{"op":"move","from":"/foo/waldo","path":"/qux/thud"}])",
     R"({"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}})"},
    {"A.7 moves an element", R"({"foo":["all","grass","cows","eat"]})",
     R"([{"op":"move","from":"/foo/1","path":"/foo/3"}])",
     R"({"foo":["all","cows","eat","grass"]})"},
    {"A.8 tests values", R"({"baz":"qux","foo":["a",2,"c"]})",
     R"([{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}])",
     R"({"baz":"qux","foo":["a",2,"c"]})"},
    {"A.9 a test that fails", R"({"baz":"qux"})", R"([{"op":"test","path":"/baz","value":"bar"}])",
     "422 testing value /baz failed: test failed"},
    {"A.10 adds a nested object", R"({"foo":"bar"})",
     R"([{"op":"add","path":"/child","value":{"grandchild":{}}}])",
     R"({"child":{"grandchild":{}},"foo":"bar"})"},
    {"A.11 ignores unknown members", R"({"foo":"bar"})",
     R"([{"op":"add","path":"/baz","value":"qux","xyz":123}])", R"({"baz":"qux","foo":"bar"})"},
    {"A.12 adds below nothing", R"({"foo":"bar"})",
     R"([{"op":"add","path":"/baz/bat","value":"qux"}])",
     "422 add operation does not apply: doc is missing path: \"/baz/bat\": missing value"},
    {"A.14 escapes", R"({"/":9,"~1":10})", R"([{"op":"test","path":"/~01","value":10}])",
     R"({"/":9,"~1":10})"},
    {"A.15 strings are not numbers", R"({"/":9,"~1":10})",
     R"([{"op":"test","path":"/~01","value":"10"}])", "422 testing value /~01 failed: test failed"},
    {"A.16 appends an array", R"({"foo":["bar"]})",
     R"([{"op":"add","path":"/foo/-","value":["abc","def"]}])", R"({"foo":["bar",["abc","def"]]})"},
    {"copies", R"({"a":{"b":[1]}})", R"([{"op":"copy","from":"/a/b","path":"/c"}])",
     R"({"a":{"b":[1]},"c":[1]})"},
    {"copies into itself", R"({"a":{"b":1}})", R"([{"op":"copy","from":"/a","path":"/a/c"}])",
     R"({"a":{"b":1,"c":{"b":1}}})"},
    {"does nothing", R"({"a":1})", "[]", R"({"a":1})"},
    {"a member with an empty name", R"({"a":1})", R"([{"op":"add","path":"/","value":2}])",
     R"({"":2,"a":1})"},
    {"a test for null of what is absent", R"({"a":1})",
     R"([{"op":"test","path":"/b","value":null}])", R"({"a":1})"},
    {"a test without a value", R"({"a":1})", R"([{"op":"test","path":"/a"}])",
     "422 testing value /a failed: test failed"},

    {"removes what is absent", R"({"a":{}})", R"([{"op":"remove","path":"/a/b"}])",
     "422 error in remove for path: '/a/b': Unable to remove nonexistent key: b: missing value"},
    {"replaces what is absent", R"({"a":{}})", R"([{"op":"replace","path":"/a/b","value":1}])",
     "422 replace operation does not apply: doc is missing key: /a/b: missing value"},
    {"an index past the end", R"({"a":[1]})", R"([{"op":"add","path":"/a/2","value":1}])",
     "422 error in add for path: '/a/2': Unable to access invalid index: 2: invalid index "
     "referenced"},
    {"an index that is huge", R"({"a":[1]})",
     R"([{"op":"remove","path":"/a/99999999999999999999999"}])",
     "422 error in remove for path: '/a/99999999999999999999999': Unable to access invalid index: "
     "99999999999999999999999: invalid index referenced"},
    {"an index that is none", R"({"a":[1]})", R"([{"op":"add","path":"/a/x","value":1}])",
     "422 error in add for path: '/a/x': value was not a proper array index: 'x'"},
    {"a leading zero", R"({"a":[1,2]})", R"([{"op":"remove","path":"/a/01"}])",
     "422 error in remove for path: '/a/01': value was not a proper array index: '01'"},
    {"a path through a plain value", R"({"a":1})", R"([{"op":"add","path":"/a/b","value":1}])",
     "422 add operation does not apply: doc is missing path: \"/a/b\": missing value"},
    {"the whole document", R"({"a":1})", R"([{"op":"replace","path":"","value":{}}])",
     "422 replace operation does not apply: doc is missing path: : missing value"},
    {"moves into itself", R"({"a":{"b":1}})", R"([{"op":"move","from":"/a","path":"/a/c"}])",
     "422 move operation does not apply: doc is missing destination path: /a/c: missing value"},
    {"moves what is absent", R"({"a":1})", R"([{"op":"move","from":"/b","path":"/c"}])",
     "422 error in move for path: '/b': unable to get nonexistent key: b: missing value"},
    {"copies without from", R"({"a":1})", R"([{"op":"copy","path":"/c"}])",
     "422 copy operation failed to decode from: missing value"},
    {"no path", R"({"a":1})", R"([{"op":"add","value":1}])",
     "422 add operation failed to decode path: missing value"},
    {"an unknown operation", R"({"a":1})", R"([{"op":"drop","path":"/a"}])",
     "422 Unexpected kind: drop"},
    {"not a list", R"({"a":1})", R"({"op":"add"})",
     "400 error decoding patch: expected a list of operations, found object"},
    {"not an operation", R"({"a":1})", "[1]",
     "400 error decoding patch: expected an operation that is an object, found number"},
};

TEST(JsonPatch, DoesWhatTheTableSays) {
  for (const PatchCase& row : kCases)
    expect_case(row, apply_json_patch(json(row.object), json(row.patch)));
}

TEST(JsonPatch, LeavesTheObjectAloneWhenALaterOperationFails) {
  const Json object = json(R"({"a":1})");
  const PatchResult result = apply_json_patch(
      object, json(R"([{"op":"add","path":"/b","value":2},{"op":"remove","path":"/c"}])"));
  EXPECT_EQ(std::get<PatchError>(result).code, 422);
  EXPECT_EQ(object, json(R"({"a":1})"));
}

Json repeated(size_t count, const Json& operation) {
  Json patch = Json::array();
  for (size_t i = 0; i < count; ++i) patch.push_back(operation);
  return patch;
}

TEST(JsonPatch, RefusesMoreOperationsThanAllowed) {
  const Json test = {{"op", "test"}, {"path", "/a"}, {"value", 1}};
  EXPECT_EQ(outcome(apply_json_patch({{"a", 1}}, repeated(10'000, test))), R"({"a":1})");
  EXPECT_EQ(outcome(apply_json_patch({{"a", 1}}, repeated(10'001, test))),
            "413 The allowed maximum operations in a JSON patch is 10000, got 10001");
}

TEST(JsonPatch, StopsBombsOfCopies) {
  // Each copy doubles the object.
  const Json object = {{"a", Json::array({std::string(100, 'x')})}};
  const PatchResult result =
      apply_json_patch(object, repeated(64, {{"op", "copy"}, {"from", "/a"}, {"path", "/a/-"}}));
  EXPECT_TRUE(outcome(result).starts_with("422 Unable to copy, the accumulated size increase"))
      << outcome(result);
}

TEST(JsonPatch, StopsCopiesThatNestTooDeep) {
  const Json patch = repeated(100, {{"op", "copy"}, {"from", "/a"}, {"path", "/a/a"}});
  // Each copy puts the whole of `a` into its own member `a`.
  const PatchResult result = apply_json_patch(json(R"({"a":{}})"), patch);
  EXPECT_TRUE(outcome(result).starts_with("413 path '/a/a': the object would be nested deeper"))
      << outcome(result);
}

TEST(JsonPatch, StopsMovesThatNestTooDeep) {
  Json patch = Json::array();
  for (int i = 0; i < 100; ++i) {
    patch.push_back({{"op", "add"}, {"path", "/b"}, {"value", Json::object()}});
    patch.push_back({{"op", "move"}, {"from", "/a"}, {"path", "/b/a"}});
    patch.push_back({{"op", "move"}, {"from", "/b"}, {"path", "/a"}});
  }
  const PatchResult result = apply_json_patch(json(R"({"a":{}})"), patch);
  EXPECT_TRUE(outcome(result).starts_with("413 path '/b/a': the object would be nested deeper"))
      << outcome(result);
}

TEST(JsonPatch, StopsWorkOnLongLists) {
  Json object = {{"a", Json::array()}};
  for (int i = 0; i < 100'000; ++i) object["a"].push_back(i);
  const PatchResult result =
      apply_json_patch(object, repeated(10'000, {{"op", "add"}, {"path", "/a/0"}, {"value", 1}}));
  EXPECT_EQ(outcome(result), "413 the JSON patch is too expensive to apply");
}

TEST(JsonPatch, BoundsTheResult) {
  const Json add = {{"op", "add"}, {"path", "/b"}, {"value", std::string(100, 'x')}};
  EXPECT_EQ(outcome(apply_json_patch({{"a", 1}}, Json::array({add}), {.bytes_max = 100})),
            "413 the patched object is larger than 100 bytes");
}

TEST(JsonSize, IsTheLengthOfTheText) {
  for (const char* text :
       {"{}", "[]", "null", "true", "false", "0", "-1", "18446744073709551615", "[1,2,3]",
        R"({"a\n\"b":"\u0001\t","c":[{},[],"\u20ac"]})", R"({"a":{"b":{"c":-12345}}})"}) {
    EXPECT_EQ(size_of(json(text)).bytes, dump_json(json(text)).size()) << text;
  }
  EXPECT_EQ(size_of(json("1")).depth, 0u);
  EXPECT_EQ(size_of(json("[]")).depth, 1u);
  EXPECT_EQ(size_of(json("[[],{\"a\":{}}]")).depth, 3u);
  EXPECT_GE(size_of(Json(-1.2345678901234567e-300)).bytes,
            dump_json(Json(-1.2345678901234567e-300)).size());
}

TEST(GoText, ShowsValuesAsGoDoes) {
  EXPECT_EQ(go_text(json(R"({"b":[1,"x",null],"a":{"c":true}})")),
            "map[a:map[c:true] b:[1 x <nil>]]");
  EXPECT_EQ(go_text(Json("äöü"), 3), "ä...");
}

}  // namespace
}  // namespace lockstep::local
