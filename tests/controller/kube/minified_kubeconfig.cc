#include "tests/controller/kube/minified_kubeconfig.h"

#include "common/base/base64.h"

namespace lockstep::kube {
namespace {

void put(Json& object, const char* key, const std::string& value) {
  if (!value.empty()) object[key] = value;
}

void put_base64(Json& object, const char* key, const std::string& bytes) {
  if (!bytes.empty()) object[key] = base64_encode(bytes);
}

Json to_json(const KubeconfigCluster& cluster) {
  Json json = {{"server", cluster.server}};
  put(json, "tls-server-name", cluster.tls_server_name);
  if (cluster.insecure_skip_tls_verify) json["insecure-skip-tls-verify"] = true;
  put(json, "certificate-authority", cluster.certificate_authority);
  put_base64(json, "certificate-authority-data", cluster.certificate_authority_data);
  put(json, "proxy-url", cluster.proxy_url);
  return json;
}

Json to_json(const ExecPlugin& exec) {
  Json json = {{"apiVersion", exec.api_version}, {"command", exec.command}};
  json["args"] = exec.args.empty() ? Json() : Json(exec.args);
  json["env"] = Json();
  for (const auto& [name, value] : exec.env)
    json["env"].push_back({{"name", name}, {"value", value}});
  put(json, "installHint", exec.install_hint);
  put(json, "interactiveMode", exec.interactive_mode);
  json["provideClusterInfo"] = exec.provide_cluster_info;
  return json;
}

Json to_json(const KubeconfigUser& user) {
  Json json = Json::object();
  put(json, "client-certificate", user.client_certificate);
  put_base64(json, "client-certificate-data", user.client_certificate_data);
  put(json, "client-key", user.client_key);
  put_base64(json, "client-key-data", user.client_key_data);
  put(json, "token", user.token);
  put(json, "tokenFile", user.token_file);
  put(json, "as", user.as);
  put(json, "as-uid", user.as_uid);
  if (!user.as_groups.empty()) json["as-groups"] = user.as_groups;
  if (!user.as_user_extra.empty()) json["as-user-extra"] = user.as_user_extra;
  put(json, "username", user.username);
  put(json, "password", user.password);
  if (!user.auth_provider.empty()) json["auth-provider"] = {{"name", user.auth_provider}};
  if (user.exec) json["exec"] = to_json(*user.exec);
  return json;
}

Json to_json(const KubeconfigContext& context) {
  Json json = {{"cluster", context.cluster}, {"user", context.user}};
  put(json, "namespace", context.namespace_);
  return json;
}

}  // namespace

Result<Json> minified_kubeconfig(const Kubeconfig& config, const std::string& name) {
  const std::string& chosen = name.empty() ? config.current_context : name;
  if (chosen.empty()) return not_found("no current-context is set");
  const auto context = config.contexts.find(chosen);
  if (context == config.contexts.end())
    return not_found("context \"" + chosen + "\" does not exist");
  Json json = {{"kind", "Config"},         {"apiVersion", "v1"}, {"preferences", Json::object()},
               {"clusters", Json()},       {"users", Json()},    {"contexts", Json::array()},
               {"current-context", chosen}};
  json["contexts"].push_back({{"name", chosen}, {"context", to_json(context->second)}});
  const auto& [cluster_name, user_name, namespace_] = context->second;
  if (!cluster_name.empty()) {
    const auto cluster = config.clusters.find(cluster_name);
    if (cluster == config.clusters.end()) {
      return not_found("context \"" + chosen + "\": cluster \"" + cluster_name +
                       "\" does not exist");
    }
    json["clusters"].push_back({{"name", cluster_name}, {"cluster", to_json(cluster->second)}});
  }
  if (!user_name.empty()) {
    const auto user = config.users.find(user_name);
    if (user == config.users.end()) {
      return not_found("context \"" + chosen + "\": user \"" + user_name + "\" does not exist");
    }
    json["users"].push_back({{"name", user_name}, {"user", to_json(user->second)}});
  }
  return json;
}

}  // namespace lockstep::kube
