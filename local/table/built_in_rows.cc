#include "local/table/built_in_rows.h"

#include <algorithm>
#include <set>
#include <string>

#include "local/table/human_duration.h"
#include "local/table/lookup.h"
#include "local/table/pod_row.h"

namespace lockstep::local {
namespace {

std::string name_of(const Json& object) {
  return text_at(object, {"metadata", "name"});
}

std::string age_of(const Json& object, WallTime now) {
  return age(value_at(object, {"metadata", "creationTimestamp"}), now);
}

std::string joined(const std::vector<std::string>& words, std::string_view if_none) {
  if (words.empty()) return std::string(if_none);
  std::string text = words[0];
  for (size_t i = 1; i < words.size(); ++i) text += "," + words[i];
  return text;
}

size_t members(const Json& object, std::string_view key) {
  const Json& value = value_at(object, {key});
  return value.is_object() ? value.size() : 0;
}

// Nodes.

std::string node_status(const Json& node) {
  const Json& ready = condition_of(value_at(node, {"status", "conditions"}), "Ready");
  std::string status = ready.is_null()                        ? "Unknown"
                       : text_at(ready, {"status"}) == "True" ? "Ready"
                                                              : "NotReady";
  bool cordoned = value_at(node, {"spec", "unschedulable"}) == Json(true);
  return cordoned ? status + ",SchedulingDisabled" : status;
}

std::string node_roles(const Json& node) {
  constexpr std::string_view kPrefix = "node-role.kubernetes.io/";
  std::set<std::string> roles;
  const Json& labels = value_at(node, {"metadata", "labels"});
  if (!labels.is_object()) return "<none>";
  for (const auto& [key, value] : labels.items()) {
    if (key.starts_with(kPrefix) && key.size() > kPrefix.size())
      roles.insert(key.substr(kPrefix.size()));
    if (key == "kubernetes.io/role" && value.is_string() && value != "") roles.insert(value);
  }
  return joined({roles.begin(), roles.end()}, "<none>");
}

std::string node_address(const Json& node, std::string_view type) {
  for (const Json& address : list_at(node, {"status", "addresses"}))
    if (text_at(address, {"type"}) == type) return text_at(address, {"address"}, "<none>");
  return "<none>";
}

Json node_cells(const Json& node, WallTime now) {
  const Json& info = value_at(node, {"status", "nodeInfo"});
  return Json::array({name_of(node), node_status(node), node_roles(node), age_of(node, now),
                      text_at(info, {"kubeletVersion"}), node_address(node, "InternalIP"),
                      node_address(node, "ExternalIP"), text_at(info, {"osImage"}, "<unknown>"),
                      text_at(info, {"kernelVersion"}, "<unknown>"),
                      text_at(info, {"containerRuntimeVersion"}, "<unknown>")});
}

// Events. Their fields have different names in core/v1 and in events.k8s.io/v1.

const Json& either(const Json& event, std::string_view core, std::string_view modern) {
  const Json& value = value_at(event, {core});
  return value.is_null() ? value_at(event, {modern}) : value;
}

std::string event_target(const Json& object) {
  std::string target = text_at(object, {"kind"});
  std::transform(target.begin(), target.end(), target.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string name = text_at(object, {"name"});
  return name.empty() ? target : target + "/" + name;
}

std::string event_source(const Json& event) {
  const Json& source = either(event, "source", "deprecatedSource");
  std::string component =
      text_at(source, {"component"},
              text_at(either(event, "reportingComponent", "reportingController"), {}));
  std::string host = text_at(source, {"host"}, text_at(event, {"reportingInstance"}));
  return host.empty() ? component : component + ", " + host;
}

std::string trimmed(const std::string& text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

struct Seen {
  std::string first;
  std::string last;
  int64_t count;
};

Seen event_times(const Json& event, WallTime now) {
  const Json& first = either(event, "firstTimestamp", "deprecatedFirstTimestamp");
  const Json& last = either(event, "lastTimestamp", "deprecatedLastTimestamp");
  const Json& count = either(event, "count", "deprecatedCount");
  Seen seen{.first = age(first.is_null() ? value_at(event, {"eventTime"}) : first, now),
            .count = count.is_number_integer() ? count.get<int64_t>() : 0};
  seen.last = last.is_null() ? seen.first : age(last, now);
  const Json& series = value_at(event, {"series"});
  if (series.is_object()) {
    seen.last = age(value_at(series, {"lastObservedTime"}), now);
    seen.count = int_or(series, "count", 0);
  } else if (seen.count == 0) {
    seen.count = 1;
  }
  return seen;
}

Json event_cells(const Json& event, WallTime now) {
  const Json& object = either(event, "involvedObject", "regarding");
  Seen seen = event_times(event, now);
  return Json::array({seen.last, text_at(event, {"type"}), text_at(event, {"reason"}),
                      event_target(object), text_at(object, {"fieldPath"}), event_source(event),
                      trimmed(text_at(either(event, "message", "note"), {})), seen.first,
                      seen.count, name_of(event)});
}

// Services.

std::string load_balancer_addresses(const Json& service) {
  std::vector<std::string> found;
  for (const Json& ingress : list_at(service, {"status", "loadBalancer", "ingress"})) {
    std::string address = text_at(ingress, {"ip"}, text_at(ingress, {"hostname"}));
    if (!address.empty()) found.push_back(std::move(address));
  }
  return joined(found, "");
}

std::string external_address(const Json& service, const std::string& type) {
  std::vector<std::string> external;
  for (const Json& address : list_at(service, {"spec", "externalIPs"}))
    if (address.is_string()) external.push_back(address);
  if (type == "ExternalName") return text_at(service, {"spec", "externalName"}, "<none>");
  if (type != "LoadBalancer") return joined(external, "<none>");
  std::string balanced = load_balancer_addresses(service);
  if (balanced.empty()) return joined(external, "<pending>");
  return external.empty() ? balanced : balanced + "," + joined(external, "");
}

std::string service_ports(const Json& service) {
  std::vector<std::string> ports;
  for (const Json& port : list_at(service, {"spec", "ports"})) {
    std::string text = std::to_string(int_or(port, "port", 0));
    if (int64_t node_port = int_or(port, "nodePort", 0); node_port > 0)
      text += ":" + std::to_string(node_port);
    ports.push_back(text + "/" + text_at(port, {"protocol"}, "TCP"));
  }
  return joined(ports, "<none>");
}

std::string labels_text(const Json& labels) {
  std::vector<std::string> pairs;
  if (labels.is_object())
    for (const auto& [key, value] : labels.items()) pairs.push_back(key + "=" + text_at(value, {}));
  return joined(pairs, "<none>");
}

Json service_cells(const Json& service, WallTime now) {
  std::string type = text_at(service, {"spec", "type"}, "ClusterIP");
  return Json::array({name_of(service), type, text_at(service, {"spec", "clusterIP"}, "<none>"),
                      external_address(service, type), service_ports(service), age_of(service, now),
                      labels_text(value_at(service, {"spec", "selector"}))});
}

// Kinds that need one line each.

Json secret_cells(const Json& secret, WallTime now) {
  return Json::array({name_of(secret), text_at(secret, {"type"}, "Opaque"), members(secret, "data"),
                      age_of(secret, now)});
}

Json config_map_cells(const Json& map, WallTime now) {
  return Json::array(
      {name_of(map), members(map, "data") + members(map, "binaryData"), age_of(map, now)});
}

Json lease_cells(const Json& lease, WallTime now) {
  return Json::array(
      {name_of(lease), text_at(lease, {"spec", "holderIdentity"}), age_of(lease, now)});
}

Json namespace_cells(const Json& space, WallTime now) {
  return Json::array({name_of(space), text_at(space, {"status", "phase"}), age_of(space, now)});
}

Json definition_cells(const Json& definition, WallTime) {
  return Json::array({name_of(definition), text_at(definition, {"metadata", "creationTimestamp"})});
}

const TableColumn kName{
    .name = "Name", .format = "name", .description = "The object's name, unique for its kind."};
const TableColumn kAge{.name = "Age", .description = "Time since the object was created."};

TableColumn column(std::string name, std::string description) {
  return {.name = std::move(name), .description = std::move(description)};
}

// A column that only wide output has.
TableColumn wide(std::string name, std::string description) {
  return {.name = std::move(name), .description = std::move(description), .priority = 1};
}

std::vector<TableColumn> event_columns() {
  TableColumn count = wide("Count", "Number of occurrences.");
  count.type = "integer";
  TableColumn name = wide("Name", "The event's own name.");
  name.format = "name";
  return {column("Last Seen", "Time since it last happened."),
          column("Type", "Normal or Warning."),
          column("Reason", "The reason, in one word."),
          column("Object", "The object that it is about."),
          wide("Subobject", "The part of the object that it is about."),
          wide("Source", "Who reported it."),
          column("Message", "What happened."),
          wide("First Seen", "Time since it first happened."),
          count,
          name};
}

std::vector<RowPrinter> make_printers() {
  TableColumn data = column("Data", "Number of entries.");
  data.type = "integer";
  TableColumn created{.name = "Created At", .type = "date", .description = "When it was created."};
  std::vector<TableColumn> events = event_columns();
  return {
      {.api_version = "v1",
       .kind = "Pod",
       .columns = {kName, column("Ready", "Number of ready containers, of all containers."),
                   column("Status", "The pod's state in one word."),
                   column("Restarts", "Number of restarts of its containers."), kAge,
                   wide("IP", "The pod's address."), wide("Node", "The node that runs it."),
                   wide("Nominated Node", "The node that would run it after a preemption."),
                   wide("Readiness Gates", "Number of readiness gates that are true, of all.")},
       .cells = pod_cells},
      {.api_version = "v1",
       .kind = "Node",
       .columns = {kName, column("Status", "Whether it is ready and accepts new pods."),
                   column("Roles", "Its roles, from the labels node-role.kubernetes.io/..."), kAge,
                   column("Version", "The kubelet's version."),
                   wide("Internal-IP", "Its address within the cluster."),
                   wide("External-IP", "Its address from outside."),
                   wide("OS-Image", "The operating system."),
                   wide("Kernel-Version", "The kernel's version."),
                   wide("Container-Runtime", "The container runtime.")},
       .cells = node_cells},
      {.api_version = "v1", .kind = "Event", .columns = events, .cells = event_cells},
      {.api_version = "events.k8s.io/v1", .kind = "Event", .columns = events, .cells = event_cells},
      {.api_version = "v1",
       .kind = "Secret",
       .columns = {kName, column("Type", "The type of its data."), data, kAge},
       .cells = secret_cells},
      {.api_version = "v1",
       .kind = "ConfigMap",
       .columns = {kName, data, kAge},
       .cells = config_map_cells},
      {.api_version = "v1",
       .kind = "Service",
       .columns = {kName, column("Type", "How clients reach it."),
                   column("Cluster-IP", "Its address within the cluster."),
                   column("External-IP", "Its address from outside."),
                   column("Port(s)", "Ports and protocols."), kAge,
                   wide("Selector", "Labels of its pods.")},
       .cells = service_cells},
      {.api_version = "coordination.k8s.io/v1",
       .kind = "Lease",
       .columns = {kName, column("Holder", "The current holder."), kAge},
       .cells = lease_cells},
      {.api_version = "v1",
       .kind = "Namespace",
       .columns = {kName, column("Status", "Active or Terminating."), kAge},
       .cells = namespace_cells},
      {.api_version = "apiextensions.k8s.io/v1",
       .kind = "CustomResourceDefinition",
       .columns = {kName, created},
       .cells = definition_cells},
  };
}

}  // namespace

const RowPrinter* find_row_printer(std::string_view api_version, std::string_view kind) {
  static const std::vector<RowPrinter> printers = make_printers();
  for (const RowPrinter& printer : printers)
    if (printer.api_version == api_version && printer.kind == kind) return &printer;
  return nullptr;
}

}  // namespace lockstep::local
