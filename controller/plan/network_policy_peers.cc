#include "controller/plan/network_policy_peers.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace lockstep::plan {
namespace {

// Every server from Kubernetes 1.21 on labels each namespace with its name.
constexpr char kNamespaceNameLabel[] = "kubernetes.io/metadata.name";

// A member of a peer, and the members that it may have itself.
struct Part {
  std::string_view name;
  std::string_view object;  // its only member that is an object of texts; empty: none
  std::string_view text;    // its only member that is a text
  std::string_view list;
};
constexpr Part kParts[] = {{"podSelector", "matchLabels", "", "matchExpressions"},
                           {"namespaceSelector", "matchLabels", "", "matchExpressions"},
                           {"ipBlock", "", "cidr", "except"}};

bool are_texts(const Json& values) {
  return std::all_of(values.begin(), values.end(),
                     [](const Json& value) { return value.is_string(); });
}

bool is_expression(const Json& value) {
  if (!value.is_object()) return false;
  for (const auto& [key, member] : value.items()) {
    const bool is_known_text = (key == "key" || key == "operator") && member.is_string();
    const bool is_known_list = key == "values" && member.is_array() && are_texts(member);
    if (!is_known_text && !is_known_list) return false;
  }
  return true;
}

bool is_known(const Part& part, const std::string& key, const Json& value) {
  if (key == part.object) return value.is_object() && are_texts(value);
  if (key == part.text) return value.is_string();
  if (key != part.list || !value.is_array()) return false;
  return part.object.empty() ? are_texts(value) : std::ranges::all_of(value, is_expression);
}

// Returns the list without its elements' empty lists of values, which a server does not store.
Json without_empty_values(const Json& list) {
  Json kept = list;
  for (Json& element : kept) {
    const Json* values = find_member(element, "values");
    if (values != nullptr && values->empty()) element.erase("values");
  }
  return kept;
}

// Returns the part without its empty members, which a server does not store.
Result<Json> read_part(const Part& part, const Json& value) {
  if (!value.is_object())
    return invalid(std::string(part.name) + ": found " + dump_json(value) + ", expected an object");
  Json kept = Json::object();
  for (const auto& [key, member] : value.items()) {
    if (!is_known(part, key, member)) {
      return invalid(std::string(part.name) + "." + key + ": found " + dump_json(member) +
                     ", which is not a member of a NetworkPolicyPeer");
    }
    if (!member.empty()) kept[key] = without_empty_values(member);
  }
  return kept;
}

Result<Json> read_peer(const Json& peer) {
  if (!peer.is_object() || peer.empty())
    return invalid("found " + dump_json(peer) + ", expected an object with a selector or ipBlock");
  Json kept = Json::object();
  for (const auto& [key, value] : peer.items()) {
    const auto part = std::find_if(std::begin(kParts), std::end(kParts),
                                   [&key = key](const Part& each) { return each.name == key; });
    if (part == std::end(kParts)) {
      return invalid("found \"" + key + "\", expected podSelector, namespaceSelector or ipBlock");
    }
    TRY_ASSIGN(kept[key], read_part(*part, value));
  }
  return kept;
}

}  // namespace

Result<Json> read_network_policy_peers(const std::string& text) {
  TRY_ASSIGN(const Json list, parse_json(text));
  if (!list.is_array()) return invalid("found " + text + ", expected a JSON list");
  Json peers = Json::array();
  for (const Json& one : list) {
    Result<Json> peer = read_peer(one);
    if (!peer.ok())
      return invalid("peer " + std::to_string(peers.size()) + ": " + peer.error().message);
    peers.push_back(*std::move(peer));
  }
  return peers;
}

Json controller_peer(const std::string& controller_namespace) {
  return {{"namespaceSelector", {{"matchLabels", {{kNamespaceNameLabel, controller_namespace}}}}},
          {"podSelector",
           {{"matchLabels",
             {{"app.kubernetes.io/name", "lockstep"},
              {"app.kubernetes.io/component", "controller"}}}}}};
}

}  // namespace lockstep::plan
