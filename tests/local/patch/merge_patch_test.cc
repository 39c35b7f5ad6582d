#include "tests/local/patch/patch_cases.h"

namespace lockstep::local {
namespace {

// The examples in appendix A of RFC 7386 that concern objects, and patches that are not objects.
const PatchCase kCases[] = {
    {"replaces", R"({"a":"b"})", R"({"a":"c"})", R"({"a":"c"})"},
    {"adds", R"({"a":"b"})", R"({"b":"c"})", R"({"a":"b","b":"c"})"},
    {"deletes the last", R"({"a":"b"})", R"({"a":null})", R"({})"},
    {"deletes one", R"({"a":"b","b":"c"})", R"({"a":null})", R"({"b":"c"})"},
    {"replaces a list", R"({"a":["b"]})", R"({"a":"c"})", R"({"a":"c"})"},
    {"replaces by a list", R"({"a":"c"})", R"({"a":["b"]})", R"({"a":["b"]})"},
    {"merges objects", R"({"a":{"b":"c"}})", R"({"a":{"b":"d","c":null}})", R"({"a":{"b":"d"}})"},
    {"lists are not merged", R"({"a":[{"b":"c"}]})", R"({"a":[1]})", R"({"a":[1]})"},
    {"nulls of the object stay", R"({"e":null})", R"({"a":1})", R"({"a":1,"e":null})"},
    {"nulls in new objects go", R"({})", R"({"a":{"bb":{"ccc":null}}})", R"({"a":{"bb":{}}})"},
    {"nulls in lists stay", R"({})", R"({"a":[null,1]})", R"({"a":[null,1]})"},
    {"a plain value becomes an object", R"({"a":1})", R"({"a":{"b":2}})", R"({"a":{"b":2}})"},
    {"a list", R"({"a":1})", "[1]", "400 Invalid JSON Patch"},
    {"a string", R"({"a":1})", "\"x\"", "400 Invalid JSON Patch"},
    {"null", R"({"a":1})", "null", "400 Invalid JSON Patch"},
};

TEST(MergePatch, DoesWhatTheTableSays) {
  for (const PatchCase& row : kCases)
    expect_case(row, apply_merge_patch(json(row.object), json(row.patch)));
}

TEST(MergePatch, BoundsTheResult) {
  const PatchResult result = apply_merge_patch({{"a", std::string(60, 'x')}},
                                               {{"b", std::string(60, 'x')}}, {.bytes_max = 100});
  EXPECT_EQ(std::get<PatchError>(result).code, 413);
}

}  // namespace
}  // namespace lockstep::local
