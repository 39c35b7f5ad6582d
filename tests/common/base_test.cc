#include <gtest/gtest.h>
#include <sys/resource.h>

#include <set>
#include <stdexcept>

#include "common/base/clock.h"
#include "common/base/descriptors.h"
#include "common/base/json.h"
#include "common/base/json_cut.h"
#include "common/base/random.h"
#include "common/base/result.h"
#include "common/base/run_main.h"
#include "common/base/sha256.h"
#include "common/base/sha256_block.h"
#include "common/base/utf8.h"

namespace lockstep {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return invalid("[half] an even number, " + std::to_string(value));
  return value / 2;
}

Result<int> quarter(int value) {
  TRY_ASSIGN(const int halved, half(value));
  return half(halved);
}

TEST(RunMain, ReturnsTheExitCodeOfTheProgram) {
  char name[] = "program";
  char* arguments[] = {name, nullptr};
  const auto count = [](int argc, char**) { return argc + 1; };
  EXPECT_EQ(run_main("program", count, 1, arguments), 2);
}

TEST(RunMain, TurnsAnExceptionIntoAMessageAndAnExitCode) {
  const auto throws = [](int, char**) -> int { throw std::runtime_error("no such primitive"); };
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_main("bench", throws, 0, nullptr), kExitUncaught);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "bench: ended by an exception: no such primitive\n");
}

TEST(RunMain, SurvivesAnExceptionThatIsNoStdException) {
  const auto throws = [](int, char**) -> int { throw 3; };
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_main("bench", throws, 0, nullptr), kExitUncaught);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "bench: ended by an exception of unknown type\n");
}

TEST(Result, TryPassesTheErrorOnAndTheValueThrough) {
  EXPECT_EQ(*quarter(12), 3);
  ASSERT_FALSE(quarter(6).ok());
  EXPECT_EQ(quarter(6).error().code, Code::kInvalid);
  EXPECT_EQ(quarter(6).error().message, "[half] an even number, 3");
}

TEST(Error, KeepsItsBlameWhenItsMessageChanges) {
  const Error error = corrupt("[file] expected an end", Blame::kStorage);
  EXPECT_EQ(error.with_message("/ckpt: " + error.message),
            (Error{Code::kCorrupt, "/ckpt: [file] expected an end", Blame::kStorage}));
  EXPECT_EQ(error.blaming(Blame::kData),
            (Error{Code::kCorrupt, "[file] expected an end", Blame::kData}));
  EXPECT_EQ(corrupt("[file] expected an end").blame, Blame::kUnknown);
}

TEST(Sha256, AgreesWithTheStandardsExamples) {  // FIPS 180-4 examples; RFC 4231 case 2
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Sha256, OfTheMachinesOwnInstructionsHasTheSameBits) {
  const Sha256Block native = sha256_block_native();
  if (native == nullptr) GTEST_SKIP() << "this machine has none";
  Random random(8);
  Sha256State state{};
  Sha256State expected{};
  for (int block = 0; block < 1000; ++block) {
    std::array<uint8_t, 64> bytes;
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.below(256));
    native(state, bytes.data());
    sha256_block_portable(expected, bytes.data());
    ASSERT_EQ(state, expected) << block;
  }
}

TEST(Sha256, IsTheSameHoweverTheDataIsCut) {
  const std::string data(1000, 'x');
  for (const size_t piece : {1u, 3u, 63u, 64u, 65u, 999u}) {
    Sha256 hash;
    for (size_t at = 0; at < data.size(); at += piece) {
      hash.update(data.data() + at, std::min(piece, data.size() - at));
    }
    EXPECT_EQ(hash.finish(), sha256(data)) << piece;
  }
}

TEST(Random, PhiloxAgreesWithItsPublishedVectors) {  // Random123's kat_vectors, philox4x32-10
  Random zero(0, 0);
  EXPECT_EQ(zero.next_u32(), 0x6627e8d5u);
  EXPECT_EQ(zero.next_u32(), 0xe169c58du);
  EXPECT_EQ(zero.next_u32(), 0xbc57ac4cu);
  EXPECT_EQ(zero.next_u32(), 0x9b00dbd8u);
}

TEST(Random, SeekingGoesToTheSameDraw) {
  Random first(7, 1);
  for (int i = 0; i < 5; ++i) first.next_u32();
  const uint32_t sixth = first.next_u32();
  Random second(7, 1);
  second.seek(5);
  EXPECT_EQ(second.next_u32(), sixth);
}

TEST(Random, NormalHasTheMomentsOfANormal) {
  Random random(3);
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 0.03);
  EXPECT_NEAR(squares / kDraws, 1.0, 0.05);
}

