#include "tests/fuzz/server/vocabulary.h"

#include <cstring>
#include <iterator>
#include <sstream>

namespace lockstep::fuzz {
namespace {

constexpr FuzzKind kKinds[] = {
    {"/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition",
     false, R"({
       "metadata": {"name": "things.a.b"}, "spec": {"group": "a.b", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]}, "versions": [
        {"name": "v1", "served": true, "storage": true,
         "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n",
           "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.a"}},
         "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a"}],
         "schema": {"openAPIV3Schema": {"type": "object", "properties": {
          "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
          "spec": {"type": "object", "properties": {
           "a": {"type": "string", "pattern": "^[a-z]*$", "default": "d"},
           "n": {"type": "integer", "minimum": 0},
           "m": {"type": "object", "additionalProperties": {"type": "string"}},
           "b": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
           "l": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
           "k": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["n"], "items": {"type": "object", "required": ["n"],
            "properties": {"n": {"type": "string"}, "v": {"type": "integer"}}}}}}}}}},
        {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema":
         {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})"},
    {"/apis/a.b/v1", "things", "Thing", true,
     R"({"spec": {"a": "x", "n": 3, "m": {"a": "b"}, "k": [{"n": "a", "v": 1}], "l": ["a"]}})",
     "status scale"},
    {"/apis/a.b/v2", "things", "Thing", true, R"({"spec": {"a": {"b": []}}, "status": 1})"},
    {"/apis/lockstep.dev/v1alpha1", "trainingjobs", "TrainingJob", true,
     R"({"spec": {"nodes": 1, "command": ["true"]}})", "status scale"},
    {"/api/v1", "pods", "Pod", true,
     R"({"spec": {"containers": [{"name": "a", "image": "i", "env": [{"name": "E", "value": "1"}],
         "ports": [{"containerPort": 1}]}], "volumes": [{"name": "v", "emptyDir": {}}]},
         "status": {"phase": "Running", "containerStatuses": [{"name": "a", "ready": true,
         "restartCount": 1, "containerID": "local://a", "lastState": {"terminated":
         {"exitCode": 1, "reason": "Error"}}, "state": {"running": {"startedAt":
         "2026-01-02T03:04:05Z"}}}]}})",
     "status binding eviction log"},
    {"/api/v1", "configmaps", "ConfigMap", true,
     R"({"data": {"a": "b"}, "metadata": {"labels": {"a": "b"}}})"},
    {"/api/v1", "secrets", "Secret", true, R"({"data": {"a": "YQ=="}, "stringData": {"b": "c"}})"},
    {"/api/v1", "services", "Service", true,
     R"({"spec": {"ports": [{"port": 1, "targetPort": "a"}], "selector": {"a": "b"}}})"},
    {"/api/v1", "namespaces", "Namespace", false, R"({})"},
    {"/api/v1", "nodes", "Node", false,
     R"({"metadata": {"labels": {"a": "b"}}, "spec": {"taints": []}, "status": {"conditions":
         [{"type": "Ready", "status": "True"}]}})"},
    {"/api/v1", "events", "Event", true,
     R"({"involvedObject": {"kind": "Pod", "name": "a", "namespace": "default"}, "reason": "R",
         "message": "m", "type": "Normal", "count": 1, "source": {"component": "c"}})"},
    {"/apis/events.k8s.io/v1", "events", "Event", true,
     R"({"regarding": {"kind": "Pod", "name": "a", "namespace": "default"}, "reason": "R",
         "action": "A", "eventTime": "2026-01-02T03:04:05.000006Z", "reportingController": "x.dev/c",
         "reportingInstance": "i", "note": "m",
         "type": "Normal"})"},
    {"/apis/coordination.k8s.io/v1", "leases", "Lease", true,
     R"({"spec": {"holderIdentity": "h", "leaseDurationSeconds": 15}})"}};

