// Tests that Tables match kube-apiserver's: the frame, custom columns, and the cells of each
// built-in kind.
#include "local/table/table.h"

#include <gtest/gtest.h>

#include "local/table/built_in_rows.h"

namespace lockstep::local {
namespace {

constexpr char kNow[] = "2026-03-01T12:00:00Z";

WallTime now() {
  return *wall_time_from_rfc3339(kNow);
}

Json parsed(std::string_view text) {
  Result<Json> value = parse_json(text);
  EXPECT_TRUE(value.ok()) << text << (value.ok() ? "" : value.error().message);
  return value.ok() ? *value : Json();
}

Json named(std::string_view text) {
  Json object = parsed(text);
  object["metadata"]["name"] = "x";
  if (!object["metadata"].contains("creationTimestamp"))
    object["metadata"]["creationTimestamp"] = "2026-03-01T11:55:00Z";
  return object;
}

Json cells_of(std::string_view api_version, std::string_view kind, const Json& object) {
  TableRequest request{.api_version = api_version, .kind = kind, .now = now()};
  return make_table(request, {&object})["rows"][0]["cells"];
}

TEST(TableTest, FramesRowsWithTheColumnsAndTheListsVersion) {
  Json map = named(R"({"data": {"a": "1"}})");
  TableRequest request{.api_version = "v1",
                       .kind = "ConfigMap",
                       .resource_version = "42",
                       .continue_token = "next",
                       .now = now()};
  Json table = make_table(request, {&map, &map});
  EXPECT_EQ(table["apiVersion"], "meta.k8s.io/v1");
  EXPECT_EQ(table["kind"], "Table");
  EXPECT_EQ(table["metadata"], parsed(R"({"resourceVersion": "42", "continue": "next"})"));
  ASSERT_EQ(table["columnDefinitions"].size(), 3u);
  Json name = table["columnDefinitions"][0];
  EXPECT_EQ(name["name"], "Name");
  EXPECT_EQ(name["type"], "string");
  EXPECT_EQ(name["format"], "name");
  EXPECT_EQ(name["priority"], 0);
  EXPECT_FALSE(name["description"].get<std::string>().empty());
  EXPECT_EQ(table["rows"].size(), 2u);
  EXPECT_EQ(table["rows"][0]["cells"], parsed(R"(["x", 1, "5m"])"));
}

TEST(TableTest, CarriesTheMetadataTheObjectOrNothing) {
  Json map = named(R"({"data": {"a": "1"}, "metadata": {"labels": {"k": "v"}}})");
  TableRequest request{.api_version = "v1", .kind = "ConfigMap", .now = now()};
  Json object = make_table(request, {&map})["rows"][0]["object"];
  EXPECT_EQ(object["apiVersion"], "meta.k8s.io/v1");
  EXPECT_EQ(object["kind"], "PartialObjectMetadata");
  EXPECT_EQ(object["metadata"], map["metadata"]);
  EXPECT_FALSE(object.contains("data"));
  request.rows = TableRows::kObject;
  EXPECT_EQ(make_table(request, {&map})["rows"][0]["object"], map);
  request.rows = TableRows::kNone;
  EXPECT_TRUE(make_table(request, {&map})["rows"][0]["object"].is_null());
}

TEST(TableTest, LaterEventsOfAWatchHaveNoColumns) {
  Json map = named("{}");
  TableRequest request{
      .api_version = "v1", .kind = "ConfigMap", .with_headers = false, .now = now()};
  Json table = make_table(request, {&map});
  EXPECT_TRUE(table["columnDefinitions"].is_null());
  EXPECT_EQ(table["rows"].size(), 1u);
}

TEST(TableTest, AnEmptyListHasColumnsAndNoRows) {
  Json table = make_table({.api_version = "v1", .kind = "Pod", .now = now()}, {});
  EXPECT_EQ(table["columnDefinitions"].size(), 9u);
  EXPECT_EQ(table["rows"], Json::array());
}

TEST(TableTest, EveryPrinterGivesACellForEachColumn) {
  struct Kind {
    const char* api_version;
    const char* kind;
  };
  for (auto [api_version, kind] :
       {Kind{"v1", "Pod"}, Kind{"v1", "Node"}, Kind{"v1", "Event"},
        Kind{"events.k8s.io/v1", "Event"}, Kind{"v1", "Secret"}, Kind{"v1", "ConfigMap"},
        Kind{"v1", "Service"}, Kind{"coordination.k8s.io/v1", "Lease"}, Kind{"v1", "Namespace"},
        Kind{"apiextensions.k8s.io/v1", "CustomResourceDefinition"}}) {
    const RowPrinter* printer = find_row_printer(api_version, kind);
    ASSERT_NE(printer, nullptr) << kind;
    // Objects of any shape that users may store, even empty ones.
    for (const char* text :
         {"{}", "[]", "null", "7", R"({"metadata": 1, "spec": [], "status": ""})",
          R"({"metadata": {"name": {}, "labels": [1]}, "data": 5,
                                 "spec": {"containers": {}, "ports": [1, null, []]},
                                 "status": {"conditions": [1, {"type": []}], "phase": 3,
                                            "containerStatuses": [null, {"state": []}],
                                            "initContainerStatuses": [{"state": 4}, 5],
                                            "podIPs": [7], "addresses": [null]}})"}) {
      Json cells = printer->cells(parsed(text), now());
      EXPECT_EQ(cells.size(), printer->columns.size()) << kind << " of " << text;
      for (const Json& cell : cells) EXPECT_TRUE(cell.is_string() || cell.is_number()) << kind;
    }
  }
}

TEST(TableTest, CustomColumnsPrintWhatTheirPathLeadsTo) {
  struct Case {
    const char* type;
    const char* path;
    Json cell;
  };
  Json job = named(R"j({
    "metadata": {"creationTimestamp": "2026-03-01T11:58:30Z", "annotations": {"a.b/c": "dotted"}},
    "spec": {"nodes": 2, "list": ["p", "q"], "on": true},
    "status": {"state": "Running", "empty": null, "loss": 3.25, "rate": 412000.0,
               "bad": "yesterday", "none": "",
               "conditions": [{"type": "Ready", "status": "False", "n": 1},
                              {"type": "Complete", "status": "True", "n": 2}]}})j");
  const std::vector<Case> cases = {
      {"string", ".status.state", "Running"},
      {"string", ".status.absent", nullptr},
      {"string", ".status.state.below", nullptr},
      {"string", ".status.empty", nullptr},
      {"string", ".spec.nodes", "2"},
      {"string", ".spec.list", R"(["p","q"])"},
      {"string", ".spec.list[1]", "q"},
      {"string", ".spec.list[-2]", "p"},
      {"string", ".spec.list[2]", nullptr},
      {"string", ".spec.list[*]", "p"},  // the first of several
      {"string", ".spec['list'][0]", "p"},
      {"string", R"(.metadata.annotations.a\.b/c)", "dotted"},
      {"string", R"(.metadata.annotations['a.b/c'])", "dotted"},
      {"string", R"(.metadata.annotations.a\.b\/c)", "dotted"},
      {"string", R"(.status.conditions[?(@.type=="Ready")].status)", "False"},
      {"string", R"(.status.conditions[?(@.type == 'Complete')].status)", "True"},
      {"string", R"(.status.conditions[?(@.n>1)].type)", "Complete"},
      {"string", R"(.status.conditions[?(@.n<=1)].type)", "Ready"},
      {"string", R"(.status.conditions[?(@.n!=1)].type)", "Complete"},
      {"string", R"(.status.conditions[?(@.n)].type)", "Ready"},
      {"string", R"(.status.conditions[?(@.type=="No")].status)", nullptr},
      {"string", "not a path", nullptr},
      {"integer", ".spec.nodes", 2},
      {"integer", ".status.loss", 3},
      {"integer", ".status.state", nullptr},
      {"number", ".status.loss", 3.25},
      {"number", ".status.rate", 412000},
      {"number", ".spec.nodes", 2},
      {"number", ".status.state", nullptr},
      {"boolean", ".spec.on", true},
      {"boolean", ".spec.nodes", nullptr},
      {"date", ".metadata.creationTimestamp", "90s"},
      {"date", ".status.bad", "<invalid>"},
      {"date", ".status.none", "<unknown>"},
      {"date", ".spec.nodes", nullptr},
      {"date", ".status.absent", nullptr},
  };
  for (const Case& one : cases) {
    std::vector<TableColumn> columns = {{.name = "C", .type = one.type, .json_path = one.path}};
    TableRequest request{.api_version = "lockstep.dev/v1alpha1",
                         .kind = "TrainingJob",
                         .columns = &columns,
                         .now = now()};
    Json cells = make_table(request, {&job})["rows"][0]["cells"];
    EXPECT_EQ(dump_json(cells), dump_json(Json::array({"x", one.cell})))
        << one.type << " " << one.path;
  }
}