TEST(Random, PermuteIsABijection) {
  for (const uint64_t size : {1u, 2u, 3u, 7u, 64u, 1000u, 4097u}) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t image = permute(i, size, 42);
      EXPECT_LT(image, size);
      seen.insert(image);
    }
    EXPECT_EQ(seen.size(), size);
  }
}

TEST(Json, RefusesWhatIsTooDeepTooLargeOrDoubled) {
  EXPECT_TRUE(parse_json(R"({"a":[1,2,{"b":null}]})").ok());
  EXPECT_FALSE(parse_json(R"({"a":1,"a":2})").ok());
  EXPECT_FALSE(parse_json(std::string(1'000'000, '[')).ok());
  EXPECT_FALSE(parse_json("[1,2,3]", {.bytes_max = 3}).ok());
  EXPECT_FALSE(parse_json("[1,2,3]", {.values_max = 3}).ok());
  EXPECT_FALSE(parse_json("{} {}").ok());
  EXPECT_FALSE(parse_json("\"\xff\"").ok());
  EXPECT_FALSE(parse_json("").ok());
  EXPECT_EQ(parse_json(R"([[],[1,[2]],"x"])")->dump(), R"([[],[1,[2]],"x"])");
}

std::string nested(int levels) {
  std::string text;
  for (int i = 0; i < levels; ++i) text += R"({"a":)";
  return text + "1" + std::string(static_cast<size_t>(levels), '}');
}

std::string values(int count) {
  std::string text = "[0";
  for (int i = 1; i < count; ++i) text += ",0";
  return text + "]";
}

// An object with that podTemplate, and with other members before and after it at every level.
std::string object_with(const std::string& pod_template) {
  return R"({"kind":"K","metadata":{"managedFields":[{"f:a":{}}],"name":"n","uid":"u"},)"
         R"("spec":{"nodes":2,"podTemplate":)" +
         pod_template + R"(,"suspend":true,"volumes":[{"name":"v"}]},"status":{"round":[7]}})";
}

constexpr ObjectLimits kSmall{.depth_max = 6, .part_values_max = 20, .values_max = 200};

