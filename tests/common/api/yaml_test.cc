#include "common/api/yaml.h"

#include <gtest/gtest.h>

#include <functional>

#include <sys/stat.h>
#include <unistd.h>
#include <random>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace lockstep {
namespace {

std::string error_of(std::string_view text, const YamlLimits& limits = {}) {
  const Result<Json> read = json_from_yaml(text, limits);
  EXPECT_TRUE(read.ok() || read.error().code == Code::kInvalid);
  return read.ok() ? "no error: " + dump_json(*read) : read.error().message;
}

TEST(Yaml, ReadsListsMapsAndBlocks) {
  const Result<Json> read = json_from_yaml(R"(
# a comment
spec:
  nodes: 2
  list: [1, two, {three: 3}]
  items:
  - name: a
    on: off
  - {}
  text: |
    two
    lines
  folded: >-
    one
    line
)");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, *parse_json(R"({"spec": {"nodes": 2, "list": [1, "two", {"three": 3}],
    "items": [{"name": "a", "on": "off"}, {}], "text": "two\nlines\n", "folded": "one line"}})"));
}

// Includes the escapes that yaml-cpp decodes as Latin-1.
TEST(Yaml, ReadsEscapesAsUtf8) {
  const Result<Json> read =
      json_from_yaml(R"({"\N\_k": "\N", b: "\u00e9\N\_\u20ac\N", c: "\U0001F600\_\x85\L\P"})");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, Json({{"\xC2\x85\xC2\xA0k", "\xC2\x85"},
                         {"b", "\xC3\xA9\xC2\x85\xC2\xA0\xE2\x82\xAC\xC2\x85"},
                         {"c", "\xF0\x9F\x98\x80\xC2\xA0\xC2\x85\xE2\x80\xA8\xE2\x80\xA9"}}));
  const Result<Json> again = parse_json(dump_json(*read));
  EXPECT_TRUE(again.ok() && *again == *read);
}

TEST(Yaml, ResolvesPlainScalarsByTheCoreSchema) {
  const std::pair<const char*, Json> cases[] = {
      {"12", 12},
      {"-3", -3},
      {"+4", 4},
      {"0", 0},
      {"0o17", 15},
      {"0xff", 255},
      {"9223372036854775807", INT64_MAX},
      {"6.0e-4", 6.0e-4},
      {".5", 0.5},
      {"5.", 5.0},
      {"1e3", 1000.0},
      {"9223372036854775808", 9223372036854775808.0},
      {"true", true},
      {"False", false},
      {"~", nullptr},
      {"null", nullptr},
      {"yes", "yes"},
      {"off", "off"},
      {"\"12\"", "12"},
      {"'true'", "true"},
      {"\"\"", ""},
      {"1.2.3", "1.2.3"},
      {"1e", "1e"},
      {".", "."},
      {"-", nullptr},
      {"0x", "0x"},
      {"0o8", "0o8"},
      {"2026-01-02", "2026-01-02"},
      {"!!str 12", "12"},
      {"!!int 12", 12},
      {"!!float 12", 12},
      {"\"caf\\u00e9\"", "caf\u00e9"},
  };
  for (const auto& [text, expected] : cases) {
    const Result<Json> read = json_from_yaml(std::string("x: ") + text);
    if (std::string_view(text) == "-") {
      EXPECT_FALSE(read.ok());
      continue;
    }
    ASSERT_TRUE(read.ok()) << text << ": " << read.error().message;
    EXPECT_EQ(read->at("x"), expected) << text;
    EXPECT_EQ(read->at("x").type() == Json::value_t::number_float,
              expected.type() == Json::value_t::number_float)
        << text;
  }
}

TEST(Yaml, CopiesWhatAnAliasNames) {
  const Result<Json> read = json_from_yaml("a: &x {b: [1, 2]}\nc: *x\nd: &x 5\ne: [*x, *x]\n");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, *parse_json(R"({"a": {"b": [1, 2]}, "c": {"b": [1, 2]}, "d": 5, "e": [5, 5]})"));
}