// Splits a text at spaces.
std::vector<std::string> split(const char* text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

const char* FuzzKind::api_version() const {
  return prefix + std::strlen(std::string_view(prefix).starts_with("/apis/") ? "/apis/" : "/api/");
}

std::vector<std::string> FuzzKind::subresources() const {
  return split(subresource_names);
}

std::span<const FuzzKind> fuzz_kinds() {
  return kKinds;
}

const FuzzKind* find_fuzz_kind(std::string_view prefix, std::string_view plural) {
  for (const FuzzKind& kind : kKinds)
    if (prefix == kind.prefix && plural == kind.plural) return &kind;
  return nullptr;
}

namespace words {

const std::vector<std::string>& methods() {
  static const std::vector<std::string> kAll = split(R"(
GET POST PUT PATCH PATCH PATCH DELETE)");
  return kAll;
}

const std::vector<std::string>& namespaces() {
  static const std::vector<std::string> kAll = split(R"(
default default default a kube-system nowhere)");
  return kAll;
}

const std::vector<std::string>& names() {
  static const std::vector<std::string> kAll = split(R"(
a a a b c default things.a.b trainingjobs.lockstep.dev A_ {{name}})");
  return kAll;
}

const std::vector<std::string>& subresources() {
  static const std::vector<std::string> kAll = split(R"(
status status scale scale binding eviction log exec x)");
  return kAll;
}

const std::vector<std::string>& odd_paths() {
  static const std::vector<std::string> kAll = split(R"(
/ /api /apis /api/v1 /apis/a.b /apis/a.b/v1 /version /api/v1/namespaces/%zz
/api/v1/namespaces/a%2Fb/pods/%00 //api//v1//pods /apis/lockstep.dev/v1alpha1
/api/v1/namespaces/default/pods/a/exec /api/v1/pods/a /apis/x/v1/y /metrics
/api/v1/namespaces/default/things /apis/apiextensions.k8s.io/v1)");
  return kAll;
}

const std::vector<std::string>& options() {
  static const std::vector<std::string> kAll = split(R"(
dryRun=All fieldManager=m fieldManager=n force=true fieldValidation=Strict
fieldValidation=Ignore labelSelector=a%3Db labelSelector=a+in+(b,c),!d
fieldSelector=metadata.name%3Da fieldSelector=status.phase!%3DRunning limit=1
limit=2&continue=3~default~a continue=-1~~a resourceVersion=0
resourceVersion=6&resourceVersionMatch=Exact resourceVersion=99999999 resourceVersion=1
resourceVersionMatch=NotOlderThan&resourceVersion=2 propagationPolicy=Foreground
propagationPolicy=Orphan propagationPolicy=Background gracePeriodSeconds=0
gracePeriodSeconds=9223372036854775807 dryRun=x watch=true labelSelector=%28
fieldSelector=spec.x%3D1 container=a includeObject=Object
sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan % a
gracePeriodSeconds=5 previous=true&tailLines=3&limitBytes=5 watch=1
watch=true&allowWatchBookmarks=true continue={{continue}}&limit=1
resourceVersion={{version}} watch=1&resourceVersion={{version}} fieldManager=kubectl
follow=true labelSelector=a limit=9223372036854775808
fieldSelector=metadata.namespace%3Ddefault,metadata.name!%3Db timeoutSeconds=0)");
  return kAll;
}

const std::vector<std::string>& content_types() {
  static const std::vector<std::string> kAll = split(R"(
application/json application/merge-patch+json application/json-patch+json
application/apply-patch+yaml application/strategic-merge-patch+json application/yaml
application/vnd.kubernetes.protobuf text/plain)");
  return kAll;
}

const std::vector<std::string>& accepted() {
  static const std::vector<std::string> kAll = split(R"(
application/json;as=Table;v=v1;g=meta.k8s.io,application/json application/json */*
application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io
application/com.github.proto-openapi.spec.v2@v1.0+protobuf application/yaml)");
  return kAll;
}

const std::vector<std::string>& small_bodies() {
  static const std::vector<std::string> kAll = {
      "",
      "{}",
      "[]",
      "null",
      "0",
      R"({"spec": {"replicas": 2}})",
      R"({"metadata": {"resourceVersion": "{{version}}"}, "spec": {"replicas": 1}})",
      R"({"target": {"name": "n1"}})",
      R"({"kind": "Eviction", "deleteOptions": {"gracePeriodSeconds": 5}})",
      R"({"propagationPolicy": "Foreground"})",
      R"({"propagationPolicy": "Orphan"})",
      R"({"gracePeriodSeconds": 0})",
      R"({"preconditions": {"uid": "{{uid}}", "resourceVersion": "{{version}}"}})",
      R"({"dryRun": ["All"]})"};
  return kAll;
}

const std::vector<std::string>& keys() {
  static const std::vector<std::string> kAll = split(R"(
metadata spec status name namespace labels annotations finalizers ownerReferences uid
resourceVersion managedFields generateName a b l m k n nodes data stringData type kind
apiVersion containers env ports port clusterIP nodeName conditions phase versions schema
openAPIV3Schema properties items additionalProperties required default format pattern enum
minimum maxLength nullable x-kubernetes-list-type x-kubernetes-list-map-keys
x-kubernetes-preserve-unknown-fields x-kubernetes-int-or-string
x-kubernetes-embedded-resource x-kubernetes-map-type additionalPrinterColumns jsonPath
subresources scale specReplicasPath statusReplicasPath labelSelectorPath served storage
names scope group shortNames conversion fieldsV1 manager operation time fieldsType f:spec
f:metadata k:{"n":"a"} v:"a" . $patch $retainKeys $setElementOrder/containers
$deleteFromPrimitiveList/finalizers controller blockOwnerDeletion
terminationGracePeriodSeconds involvedObject regarding note message series count
lastTimestamp eventTime creationTimestamp deletionTimestamp deletionGracePeriodSeconds
target deleteOptions replicas gracePeriodSeconds propagationPolicy preconditions dryRun
immutable 0 1 - a/b ~ steps train command containerStatuses state taints capacity
holderIdentity renewTime leaseDurationSeconds selector waiting running terminated lastState
reason containerID initContainers initContainerStatuses targetPort protocol storedVersions
acceptedNames deprecated preserveUnknownFields oneOf allOf not x-kubernetes-validations
minItems uniqueItems backoffLimit resources addresses source component firstTimestamp
apiGroup)");
  return kAll;
}

const std::vector<std::string>& texts() {
  static const std::vector<std::string> kAll = split(R"(
a b c default object array string integer number boolean map set atomic date-time byte ^a+$
( .spec.a .status.n .spec.m.0 .metadata.labels["a"] .spec.k[?(@.n=="a")].v .spec.k[*].n
Namespaced Cluster Foreground Background Orphan All delete replace merge v1 v2 a.b things
Thing TrainingJob lockstep.dev/v1alpha1 Update Apply FieldsV1 foregroundDeletion
customresourcecleanup.apiextensions.k8s.io kubernetes x.dev/f 2026-01-02T03:04:05Z YQ== 5%
-1 True Running Succeeded None é Secret ExternalName a.example.org 10.96.0.1 local 1h null
{{uid}} {{version}} OnDelete 1 80 http 99999999999999999999 1e400 CrashLoopBackOff)");
  return kAll;
}

}  // namespace words

}  // namespace lockstep::fuzz