TEST(JsonObjects, WhatIsTooDeepOrTooMuchIsLeftOutAndTheRestIsRead) {
  const Json whole = *parse_json(object_with("0"));
  const std::pair<std::string, std::string> cases[] = {
      {nested(4), ""},
      {nested(5), "nested deeper than 6 levels"},
      {nested(10'000), "nested deeper than 6 levels"},
      {R"({"x":[1,{"y":)" + nested(60) + R"(}],"z":{"a":2,"a":3}})", "nested deeper than 6 levels"},
      {values(18), ""},
      {values(21), "more than 20 values"},
      {values(100'000), "more than 20 values"},
      {"[" + values(18) + "," + nested(3) + "," + nested(70) + "]", "more than 20 values"},
  };
  for (const auto& [pod_template, why] : cases) {
    SCOPED_TRACE(pod_template.substr(0, 40));
    const Result<Json> read = parse_json_objects(object_with(pod_template), kSmall);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(left_out((*read)["spec"]["podTemplate"]), why);
    Json rest = *read;
    rest["spec"]["podTemplate"] = 0;
    EXPECT_EQ(rest, whole);
  }
}

TEST(JsonObjects, EachOfManyIsHeldToTheLimitsByItself) {
  const std::string good = object_with(values(15));
  const std::string list = R"({"items":[)" + good + "," + object_with(nested(64)) + "," + good +
                           "," + object_with(values(50)) + "," + good +
                           R"(],"metadata":{"resourceVersion":"9"}})";
  ObjectLimits limits = kSmall;
  limits.objects_at = 2;
  const Result<Json> read = parse_json_objects(list, limits);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ((*read)["metadata"]["resourceVersion"], "9");
  ASSERT_EQ((*read)["items"].size(), 5u);
  for (const size_t i : {0u, 2u, 4u}) EXPECT_EQ((*read)["items"][i], *parse_json(good)) << i;
  for (const size_t i : {1u, 3u}) {
    EXPECT_NE(left_out((*read)["items"][i]["spec"]["podTemplate"]), "") << i;
    EXPECT_EQ((*read)["items"][i]["metadata"]["name"], "n") << i;
  }
  limits.values_max = 60;  // what is left out doesn't count
  EXPECT_FALSE(parse_json_objects(list, limits).ok());
  limits.objects_at = 1;
  const Result<Json> event =
      parse_json_objects(R"({"object":)" + object_with(nested(64)) + R"(,"type":"ADDED"})", limits);
  ASSERT_TRUE(event.ok()) << event.error().message;
  EXPECT_EQ((*event)["type"], "ADDED");
}

TEST(JsonObjects, APartWithTooManyMembersIsLeftOutAndAFullOneStillHasItsNames) {
  std::string fields;
  for (int i = 0; i < 30; ++i) fields += "\"x" + std::to_string(i) + "\":0,";
  const std::string text = R"({"metadata":{"labels":{"a":"b"},"managedFields":)" + values(20) +
                           R"(,"name":"n","notes":{"c":1},"uid":"u"},"spec":{)" + fields +
                           R"("z":{"y":[1]}},"status":{"round":7}})";
  const Result<Json> read = parse_json_objects(text, kSmall);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ((*read)["metadata"]["name"], "n");
  EXPECT_EQ((*read)["metadata"]["uid"], "u");
  EXPECT_EQ((*read)["metadata"]["labels"]["a"], "b");
  EXPECT_EQ(left_out((*read)["metadata"]["managedFields"]), "more than 20 values");
  EXPECT_EQ((*read)["metadata"]["notes"]["c"], 1);
  EXPECT_EQ(left_out((*read)["spec"]), "more than 20 values");
  EXPECT_EQ((*read)["status"]["round"], 7);
  EXPECT_EQ(left_out(Json("(left out: it seems")), "");
}

TEST(JsonObjects, AMemberOfTheMetadataCanBeDropped) {
  const std::string object =
      R"({"metadata":{"a":[{"deep":[1]}],"name":"n","labels":{"a":"b"}},"spec":{"a":{"b":1}},"a":2})";
  const Json kept =
      *parse_json(R"({"metadata":{"name":"n","labels":{"a":"b"}},"spec":{"a":{"b":1}},"a":2})");
  ObjectLimits limits = kSmall;
  limits.dropped = "a";
  EXPECT_EQ(*parse_json_objects(object, limits), kept);
  EXPECT_EQ(*parse_json_objects(R"({"metadata":{"a":3,"name":"n"}})", limits),
            *parse_json(R"({"metadata":{"name":"n"}})"));
  EXPECT_EQ(*parse_json_objects(R"({"metadata":{"a":)" + nested(70) + "}}", limits),
            *parse_json(R"({"metadata":{}})"))
      << "whatever it is";
  limits.objects_at = 1;
  EXPECT_EQ(*parse_json_objects(R"({"object":)" + object + R"(,"type":"ADDED"})", limits),
            (Json{{"object", kept}, {"type", "ADDED"}}));
  limits.objects_at = 2;
  EXPECT_EQ(*parse_json_objects(R"({"items":[)" + object + "," + object + "]}", limits),
            (Json{{"items", {kept, kept}}}));
}

TEST(JsonCut, AllButOneMemberOfAPartIsCutOutOfEachObject) {
  const std::string object =
      R"({"kind":"Pod", "metadata":{"spec":{"b":1},"name":"a \" } n"},)"
      R"("spec" : {"a":[{"b":"}]\\"}],"node":"m","c":{"node":3}} ,"status":{"node":4}})";
  const Json kept = {{"kind", "Pod"},
                     {"metadata", {{"spec", {{"b", 1}}}, {"name", "a \" } n"}}},
                     {"spec", {{"node", "m"}}},
                     {"status", {{"node", 4}}}};
  const JsonCut cut{.part = "spec", .kept = "node"};
  EXPECT_EQ(*parse_json(cut_json(object, cut)), kept);
  const auto at = [&cut](int levels) {
    return JsonCut{.objects_at = levels, .part = cut.part, .kept = cut.kept};
  };
  EXPECT_EQ(*parse_json(cut_json(R"({"object":)" + object + R"(,"type":"ADDED"})", at(1))),
            (Json{{"object", kept}, {"type", "ADDED"}}));
  EXPECT_EQ(*parse_json(
                cut_json(R"({"items":[)" + object + ", " + object + R"(],"metadata":{}})", at(2))),
            (Json{{"items", {kept, kept}}, {"metadata", Json::object()}}));
  for (const char* whole :
       {R"({"spec":7,"a":[]})", R"({"spec":{}})", R"({"metadata":{}})", "[]", "3"}) {
    EXPECT_EQ(cut_json(whole, cut), whole);
  }
  EXPECT_EQ(cut_json(R"({"spec":{"other":1}})", cut), R"({"spec":{}})");
}

