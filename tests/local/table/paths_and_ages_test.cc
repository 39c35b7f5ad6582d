// Tests what cells are made of: ages, and the paths of printer columns.
#include <gtest/gtest.h>

#include "local/table/human_duration.h"
#include "local/table/json_path.h"

namespace lockstep::local {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(HumanDurationTest, GetsCoarserWithAge) {
  struct Case {
    Duration duration;
    const char* text;
  };
  constexpr seconds kMinute(60), kHour(3600), kDay(86400), kYear(365 * 86400);
  for (const Case& one : std::vector<Case>{
           {seconds(-2), "<invalid>"},
           {milliseconds(-1500), "0s"},
           {seconds(0), "0s"},
           {milliseconds(1999), "1s"},
           {seconds(119), "119s"},
           {seconds(120), "2m"},
           {seconds(121), "2m1s"},
           {10 * kMinute - seconds(1), "9m59s"},
           {10 * kMinute, "10m"},
           {10 * kMinute + seconds(59), "10m"},
           {3 * kHour - seconds(1), "179m"},
           {3 * kHour, "3h"},
           {3 * kHour + kMinute, "3h1m"},
           {8 * kHour - seconds(1), "7h59m"},
           {8 * kHour, "8h"},
           {48 * kHour - seconds(1), "47h"},
           {48 * kHour, "2d"},
           {49 * kHour, "2d1h"},
           {8 * kDay - seconds(1), "7d23h"},
           {8 * kDay, "8d"},
           {2 * kYear - seconds(1), "729d"},
           {2 * kYear, "2y"},
           {2 * kYear + kDay, "2y1d"},
           {8 * kYear - seconds(1), "7y364d"},
           {8 * kYear, "8y"},
           {20 * kYear + 300 * kDay, "20y"},
       })
    EXPECT_EQ(human_duration(one.duration), one.text);
}

TEST(HumanDurationTest, AnAgeNeedsATimestamp) {
  WallTime now = *wall_time_from_rfc3339("2026-03-01T12:00:00Z");
  EXPECT_EQ(age("2026-03-01T11:00:00Z", now), "60m");
  EXPECT_EQ(age("2026-03-01T13:00:00Z", now), "<invalid>");
  EXPECT_EQ(age("2026-03-01T11:59:59.500000Z", now), "0s");
  EXPECT_EQ(age("soon", now), "<unknown>");
  EXPECT_EQ(age(nullptr, now), "<unknown>");
  EXPECT_EQ(age(5, now), "<unknown>");
}

TEST(JsonPathTest, FindsAllThatItLeadsToInOrder) {
  Json document = *parse_json(R"({"b": [{"v": 1}, {"v": 2}, {"w": 3}], "a": {"y": 5, "x": 4}})");
  auto found = [&](const char* path) {
    Result<JsonPath> parsed = JsonPath::parse(path);
    EXPECT_TRUE(parsed.ok()) << path;
    std::string text;
    if (parsed.ok())
      for (const Json* value : parsed->find(document)) text += dump_json(*value) + " ";
    return text;
  };
  EXPECT_EQ(found(".b[*].v"), "1 2 ");
  EXPECT_EQ(found(".b.*.v"), "1 2 ");
  EXPECT_EQ(found(".a.*"), "4 5 ");
  EXPECT_EQ(found("['a']['x']"), "4 ");
  EXPECT_EQ(found(".b[?(@.v>=1)].v"), "1 2 ");
  EXPECT_EQ(found(".b[?(@.v)].v"), "1 2 ");
  EXPECT_EQ(found(".b[?(@.v=='1')].v"), "");
  EXPECT_EQ(found(".b[-1].w"), "3 ");
  EXPECT_EQ(found(".b[-4]"), "");
  EXPECT_EQ(found(".a[0]"), "");
  EXPECT_EQ(found(".b[9223372036854775807]"), "");
}

TEST(JsonPathTest, StopsAtItsBound) {
  Json document = {{"a", Json::array()}};
  for (int i = 0; i < 50; ++i) document["a"].push_back(i);
  EXPECT_EQ(JsonPath::parse(".a[*]")->find(document, 7).size(), 7u);
}

TEST(JsonPathTest, RefusesWhatItCannotRead) {
  struct Case {
    std::string path;
    const char* words;
  };
  for (const Case& one : std::vector<Case>{
           {"", "expected a path"},
           {"spec", "character 1: expected `.` or `[`"},
           {"..a", "expected the name of a member"},
           {".a.", "expected the name of a member"},
           {".a[", "expected a number, a quoted name"},
           {".a[1", "expected `]`"},
           {".a[1:2]", "expected `]`"},
           {".a['x]", "closing quote"},
           {".a[99999999999999999999]", "expected a number"},
           {".a[?(x)]", "expected `@`"},
           {".a[?(@.b", "expected `)`"},
           {".a[?(@.b==)]", "expected a quoted string, a number"},
           {".a[?(@.b=='c)]", "closing quote"},
           {".*a", "expected `.` or `[`"},
           {std::string(2000, '.'), "at most 1024 characters"},
       }) {
    Result<JsonPath> parsed = JsonPath::parse(one.path);
    ASSERT_FALSE(parsed.ok()) << one.path;
    EXPECT_NE(parsed.error().message.find(one.words), std::string::npos)
        << one.path << ": " << parsed.error().message;
  }
  std::string long_path;
  for (int i = 0; i < 65; ++i) long_path += ".a";
  EXPECT_FALSE(JsonPath::parse(long_path).ok());
}

}  // namespace
}  // namespace lockstep::local
