// Tables, which `kubectl get` requests instead of objects.
#include "tests/conformance/support/widgets.h"

namespace lockstep::conformance {
namespace {

constexpr char kTable[] = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

class Tables : public WidgetCase {
 protected:
  static Reply table(const std::string& target) {
    return server().send({.target = target, .headers = {{"Accept", kTable}}});
  }
  static std::vector<std::string> columns(const Json& table) {
    std::vector<std::string> found;
    for (const Json& one : table.value("columnDefinitions", Json::array()))
      found.push_back(string_or(one, "name", ""));
    return found;
  }
};

TEST_F(Tables, ADefinitionsPrinterColumnsAreTheTablesColumns) {
  make(widgets(), widget("a", {{"size", 3}}));
  Reply reply = table(widgets());
  ASSERT_TRUE(is_code(reply, 200));
  EXPECT_EQ(reply.body["kind"], "Table");
  EXPECT_EQ(reply.body["apiVersion"], "meta.k8s.io/v1");
  EXPECT_EQ(columns(reply.body),
            (std::vector<std::string>{"Name", "COLOR", "SIZE", "PHASE", "AGE"}));
  const Json& definitions = reply.body["columnDefinitions"];
  EXPECT_EQ(definitions[0]["format"], "name");
  EXPECT_EQ(definitions[1]["description"], "Its color.");
  EXPECT_EQ(definitions[3]["priority"], 1);
  EXPECT_EQ(definitions[4]["type"], "date");
  ASSERT_EQ(reply.body["rows"].size(), 1u);
  Json cells = reply.body["rows"][0]["cells"];
  ASSERT_EQ(cells.size(), 5u);
  EXPECT_EQ(cells[0], "a");
  EXPECT_EQ(cells[1], "red");
  EXPECT_EQ(cells[2], 3);
  EXPECT_TRUE(cells[3].is_null()) << cells;
  EXPECT_TRUE(cells[4].is_string()) << cells;
}

TEST_F(Tables, ATableCarriesTheListsVersionAndContinue) {
  for (const char* name : {"a", "b", "c"}) make(widgets(), widget(name));
  Reply first = table(widgets() + "?limit=2");
  ASSERT_TRUE(is_code(first, 200));
  EXPECT_EQ(first.body["rows"].size(), 2u);
  EXPECT_NE(meta(first.body, "resourceVersion"), "");
  std::string token = percent_encoded(meta(first.body, "continue"));
  Reply second = table(widgets() + "?limit=2&continue=" + token);
  ASSERT_TRUE(is_code(second, 200));
  ASSERT_EQ(second.body["rows"].size(), 1u);
  EXPECT_EQ(second.body["rows"][0]["cells"][0], "c");
}

TEST_F(Tables, RowsCarryMetadataOrTheObjectOrNothingAsAsked) {
  Json made = make(widgets(), widget("a"));
  Json row = table(widgets()).body["rows"][0];
  EXPECT_EQ(row["object"]["kind"], "PartialObjectMetadata");
  EXPECT_EQ(meta(row["object"], "uid"), meta(made, "uid"));
  EXPECT_FALSE(row["object"].contains("spec"));
  row = table(widgets() + "?includeObject=Object").body["rows"][0];
  EXPECT_EQ(row["object"]["spec"], made["spec"]);
  row = table(widgets() + "?includeObject=None").body["rows"][0];
  EXPECT_TRUE(row.value("object", Json()).is_null()) << row;
}

TEST_F(Tables, ASingleObjectIsATableOfOneRow) {
  make(widgets(), widget("a"));
  Reply reply = table(widgets() + "/a");
  ASSERT_TRUE(is_code(reply, 200));
  EXPECT_EQ(reply.body["kind"], "Table");
  EXPECT_EQ(reply.body["rows"].size(), 1u);
}

TEST_F(Tables, AnErrorStaysAStatus) {
  EXPECT_TRUE(is_failure(table(widgets() + "/a"), 404, "NotFound"));
}

TEST_F(Tables, AWatchSendsTablesWithColumnsInTheFirstAlone) {
  std::string version = meta(get(widgets()).body, "resourceVersion");
  make(widgets(), widget("a"));
  make(widgets(), widget("b"));
  Watching watch(widgets() + "?watch=true&resourceVersion=" + version, kTable);
  Json first = watch.next();
  ASSERT_FALSE(first.is_null());
  EXPECT_EQ(first["type"], "ADDED");
  EXPECT_EQ(first["object"]["kind"], "Table");
  EXPECT_EQ(columns(first["object"]).size(), 5u);
  EXPECT_EQ(first["object"]["rows"][0]["cells"][0], "a");
  Json second = watch.next();
  ASSERT_FALSE(second.is_null());
  EXPECT_EQ(columns(second["object"]).size(), 0u);
  EXPECT_EQ(second["object"]["rows"][0]["cells"][0], "b");
}

TEST_F(Tables, PodsHaveTheColumnsThatKubectlShows) {
  make(pods(), pod("a"));
  Reply reply = table(pods());
  ASSERT_TRUE(is_code(reply, 200));
  std::vector<std::string> found = columns(reply.body);
  ASSERT_GE(found.size(), 5u);
  found.resize(5);
  EXPECT_EQ(found, (std::vector<std::string>{"Name", "Ready", "Status", "Restarts", "Age"}));
  Json cells = reply.body["rows"][0]["cells"];
  EXPECT_EQ(cells[0], "a");
  EXPECT_EQ(cells[1], "0/1");
  EXPECT_EQ(cells[2], "Pending");
}

TEST_F(Tables, MetadataAloneCanBeAskedFor) {
  Json made = make(widgets(), widget("a"));
  auto ask_for = [&](const std::string& target, const std::string& kind) {
    return server().send(
        {.target = target,
         .headers = {{"Accept", "application/json;as=" + kind + ";v=v1;g=meta.k8s.io"}}});
  };
  Reply reply = ask_for(widgets() + "/a", "PartialObjectMetadata");
  ASSERT_TRUE(is_code(reply, 200));
  EXPECT_EQ(reply.body["kind"], "PartialObjectMetadata");
  EXPECT_EQ(reply.body["metadata"], made["metadata"]);
  EXPECT_FALSE(reply.body.contains("spec"));
  reply = ask_for(widgets(), "PartialObjectMetadataList");
  ASSERT_TRUE(is_code(reply, 200));
  EXPECT_EQ(reply.body["kind"], "PartialObjectMetadataList");
  ASSERT_EQ(reply.body["items"].size(), 1u);
  EXPECT_EQ(reply.body["items"][0]["metadata"]["name"], "a");
  EXPECT_FALSE(reply.body["items"][0].contains("spec"));
}

TEST_F(Tables, AWatchOfMetadataAloneSendsNoMore) {
  make(widgets(), widget("a"));
  Watching watch(widgets() + "?watch=true",
                 "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io");
  Json event = watch.next();
  ASSERT_FALSE(event.is_null());
  EXPECT_EQ(event["type"], "ADDED");
  EXPECT_EQ(event["object"]["kind"], "PartialObjectMetadata");
  EXPECT_EQ(event["object"]["metadata"]["name"], "a");
  EXPECT_FALSE(event["object"].contains("spec"));
}

}  // namespace
}  // namespace lockstep::conformance