TEST(JsonCut, ATextThatEndsTooEarlyStaysInvalid) {
  const std::string text = R"({"metadata":{"a":"\""},"spec":{"a":["x"],"node":"m"},"z":1})";
  const JsonCut cut{.part = "spec", .kept = "node"};
  EXPECT_TRUE(parse_json(cut_json(text, cut)).ok());
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(parse_json(cut_json(text.substr(0, size), cut)).ok()) << size;
  }
  for (const char* odd :
       {"", "{\"spec\":{\"a\":}}", "{\"spec\":{\"a\" 1}}", "{\"spec\":{,}}", "{]"}) {
    EXPECT_FALSE(parse_json(cut_json(odd, cut)).ok()) << odd;
  }
}

TEST(JsonObjects, WhatIsNoJsonIsRefusedAlsoWhereItIsLeftOut) {
  for (const char* text : {"", "{", R"({"a":1,"a":2})", "[1] 2", "\"\xff\""})
    EXPECT_FALSE(parse_json_objects(text, kSmall).ok()) << text;
  const std::string cut = object_with(nested(64));
  for (size_t size = 0; size < cut.size(); ++size)
    EXPECT_FALSE(parse_json_objects(cut.substr(0, size), kSmall).ok()) << size;
  EXPECT_EQ(*parse_json_objects("3", kSmall), 3);
  EXPECT_EQ(*parse_json_objects("[[1],[2,[3]]]", kSmall), *parse_json("[[1],[2,[3]]]"));
}

TEST(Json, ReadersNameTheMember) {
  const Json object = *parse_json(R"({"n":3,"s":"t","big":18446744073709551615})");
  EXPECT_EQ(*int_member(object, "n"), 3);
  EXPECT_EQ(string_member(object, "n").error().message, "n: expected a string, found number");
  EXPECT_EQ(int_member(object, "x").error().message, "x: expected an integer, found nothing");
  EXPECT_FALSE(int_member(object, "big").ok());
  EXPECT_EQ(string_or(object, "s", ""), "t");
}

TEST(Utf8, ReplacesEveryByteThatIsNoCharacter) {
  const std::pair<const char*, const char*> cases[] = {
      {"plain", "plain"},
      {"\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x99\x82", "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x99\x82"},
      {"a\xFFz", "a\xEF\xBF\xBDz"},
      {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},                                  // overlong
      {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                  // surrogate
      {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},  // too high
      {"\xE2\x82", "\xEF\xBF\xBD\xEF\xBF\xBD"},                                  // cut off
  };
  for (const auto& [text, clean] : cases) EXPECT_EQ(clean_utf8(text), clean);
  EXPECT_EQ(clean_utf8(std::string_view("a\0z", 3)), "a\xEF\xBF\xBDz");
}

TEST(Utf8, CutsBetweenCharacters) {
  const std::string text = "a\xE2\x82\xAC";  // a, euro
  EXPECT_EQ(utf8_head(text, 2), "a");
  EXPECT_EQ(utf8_head(text, 3), "a");
  EXPECT_EQ(utf8_head(text, 4), text);
  EXPECT_EQ(utf8_tail(text + "z", 3), "z");
  EXPECT_EQ(utf8_tail(text + "z", 4), "\xE2\x82\xACz");
  EXPECT_EQ(utf8_head("\x80\x80\x80\x80\x80\x80", 5).size(), 5u) << "garbage ends as well";
}

TEST(Clock, WritesTimesAsKubernetesDoes) {
  const WallTime time{std::chrono::seconds(1767323045) + std::chrono::microseconds(6)};
  EXPECT_EQ(rfc3339(time), "2026-01-02T03:04:05Z");
  EXPECT_EQ(rfc3339_micro(time), "2026-01-02T03:04:05.000006Z");
}

}  // namespace
TEST(Clock, ReadsTheTimesThatItWrites) {
  const WallTime time(std::chrono::seconds(1767323045) + std::chrono::microseconds(6));
  EXPECT_EQ(*wall_time_from_rfc3339(rfc3339_micro(time)), time);
  EXPECT_EQ(*wall_time_from_rfc3339("2026-01-02T03:04:05Z"),
            WallTime(std::chrono::seconds(1767323045)));
  EXPECT_EQ(*wall_time_from_rfc3339("2026-01-02T05:04:05.5+02:00"),
            WallTime(std::chrono::milliseconds(1767323045500)));
  for (const char* text : {"", "2026", "2026-13-02T03:04:05Z", "2026-02-30T03:04:05Z",
                           "2026-01-02T03:04:05", "2026-01-02T03:04:05Zx", "2026-01-02T24:04:05Z",
                           "2026-01-02T03:04:05.Z", "1026-01-02T03:04:05Z"}) {
    EXPECT_FALSE(wall_time_from_rfc3339(text).ok()) << text;
  }
}

TEST(Descriptors, TheLimitGoesUpToWhatTheSystemAllows) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  raise_descriptor_limit();
  rlimit after{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace lockstep
