#include "local/schema/built_in_types.h"

#include <algorithm>
#include <string>

namespace lockstep::local {
namespace {

constexpr std::string_view kMarks = "/@+~!=";

constexpr TypeRow kRows[] = {
    {"apiextensions", "CustomResourceColumnDefinition",
     "description:string format:string jsonPath:string! name:string! priority:int32 "
     "type:string!"},
    {"apiextensions", "CustomResourceConversion", "strategy:string! webhook:WebhookConversion"},
    {"apiextensions", "CustomResourceDefinition",
     "metadata:ObjectMeta spec:CustomResourceDefinitionSpec! "
     "status:CustomResourceDefinitionStatus"},
    {"apiextensions", "CustomResourceDefinitionCondition",
     "lastTransitionTime:time message:string reason:string status:string! type:string!"},
    {"apiextensions", "CustomResourceDefinitionNames",
     "categories:[]string kind:string! listKind:string plural:string! shortNames:[]string "
     "singular:string"},
    {"apiextensions", "CustomResourceDefinitionSpec",
     "conversion:CustomResourceConversion group:string! names:CustomResourceDefinitionNames! "
     "preserveUnknownFields:bool scope:string! versions:[]CustomResourceDefinitionVersion!"},
    {"apiextensions", "CustomResourceDefinitionStatus",
     "acceptedNames:CustomResourceDefinitionNames "
     "conditions:[]CustomResourceDefinitionCondition@type storedVersions:[]string"},
    {"apiextensions", "CustomResourceDefinitionVersion",
     "additionalPrinterColumns:[]CustomResourceColumnDefinition deprecated:bool "
     "deprecationWarning:string name:string! schema:CustomResourceValidation "
     "selectableFields:any served:bool! storage:bool! subresources:CustomResourceSubresources"},
    {"apiextensions", "CustomResourceSubresourceScale",
     "labelSelectorPath:string specReplicasPath:string! statusReplicasPath:string!"},
    {"apiextensions", "CustomResourceSubresourceStatus", ""},
    {"apiextensions", "CustomResourceSubresources",
     "scale:CustomResourceSubresourceScale status:CustomResourceSubresourceStatus"},
    {"apiextensions", "CustomResourceValidation", "openAPIV3Schema:any"},
    {"apiextensions", "ServiceReference", "name:string! namespace:string! path:string port:int32"},
    {"apiextensions", "WebhookClientConfig", "caBundle:bytes service:ServiceReference url:string"},
    {"apiextensions", "WebhookConversion",
     "clientConfig:WebhookClientConfig conversionReviewVersions:[]string!"},
    {"autoscaling", "Scale", "metadata:ObjectMeta spec:ScaleSpec status:ScaleStatus"},
    {"autoscaling", "ScaleSpec", "replicas:int32"},
    {"autoscaling", "ScaleStatus", "replicas:int32! selector:string"},
    {"coordination", "Lease", "metadata:ObjectMeta spec:LeaseSpec"},
    {"coordination", "LeaseSpec",
     "acquireTime:time holderIdentity:string leaseDurationSeconds:int32 leaseTransitions:int32 "
     "preferredHolder:string renewTime:time strategy:string"},
    {"core", "AttachedVolume", "devicePath:string! name:string!"},
    {"core", "Binding", "metadata:ObjectMeta target:ObjectReference!"},
    {"core", "ClientIPConfig", "timeoutSeconds:int32"},
    {"core", "ConfigMap",
     "binaryData:map[bytes] data:map[string] immutable:bool metadata:ObjectMeta"},
    {"core", "ConfigMapNodeConfigSource",
     "kubeletConfigKey:string! name:string! namespace:string! resourceVersion:string "
     "uid:string"},
    {"core", "ContainerImage", "names:[]string! sizeBytes:int64"},
    {"core", "DaemonEndpoint", "Port:int32!"},
    {"core", "Event",
     "action:string count:int32 eventTime:time firstTimestamp:time "
     "involvedObject:ObjectReference! lastTimestamp:time message:string metadata:ObjectMeta! "
     "reason:string related:ObjectReference reportingComponent:string reportingInstance:string "
     "series:EventSeries source:EventSource type:string"},
    {"core", "EventSeries", "count:int32 lastObservedTime:time"},
    {"core", "EventSource", "component:string host:string"},
    {"core", "LoadBalancerIngress", "hostname:string ip:string ipMode:string ports:[]PortStatus"},
    {"core", "LoadBalancerStatus", "ingress:[]LoadBalancerIngress"},
    {"core", "Namespace", "metadata:ObjectMeta spec:NamespaceSpec status:NamespaceStatus"},
    {"core", "NamespaceCondition",
     "lastTransitionTime:time message:string reason:string status:string! type:string!"},
    {"core", "NamespaceSpec", "finalizers:[]string"},
    {"core", "NamespaceStatus", "conditions:[]NamespaceCondition/type phase:string"},
    {"core", "Node", "metadata:ObjectMeta spec:NodeSpec status:NodeStatus"},
    {"core", "NodeAddress", "address:string! type:string!"},
    {"core", "NodeCondition",
     "lastHeartbeatTime:time lastTransitionTime:time message:string reason:string "
     "status:string! type:string!"},
    {"core", "NodeConfigSource", "configMap:ConfigMapNodeConfigSource"},
    {"core", "NodeConfigStatus",
     "active:NodeConfigSource assigned:NodeConfigSource error:string "
     "lastKnownGood:NodeConfigSource"},
    {"core", "NodeDaemonEndpoints", "kubeletEndpoint:DaemonEndpoint"},
    {"core", "NodeSpec",
     "configSource:NodeConfigSource externalID:string podCIDR:string podCIDRs:[]string/ "
     "providerID:string taints:[]Taint unschedulable:bool"},
    {"core", "NodeStatus",
     "addresses:[]NodeAddress/type allocatable:map[quantity] capacity:map[quantity] "
     "conditions:[]NodeCondition/type config:NodeConfigStatus "
     "daemonEndpoints:NodeDaemonEndpoints features:any images:[]ContainerImage "
     "nodeInfo:NodeSystemInfo phase:string runtimeHandlers:any "
     "volumesAttached:[]AttachedVolume volumesInUse:[]string"},
    {"core", "NodeSystemInfo",
     "architecture:string! bootID:string! containerRuntimeVersion:string! "
     "kernelVersion:string! kubeProxyVersion:string! kubeletVersion:string! machineID:string! "
     "operatingSystem:string! osImage:string! swap:any systemUUID:string!"},
    {"core", "ObjectReference",
     "~ apiVersion:string fieldPath:string kind:string name:string namespace:string "
     "resourceVersion:string uid:string"},
    {"core", "PortStatus", "error:string port:int32! protocol:string!"},
    {"core", "Secret",
     "data:map[bytes] immutable:bool metadata:ObjectMeta stringData:map[string] type:string"},
    {"core", "Service", "metadata:ObjectMeta spec:ServiceSpec status:ServiceStatus"},
    {"core", "ServicePort",
     "appProtocol:string name:string nodePort:int32 port:int32! protocol:string=TCP "
     "targetPort:intOrString"},
    {"core", "ServiceSpec",
     "allocateLoadBalancerNodePorts:bool clusterIP:string clusterIPs:[]string "
     "externalIPs:[]string externalName:string externalTrafficPolicy:string "
     "healthCheckNodePort:int32 internalTrafficPolicy:string ipFamilies:[]string "
     "ipFamilyPolicy:string loadBalancerClass:string loadBalancerIP:string "
     "loadBalancerSourceRanges:[]string ports:[]ServicePort/port@port,protocol "
     "publishNotReadyAddresses:bool selector:map[string]~ sessionAffinity:string "
     "sessionAffinityConfig:SessionAffinityConfig topologyKeys:[]string "
     "trafficDistribution:string type:string"},
    {"core", "ServiceStatus", "conditions:[]Condition/type loadBalancer:LoadBalancerStatus"},
    {"core", "SessionAffinityConfig", "clientIP:ClientIPConfig"},
    {"core", "Taint", "effect:string! key:string! timeAdded:time value:string"},
    {"events", "Event",
     "action:string deprecatedCount:int32 deprecatedFirstTimestamp:time "
     "deprecatedLastTimestamp:time deprecatedSource:EventSource eventTime:time! "
     "metadata:ObjectMeta! note:string reason:string regarding:ObjectReference "
     "related:ObjectReference reportingController:string reportingInstance:string "
     "series:EventSeries type:string"},
    {"events", "EventSeries", "count:int32! lastObservedTime:time!"},
    {"meta", "Condition",
     "lastTransitionTime:time! message:string! observedGeneration:int64 reason:string! "
     "status:string! type:string!"},
    {"meta", "DeleteOptions",
     "dryRun:[]string gracePeriodSeconds:int64 "
     "ignoreStoreReadErrorWithClusterBreakingPotential:bool orphanDependents:bool "
     "preconditions:Preconditions propagationPolicy:string"},
    {"meta", "LabelSelector",
     "~ matchExpressions:[]LabelSelectorRequirement matchLabels:map[string]"},
    {"meta", "LabelSelectorRequirement", "key:string! operator:string! values:[]string"},
    {"meta", "ListMeta",
     "continue:string remainingItemCount:int64 resourceVersion:string selfLink:string"},
    {"meta", "ManagedFieldsEntry",
     "apiVersion:string fieldsType:string fieldsV1:any manager:string operation:string "
     "subresource:string time:time"},
    {"meta", "ObjectMeta",
     "annotations:map[string] clusterName:string creationTimestamp:time "
     "deletionGracePeriodSeconds:int64 deletionTimestamp:time finalizers:[]string/ "
     "generateName:string generation:int64 labels:map[string] "
     "managedFields:[]ManagedFieldsEntry name:string namespace:string "
     "ownerReferences:[]OwnerReference/uid resourceVersion:string selfLink:string uid:string"},
    {"meta", "OwnerReference",
     "~ apiVersion:string! blockOwnerDeletion:bool controller:bool kind:string! name:string! "
     "uid:string!"},
    {"meta", "Preconditions", "resourceVersion:string uid:string"},
    {"meta", "Status",
     "code:int32 details:StatusDetails message:string metadata:ListMeta reason:string "
     "status:string"},
    {"meta", "StatusCause", "field:string message:string reason:string"},
    {"meta", "StatusDetails",
     "causes:[]StatusCause group:string kind:string name:string retryAfterSeconds:int32 "
     "uid:string"},
};

struct Package {
  std::string_view name, group;
};
constexpr Package kPackages[] = {{"core", ""},
                                 {"events", "events.k8s.io"},
                                 {"coordination", "coordination.k8s.io"},
                                 {"apiextensions", "apiextensions.k8s.io"},
                                 {"autoscaling", "autoscaling"}};

std::string_view take_until(std::string_view& text, std::string_view stops) {
  const size_t end = std::min(text.find_first_of(stops), text.size());
  const std::string_view head = text.substr(0, end);
  text.remove_prefix(end);
  return head;
}

TypeField parse_field(std::string_view word) {
  TypeField field;
  field.name = take_until(word, ":");
  word.remove_prefix(1);
  field.type = take_until(word, kMarks);
  field.is_list = field.type.starts_with("[]");
  if (field.is_list) field.type.remove_prefix(2);
  while (!word.empty()) {
    const char mark = word.front();
    word.remove_prefix(1);
    std::string_view text = take_until(word, kMarks);
    if (mark == '/') {
      field.is_merged = true;
      field.merge_key = text;
    } else if (mark == '@') {
      while (!text.empty()) {
        field.list_keys.push_back(take_until(text, ","));
        if (!text.empty()) text.remove_prefix(1);
      }
    } else if (mark == '=') {
      field.default_text = text;
    }
    field.retains_keys |= mark == '+';
    field.is_atomic |= mark == '~';
    field.is_required |= mark == '!';
  }
  if (field.list_keys.empty() && !field.merge_key.empty()) field.list_keys = {field.merge_key};
  return field;
}

}  // namespace

TypeFields fields_of(const TypeRow& row) {
  TypeFields result;
  std::string_view rest = row.fields;
  while (!rest.empty()) {
    const std::string_view word = take_until(rest, " ");
    if (!rest.empty()) rest.remove_prefix(1);
    if (word == "~") {
      result.is_atomic = true;
    } else {
      result.fields.push_back(parse_field(word));
    }
  }
  return result;
}

std::string_view package_of(std::string_view api_version) {
  for (const Package& known : kPackages) {
    const std::string version = std::string(known.group) + (known.group.empty() ? "v1" : "/v1");
    if (version == api_version) return known.name;
  }
  return "";
}

std::span<const TypeRow> other_types() {
  return kRows;
}

const TypeRow* find_type(std::string_view package, std::string_view name) {
  const TypeRow* found = nullptr;
  for (const std::span<const TypeRow> rows : {pod_types(), other_types()}) {
    for (const TypeRow& row : rows) {
      if (row.name != name) continue;
      if (row.package == package) return &row;
      if (row.package == "core" || row.package == "meta") found = &row;
    }
  }
  return found;
}

}  // namespace lockstep::local
