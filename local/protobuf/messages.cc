#include "local/protobuf/messages.h"

namespace lockstep::local {
namespace {

using enum FieldType;

constexpr bool kRepeated = true;
constexpr bool kKeepsZero = true;

const Message& owner_reference() {
  static const Message message{{{1, "kind"},
                                {3, "name"},
                                {4, "uid"},
                                {5, "apiVersion"},
                                {6, "controller", kBoolean, false, kKeepsZero},
                                {7, "blockOwnerDeletion", kBoolean, false, kKeepsZero}}};
  return message;
}

const Message& managed_fields_entry() {
  static const Message message{{{1, "manager"},
                                {2, "operation"},
                                {3, "apiVersion"},
                                {4, "time", kTime},
                                {6, "fieldsType"},
                                {7, "fieldsV1", kRawJson},
                                {8, "subresource"}}};
  return message;
}

const Message& object_meta() {
  static const Message message{
      {{1, "name"},
       {2, "generateName"},
       {3, "namespace"},
       {5, "uid"},
       {6, "resourceVersion"},
       {7, "generation", kInteger},
       {8, "creationTimestamp", kTime},
       {9, "deletionTimestamp", kTime},
       {10, "deletionGracePeriodSeconds", kInteger, false, kKeepsZero},
       {11, "labels", kStringMap},
       {12, "annotations", kStringMap},
       {13, "ownerReferences", kMessage, kRepeated, false, &owner_reference()},
       {14, "finalizers", kString, kRepeated},
       {17, "managedFields", kMessage, kRepeated, false, &managed_fields_entry()}}};
  return message;
}

MessageField metadata() {
  return {1, "metadata", kMessage, false, false, &object_meta()};
}

const Message& name_space() {
  static const Message spec{{{1, "finalizers", kString, kRepeated}}};
  static const Message status{{{1, "phase"}}};
  static const Message message{{metadata(),
                                {2, "spec", kMessage, false, false, &spec},
                                {3, "status", kMessage, false, false, &status}}};
  return message;
}

const Message& config_map() {
  static const Message message{{metadata(),
                                {2, "data", kStringMap},
                                {3, "binaryData", kBytesMap},
                                {4, "immutable", kBoolean, false, kKeepsZero}}};
  return message;
}

const Message& secret() {
  static const Message message{{metadata(),
                                {2, "data", kBytesMap},
                                {3, "type"},
                                {4, "stringData", kStringMap},
                                {5, "immutable", kBoolean, false, kKeepsZero}}};
  return message;
}

const Message& service_spec() {
  static const Message port{{{1, "name"},
                             {2, "protocol"},
                             {3, "port", kInteger},
                             {4, "targetPort", kIntOrString},
                             {5, "nodePort", kInteger},
                             {6, "appProtocol"}}};
  static const Message message{{{1, "ports", kMessage, kRepeated, false, &port},
                                {2, "selector", kStringMap},
                                {3, "clusterIP"},
                                {4, "type"},
                                {5, "externalIPs", kString, kRepeated},
                                {7, "sessionAffinity"},
                                {8, "loadBalancerIP"},
                                {9, "loadBalancerSourceRanges", kString, kRepeated},
                                {10, "externalName"},
                                {11, "externalTrafficPolicy"},
                                {12, "healthCheckNodePort", kInteger},
                                {13, "publishNotReadyAddresses", kBoolean},
                                {17, "ipFamilyPolicy"},
                                {18, "clusterIPs", kString, kRepeated},
                                {19, "ipFamilies", kString, kRepeated},
                                {20, "allocateLoadBalancerNodePorts", kBoolean, false, kKeepsZero},
                                {21, "loadBalancerClass"},
                                {22, "internalTrafficPolicy"},
                                {23, "trafficDistribution"}}};
  return message;
}

const Message& service() {
  static const Message message{{metadata(), {2, "spec", kMessage, false, false, &service_spec()}}};
  return message;
}

const Message& delete_options() {
  static const Message preconditions{{{1, "uid"}, {2, "resourceVersion"}}};
  static const Message message{{{1, "gracePeriodSeconds", kInteger, false, kKeepsZero},
                                {2, "preconditions", kMessage, false, false, &preconditions},
                                {3, "orphanDependents", kBoolean, false, kKeepsZero},
                                {4, "propagationPolicy"},
                                {5, "dryRun", kString, kRepeated}}};
  return message;
}

const Message& access_review() {
  static const Message resource{{{1, "namespace"},
                                 {2, "verb"},
                                 {3, "group"},
                                 {4, "version"},
                                 {5, "resource"},
                                 {6, "subresource"},
                                 {7, "name"}}};
  static const Message path{{{1, "path"}, {2, "verb"}}};
  static const Message spec{{{1, "resourceAttributes", kMessage, false, false, &resource},
                             {2, "nonResourceAttributes", kMessage, false, false, &path}}};
  static const Message message{{metadata(), {2, "spec", kMessage, false, false, &spec}}};
  return message;
}

// Its status is for the server to fill in.
const Message& subject_review() {
  static const Message message{{metadata()}};
  return message;
}

const Message& rules_review() {
  static const Message spec{{{1, "namespace"}}};
  static const Message message{{metadata(), {2, "spec", kMessage, false, false, &spec}}};
  return message;
}

}  // namespace

const Message* find_message(std::string_view api_version, std::string_view kind) {
  // DeleteOptions have the version of the request's group, which can be any.
  if (kind == "DeleteOptions") return &delete_options();
  if (api_version == "authorization.k8s.io/v1") {
    if (kind == "SelfSubjectAccessReview") return &access_review();
    return kind == "SelfSubjectRulesReview" ? &rules_review() : nullptr;
  }
  if (api_version == "authentication.k8s.io/v1") {
    return kind == "SelfSubjectReview" ? &subject_review() : nullptr;
  }
  if (api_version != "v1") return nullptr;
  if (kind == "Namespace") return &name_space();
  if (kind == "ConfigMap") return &config_map();
  if (kind == "Secret") return &secret();
  if (kind == "Service") return &service();
  return nullptr;
}

}  // namespace lockstep::local