TEST(TableTest, ACustomKindWithoutColumnsHasItsAge) {
  Json object = named("{}");
  Json table = make_table({.api_version = "a.b/v1", .kind = "C", .now = now()}, {&object});
  EXPECT_EQ(table["columnDefinitions"][1]["name"], "Age");
  EXPECT_EQ(table["columnDefinitions"][1]["type"], "date");
  EXPECT_EQ(table["rows"][0]["cells"], parsed(R"(["x", "5m"])"));
}

TEST(TableTest, CustomColumnsKeepTheirPriorityAndDescription) {
  std::vector<TableColumn> columns = {
      {.name = "A", .description = "Why.", .json_path = ".a", .priority = 1},
      {.name = "B", .json_path = ".b"}};
  TableRequest request{.api_version = "a.b/v1", .kind = "C", .columns = &columns, .now = now()};
  Json definitions = make_table(request, {})["columnDefinitions"];
  EXPECT_EQ(definitions[1]["priority"], 1);
  EXPECT_EQ(definitions[1]["description"], "Why.");
  EXPECT_NE(definitions[2]["description"].get<std::string>().find(".b"), std::string::npos);
}

TEST(TableTest, NodesSayWhetherTheyAreReadyAndOpen) {
  struct Case {
    const char* node;
    const char* status;
    const char* roles;
  };
  for (const Case& one : std::vector<Case>{
           {R"({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})", "Ready",
            "<none>"},
           {R"({"spec": {"unschedulable": true},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
                "metadata": {"labels": {"node-role.kubernetes.io/worker": "",
                                        "node-role.kubernetes.io/control-plane": ""}}})",
            "Ready,SchedulingDisabled", "control-plane,worker"},
           {R"({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
                "metadata": {"labels": {"kubernetes.io/role": "gpu"}}})",
            "NotReady", "gpu"},
           {R"({"status": {"conditions": [{"type": "DiskPressure", "status": "False"}]}})",
            "Unknown", "<none>"},
       }) {
    Json cells = cells_of("v1", "Node", named(one.node));
    EXPECT_EQ(cells[1], one.status) << one.node;
    EXPECT_EQ(cells[2], one.roles) << one.node;
  }
  Json wide = cells_of("v1", "Node", named(R"({"status": {
      "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "127.1.0.1"}],
      "nodeInfo": {"kubeletVersion": "v1.2", "osImage": "Debian", "kernelVersion": "6.1",
                   "containerRuntimeVersion": "processes://1"}}})"));
  EXPECT_EQ(wide, parsed(R"(["x", "Unknown", "<none>", "5m", "v1.2", "127.1.0.1", "<none>",
                            "Debian", "6.1", "processes://1"])"));
}