TEST(Yaml, NamesLineAndColumnOfWhatItRefuses) {
  const std::pair<const char*, const char*> cases[] = {
      {"a: 1\nb: 2\na: 3\n", "line 3, column 1: duplicate key \"a\""},
      {"x: {a: 1, a: 2}", "line 1, column 11: duplicate key \"a\""},
      {"&x [*x]",
       "line 1, column 5: the alias refers to a value that contains it, expected no cycle"},
      {"a: &x\n  b: *x\n",
       "line 2, column 6: the alias refers to a value that contains it, expected no cycle"},
      {",", "line 1, column 1: found more text after the document, expected one document"},
      {"a: 1\n---\nb: 2\n",
       "line 2, column 1: found more text after the document, expected one document"},
      {"a: .inf", "line 1, column 4: found .inf, expected a finite number"},
      {"a: 1e999", "line 1, column 4: found \"1e999\", a number that does not fit in 64 bits"},
      {"a: 0644",
       "line 1, column 4: found 0644, which some parsers read as octal and others as decimal; "
       "write it without the leading 0, with 0o, or in quotes"},
      {"a: !!binary aGk=", "line 1, column 4: found \"aGk=\" with the tag !!binary"},
      {"a: !secret b", "line 1, column 4: found the tag \"!secret\", expected none"},
      {"a: !mine {b: 1}", "line 1, column 4: found the tag \"!mine\", expected none"},
      {"{[1]: 2}",
       "line 1, column 2: found a list or map as a key, expected a name (is a bracket open?)"},
      {"a: &x b\n*x : c", "line 2, column 1: found an alias as a key, expected a name"},
      {"&k a: 1", "line 1, column 1: found an anchor on a key, expected it on a value"},
      {"<<: {a: 1}", "line 1, column 1: found the merge key <<, which YAML 1.2 does not have"},
      {": 1", "line 1, column 1: found an empty key, expected a name"},
      {"a: 1\n\x01", "line 2, column 1: found the control character 1, which YAML does not allow"},
      {"a: \xff", "line 1, column 4: not UTF-8"},
      {"a: \xc3", "line 1, column 4: not UTF-8"},
      {"", "an empty document"},
      {"# nothing\n", "an empty document"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(error_of(text), expected) << text;
}

TEST(Yaml, PassesTheParsersOwnErrorsOnWithTheirPlace) {
  EXPECT_EQ(error_of("a: [1, 2\nb: 3").substr(0, 5), "line ");
  EXPECT_EQ(error_of("a: *nobody").substr(0, 16), "line 1, column 4");
  EXPECT_EQ(error_of("a: \"open").substr(0, 5), "line ");
  EXPECT_EQ(error_of("a:\n\t- b").substr(0, 5), "line ");
}

TEST(Yaml, RefusesADocumentOfTenMegabytes) {
  EXPECT_EQ(error_of(std::string(10'000'000, 'a')),
            "a document of 10000000 bytes, expected at most 1048576");
}

TEST(Yaml, RefusesAliasBombs) {
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string inner = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + inner;
    for (int j = 1; j < 9; ++j) bomb += "," + inner;
    bomb += "]\n";
  }
  EXPECT_EQ(
      error_of(bomb),
      "line 5, column 30: more than 50000 values (each alias counts as the value it refers to)");

  const std::string long_text = "a: &a " + std::string(100'000, 'x') + "\nb: [";
  std::string quadratic = long_text;
  for (int i = 0; i < 50; ++i) quadratic += "*a,";
  EXPECT_NE(error_of(quadratic + "]").find("more than 1048576 bytes of text"), std::string::npos);

  std::string many = "a: &a 1\nb: [";
  for (int i = 0; i < 101; ++i) many += "*a,";
  EXPECT_NE(error_of(many + "]").find("more than 100 aliases"), std::string::npos);
}

TEST(Yaml, BoundsDepthAlsoThroughAliases) {
  const YamlLimits limits{.depth_max = 3};
  EXPECT_TRUE(json_from_yaml("[[[1]]]", limits).ok());
  EXPECT_EQ(error_of("[[[[1]]]]", limits), "line 1, column 4: nested deeper than 3 levels");
  EXPECT_TRUE(json_from_yaml("[&a [[1]], *a]", limits).ok());
  EXPECT_NE(error_of("[&a [[1]], [*a]]", limits).find("nested deeper"), std::string::npos);
  EXPECT_NE(error_of(std::string(500'000, '[')).find("is a bracket open?"), std::string::npos);
  std::string lists;
  for (int i = 0; i < 33; ++i) lists += "- ";
  EXPECT_EQ(error_of(lists), "line 1, column 65: nested deeper than 32 levels");
}

TEST(Yaml, BoundsTheNumberOfValues) {
  const YamlLimits limits{.values_max = 4};
  EXPECT_TRUE(json_from_yaml("[1, 2, 3]", limits).ok());
  EXPECT_NE(error_of("[1, 2, 3, 4]", limits).find("more than 4 values"), std::string::npos);
}

TEST(Yaml, EndsOnTextsOnWhichTheParserDoesNot) {
  const std::string more = "found more text after the document, expected one document";
  const std::string flow = "illegal flow end";
  const std::pair<const char*, std::string> cases[] = {
      {",", "line 1, column 1: " + more},
      {",,,,", "line 1, column 1: " + more},
      {"a: 1\n,", "line 2, column 1: end of map not found"},
      {"[],", "line 1, column 3: " + more},
      {"]", "line 1, column 1: " + flow},
      {"}", "line 1, column 1: " + flow},
      {"- ]", "line 1, column 3: " + flow},
      {"a: b\n]", "line 2, column 1: " + flow},
      {"? ,", "line 1, column 3: found an empty key, expected a name"},
      {"-,", "no error: \"-,\""},
      {"---\n,", "line 2, column 1: " + more},
      {"...\n,", "line 2, column 1: " + more},
      {"{},{}", "line 1, column 3: " + more},
      {"[[]]]", "line 1, column 5: " + flow},
      {"!!str ,", "line 1, column 7: " + more},
      {"&a ,", "line 1, column 4: " + more},
      {"%YAML 1.2\n,", "line 2, column 1: " + more},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(error_of(text), expected) << text;
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "lockstep-yaml-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text) {
    const std::string file = folder_ + "/file";
    std::ofstream(file) << text;
    return file;
  }

  std::string folder_;
};

TEST_F(Files, AreReadAsYamlOrAsJson) {
  EXPECT_EQ(read_document(write("a: [1]"))->dump(), R"({"a":[1]})");
  EXPECT_EQ(read_document(write("\n {\"a\": [1]}"))->dump(), R"({"a":[1]})");
  EXPECT_EQ(read_document(write("{a: [1]}"))->dump(), R"({"a":[1]})");
}

TEST_F(Files, ErrorsNameTheFile) {
  const std::string file = write("a: 1\na: 2\n");
  EXPECT_EQ(read_document(file).error().message, file + ": line 2, column 1: duplicate key \"a\"");
  EXPECT_EQ(read_document(write("{\"a\": 1, \"a\": 2}")).error().message,
            file + ": duplicate key \"a\"");
  EXPECT_EQ(read_document(write(std::string(1 << 20, ' ') + "a: 1")).error().message,
            file + ": larger than the limit of 1048576 bytes");
  EXPECT_NE(read_document(folder_ + "/none").error().message.find("/none"), std::string::npos);
  EXPECT_FALSE(read_document(folder_).ok());
  EXPECT_EQ(read_document("/dev/zero").error().message,
            "/dev/zero: larger than the limit of 1048576 bytes");
}

TEST(YamlWriter, WritesBlocksThatPeopleRead) {
  const Json document = {{"kind", "A"},
                         {"list", {1, "two", {{"a", true}, {"b", nullptr}}, Json::array()}},
                         {"map", {{"empty", Json::object()}, {"text", "line\nline\n"}}},
                         {"number", 1.5},
                         {"time", "2026-01-02T03:04:05Z"}};
  EXPECT_EQ(yaml_from_json(document),
            "kind: A\n"
            "list:\n"
            "- 1\n"
            "- two\n"
            "- a: true\n"
            "  b: null\n"
            "- []\n"
            "map:\n"
            "  empty: {}\n"
            "  text: |\n"
            "    line\n"
            "    line\n"
            "number: 1.5\n"
            "time: \"2026-01-02T03:04:05Z\"\n");
}

TEST(YamlWriter, QuotesWhatAnotherReaderWouldTakeForSomethingElse) {
  for (const char* text :
       {"",    "yes",   "No",    "on",     "null", "~",   "true", "1",        "1.5",
        "0x1", "1e3",   "012",   "1:30",   "-",    "- a", "a: b", "a #b",     "#a",
        "{a",  "*a",    "&a",    "!a",     "@a",   "%a",  "'a",   "\"a",      "|",
        ">",   "?",     " a",    "a ",     "a:",   "\t",  "\x01", "\xc3\xa4", "a\nb",
        "\n",  "a\n\n", " a\nb", "a\r\nb", "=",    "<<",  ".inf", "a, b",     "a\tb\nc"}) {
    const Json document = {{"key", text}, {text, "value"}, {"list", {text}}};
    const std::string yaml = yaml_from_json(document);
    const Result<Json> read = json_from_yaml(yaml);
    if (std::string(text) == "<<") {
      EXPECT_FALSE(read.ok()) << "a merge key is refused, quoted or not";
      continue;
    }
    ASSERT_TRUE(read.ok()) << yaml << read.error().message;
    EXPECT_EQ(*read, document) << yaml;
  }
}

TEST(YamlWriter, IsReadBackForAnyDocument) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string letters = "ab01:-#&*!|>'\"%@`{}[], \n\t.~/_\xc3\xa4";
  std::function<Json(int)> make = [&](int depth) -> Json {
    switch (random() % (depth > 4 ? 4 : 6)) {
      case 0:
        return static_cast<int64_t>(random()) - (1 << 30);
      case 1:
        return random() % 2 == 0;
      case 2:
        return nullptr;
      case 3: {
        std::string text;
        for (auto i = random() % 8; i > 0; --i) {
          const size_t at = random() % (letters.size() - 1);
          if (at == letters.size() - 2)
            text += "\xc3\xa4";
          else
            text += letters[at];
        }
        return text;
      }
      case 4: {
        Json list = Json::array();
        for (auto i = random() % 4; i > 0; --i) list.push_back(make(depth + 1));
        return list;
      }
      default: {
        Json map = Json::object();
        for (auto i = random() % 4; i > 0; --i) {
          map["k" + std::to_string(random() % 9)] = make(depth + 1);
        }
        return map;
      }
    }
  };
  for (int i = 0; i < 3000; ++i) {
    const Json document = make(0);
    const std::string yaml = yaml_from_json(document);
    const Result<Json> read = json_from_yaml(yaml);
    ASSERT_TRUE(read.ok()) << yaml << "\n" << document << "\n" << read.error().message;
    ASSERT_EQ(*read, document) << yaml;
  }
}

TEST(YamlDocuments, AreSeparatedByMarkers) {
  const auto count = [](const std::string& text) {
    const auto documents = documents_from_yaml(text, 3);
    return documents.ok() ? static_cast<int>(documents->size()) : -1;
  };
  EXPECT_EQ(count("a: 1\n"), 1);
  EXPECT_EQ(count("---\na: 1\n---\n# nothing\n---\nb: 2\n...\n"), 2);
  EXPECT_EQ(count("{\"a\": 1}\n"), 1);
  EXPECT_EQ(count("a: |\n  ---\n  x\n"), 1);
  EXPECT_EQ(count("a: 1\n---\nb: 1\n---\nc: 1\n---\nd: 1\n"), -1);
  EXPECT_EQ(count(""), 0);
  EXPECT_EQ(documents_from_yaml("a: 1\n---\nb: [\n").error().message.substr(0, 11), "document 2:");
}

}  // namespace
}  // namespace lockstep
