#include "local/patch/field_set.h"

#include <gtest/gtest.h>

namespace lockstep::local {
namespace {

Json set(const std::string& text) {
  const Result<Json> parsed = parse_json(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return *parsed;
}

struct Row {
  const char* a;
  const char* b;
  const char* united;
  const char* subtracted;
  const char* common;
};

const Row kRows[] = {
    {"{}", "{}", "{}", "{}", "{}"},
    {R"({"f:a":{}})", "{}", R"({"f:a":{}})", R"({"f:a":{}})", "{}"},
    {R"({"f:a":{}})", R"({"f:a":{}})", R"({"f:a":{}})", "{}", R"({"f:a":{}})"},
    {R"({"f:a":{}})", R"({"f:b":{}})", R"({"f:a":{},"f:b":{}})", R"({"f:a":{}})", "{}"},
    // A field and a field below it are two fields.
    {R"({"f:a":{}})", R"({"f:a":{"f:b":{}}})", R"({"f:a":{".":{},"f:b":{}}})", R"({"f:a":{}})",
     "{}"},
    {R"({"f:a":{".":{},"f:b":{}}})", R"({"f:a":{}})", R"({"f:a":{".":{},"f:b":{}}})",
     R"({"f:a":{"f:b":{}}})", R"({"f:a":{}})"},
    {R"({"f:a":{".":{},"f:b":{}}})", R"({"f:a":{"f:b":{}}})", R"({"f:a":{".":{},"f:b":{}}})",
     R"({"f:a":{}})", R"({"f:a":{"f:b":{}}})"},
    {R"({"f:a":{"f:b":{"f:c":{}}}})", R"({"f:a":{"f:b":{"f:c":{},"f:d":{}}}})",
     R"({"f:a":{"f:b":{"f:c":{},"f:d":{}}}})", "{}", R"({"f:a":{"f:b":{"f:c":{}}}})"},
    {R"({"f:l":{"k:{\"n\":1}":{".":{},"f:n":{}}}})", R"({"f:l":{"k:{\"n\":1}":{"f:n":{}}}})",
     R"({"f:l":{"k:{\"n\":1}":{".":{},"f:n":{}}}})", R"({"f:l":{"k:{\"n\":1}":{}}})",
     R"({"f:l":{"k:{\"n\":1}":{"f:n":{}}}})"},
};

TEST(FieldSet, UnitesSubtractsAndIntersects) {
  for (const Row& row : kRows) {
    Json united = set(row.a), subtracted = set(row.a);
    merge_into(united, set(row.b));
    EXPECT_EQ(united, set(row.united)) << row.a << " " << row.b;
    subtract(subtracted, set(row.b));
    EXPECT_EQ(subtracted, set(row.subtracted)) << row.a << " " << row.b;
    EXPECT_EQ(intersect(set(row.a), set(row.b)), set(row.common)) << row.a << " " << row.b;
  }
}

TEST(FieldSet, NamesFieldsAsKubectlDoes) {
  const Json fields =
      set(R"({"f:a":{".":{},"f:b":{}},"f:l":{"k:{\"name\":\"x\",\"port\":80}":{"f:q":{}}},
              "f:s":{"v:\"y\"":{},"v:3":{},"i:2":{}}})");
  EXPECT_EQ(field_paths(fields), (std::vector<std::string>{".a", ".a.b", ".l[name=\"x\",port=80].q",
                                                           ".s[2]", ".s[=\"y\"]", ".s[=3]"}));
}

TEST(FieldSet, ReadsWhatClientsSend) {
  for (const auto& [sent, read] : {
           std::pair(R"({"f:a":{".":{}}})", R"({"f:a":{}})"),
           std::pair(R"({"f:a":{"f:b":{}}})", R"({"f:a":{"f:b":{}}})"),
           std::pair(R"({".":{},"f:a":{}})", R"({"f:a":{}})"),
           std::pair(R"({"k:{ \"b\": 1, \"a\": 2 }":{}})", R"({"k:{\"a\":2,\"b\":1}":{}})"),
           std::pair(R"({"v: 1":{},"i:0":{}})", R"({"v:1":{},"i:0":{}})"),
       }) {
    const Result<Json> result = read_field_set(set(sent));
    ASSERT_TRUE(result.ok()) << sent;
    EXPECT_EQ(*result, set(read));
  }
  for (const char* sent :
       {"[]", "1", R"({"a":{}})", R"({"f:a":1})", R"({"k:x":{}})", R"({"k:[]":{}})",
        R"({"k:{}":{}})", R"({"v:":{}})", R"({"i:x":{}})", R"({"i:-1":{}})", R"({"x:a":{}})",
        R"({"":{}})", R"({"v:1":{},"v: 1":{}})", R"({"f:a":{"b":{}}})"}) {
    EXPECT_FALSE(read_field_set(set(sent)).ok()) << sent;
  }
}

}  // namespace
}  // namespace lockstep::local