TEST(TableTest, EventsSayWhenHowOftenAndAboutWhat) {
  Json core = named(R"({"type": "Warning", "reason": "BackOff", "message": " twice \n",
      "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{node}"},
      "source": {"component": "kubelet", "host": "m-1"}, "count": 3,
      "firstTimestamp": "2026-03-01T11:50:00Z", "lastTimestamp": "2026-03-01T11:59:50Z"})");
  EXPECT_EQ(cells_of("v1", "Event", core),
            parsed(R"(["10s", "Warning", "BackOff", "pod/p", "spec.containers{node}",
                       "kubelet, m-1", "twice", "10m", 3, "x"])"));
  Json modern = named(R"({"type": "Normal", "reason": "Started", "note": "words",
      "regarding": {"kind": "TrainingJob", "name": "j"}, "reportingController": "lockstep",
      "reportingInstance": "i", "eventTime": "2026-03-01T11:59:00.5Z"})");
  EXPECT_EQ(cells_of("events.k8s.io/v1", "Event", modern),
            parsed(R"(["59s", "Normal", "Started", "trainingjob/j", "", "lockstep, i", "words",
                       "59s", 1, "x"])"));
  Json series = named(R"({"involvedObject": {"kind": "Node"},
      "eventTime": "2026-03-01T11:00:00.5Z",
      "series": {"count": 9, "lastObservedTime": "2026-03-01T11:59:55.0Z"}})");
  Json cells = cells_of("v1", "Event", series);
  EXPECT_EQ(cells[0], "5s");
  EXPECT_EQ(cells[3], "node");
  EXPECT_EQ(cells[7], "59m");
  EXPECT_EQ(cells[8], 9);
}

