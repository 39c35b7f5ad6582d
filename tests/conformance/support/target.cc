#include "tests/conformance/support/target.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/api/yaml.h"
#include "common/base/base64.h"

namespace lockstep::conformance {
namespace {

// `contexts: [{name: x, context: {...}}]`: the part called `part` of the entry with that name.
Result<Json> named(const Json& config, const char* list, const std::string& name,
                   const char* part) {
  const Json* entries = find_member(config, list);
  if (entries != nullptr && entries->is_array()) {
    for (const Json& entry : *entries) {
      if (string_or(entry, "name", "") == name && entry.contains(part)) return entry[part];
    }
  }
  return not_found(std::string("[kubeconfig] ") + list + ": expected an entry named \"" + name +
                   "\"");
}

// `key`-data in base64, else the file that `key` names, relative to the kubeconfig's folder.
Result<std::string> material(const Json& owner, const std::string& key,
                             const std::filesystem::path& folder) {
  if (std::string data = string_or(owner, key + "-data", ""); !data.empty())
    return base64_decode(data);
  std::string name = string_or(owner, key, "");
  if (name.empty()) return std::string();
  std::ifstream file(folder / name, std::ios::binary);
  if (!file) return not_found("[kubeconfig] " + key + ": can't read " + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

Result<Endpoint> parse_url(const std::string& url) {
  Endpoint endpoint;
  size_t begin = url.find("://");
  std::string scheme = begin == std::string::npos ? "" : url.substr(0, begin);
  if (scheme != "http" && scheme != "https")
    return invalid("[server] expected http:// or https://, found \"" + url + "\"");
  endpoint.tls = scheme == "https";
  std::string rest = url.substr(begin + 3);
  rest = rest.substr(0, rest.find('/'));
  size_t colon = rest.rfind(':');
  if (colon == std::string::npos || rest.ends_with(']')) {
    endpoint.host = rest;
    endpoint.port = endpoint.tls ? "443" : "80";
  } else {
    endpoint.host = rest.substr(0, colon);
    endpoint.port = rest.substr(colon + 1);
  }
  if (endpoint.host.starts_with('['))
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  return endpoint;
}

Result<Target> target_from_kubeconfig(const std::string& file) {
  TRY_ASSIGN(Json config, read_document(file));
  std::filesystem::path folder = std::filesystem::path(file).parent_path();
  TRY_ASSIGN(Json context,
             named(config, "contexts", string_or(config, "current-context", ""), "context"));
  TRY_ASSIGN(Json cluster, named(config, "clusters", string_or(context, "cluster", ""), "cluster"));
  TRY_ASSIGN(Json user, named(config, "users", string_or(context, "user", ""), "user"));
  Target target;
  TRY_ASSIGN(target.endpoint, parse_url(string_or(cluster, "server", "")));
  target.endpoint.server_name = string_or(cluster, "tls-server-name", "");
  target.endpoint.verify = !bool_or(cluster, "insecure-skip-tls-verify", false);
  TRY_ASSIGN(target.endpoint.ca_pem, material(cluster, "certificate-authority", folder));
  TRY_ASSIGN(target.endpoint.certificate_pem, material(user, "client-certificate", folder));
  TRY_ASSIGN(target.endpoint.key_pem, material(user, "client-key", folder));
  target.token = string_or(user, "token", "");
  if (std::string name = string_or(user, "tokenFile", ""); !name.empty()) {
    std::ifstream token_file(folder / name);
    if (!(token_file >> target.token))
      return not_found("[kubeconfig] tokenFile: can't read " + name);
  }
  return target;
}

}  // namespace lockstep::conformance