TEST(TableTest, ServicesSayHowTheyAreReached) {
  struct Case {
    const char* service;
    const char* cells;  // after the name; the age is 5m
  };
  for (
      const Case& one : std::vector<Case>{
          {R"({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "selector": {"a": "b", "c": "d"},
                 "ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP", "nodePort": 30053}]}})",
           R"(["ClusterIP", "10.0.0.1", "<none>", "80/TCP,53:30053/UDP", "5m", "a=b,c=d"])"},
          {R"({"spec": {"clusterIP": "None", "externalIPs": ["1.2.3.4", "1.2.3.5"]}})",
           R"(["ClusterIP", "None", "1.2.3.4,1.2.3.5", "<none>", "5m", "<none>"])"},
          {R"({"spec": {"type": "ExternalName", "externalName": "a.example"}})",
           R"(["ExternalName", "<none>", "a.example", "<none>", "5m", "<none>"])"},
          {R"({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.2"}})",
           R"(["LoadBalancer", "10.0.0.2", "<pending>", "<none>", "5m", "<none>"])"},
          {R"({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.2", "externalIPs": ["9.9.9.9"]},
                "status": {"loadBalancer": {"ingress": [{"ip": "8.8.8.8"}, {"hostname": "lb"}]}}})",
           R"(["LoadBalancer", "10.0.0.2", "8.8.8.8,lb,9.9.9.9", "<none>", "5m", "<none>"])"},
      }) {
    Json cells = cells_of("v1", "Service", named(one.service));
    cells.erase(0);
    EXPECT_EQ(cells, parsed(one.cells)) << one.service;
  }
}

TEST(TableTest, SmallKindsPrintTheirLine) {
  struct Case {
    const char* api_version;
    const char* kind;
    const char* object;
    const char* cells;
  };
  for (const Case& one : std::vector<Case>{
           {"v1", "Secret", R"({"type": "kubernetes.io/tls", "data": {"a": "", "b": ""}})",
            R"(["x", "kubernetes.io/tls", 2, "5m"])"},
           {"v1", "Secret", "{}", R"(["x", "Opaque", 0, "5m"])"},
           {"v1", "ConfigMap", R"({"data": {"a": ""}, "binaryData": {"b": ""}})",
            R"(["x", 2, "5m"])"},
           {"coordination.k8s.io/v1", "Lease", R"({"spec": {"holderIdentity": "me"}})",
            R"(["x", "me", "5m"])"},
           {"coordination.k8s.io/v1", "Lease", "{}", R"(["x", "", "5m"])"},
           {"v1", "Namespace", R"({"status": {"phase": "Terminating"}})",
            R"(["x", "Terminating", "5m"])"},
           {"apiextensions.k8s.io/v1", "CustomResourceDefinition", "{}",
            R"(["x", "2026-03-01T11:55:00Z"])"},
       }) {
    EXPECT_EQ(cells_of(one.api_version, one.kind, named(one.object)), parsed(one.cells))
        << one.kind;
  }
}

}  // namespace
}  // namespace lockstep::local
