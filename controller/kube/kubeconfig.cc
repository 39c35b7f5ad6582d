#include "controller/kube/kubeconfig.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "common/api/yaml.h"
#include "common/base/base64.h"
#include "controller/kube/bearer_token_file.h"

namespace lockstep::kube {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKubeconfigBytesMax = 4u << 20;
constexpr size_t kFilesMax = 64;
constexpr char kExecV1[] = "client.authentication.k8s.io/v1";  // has no default interactiveMode

// One level of a document, and its path. Absent fields and nulls leave the default; unknown fields
// are ignored; a wrong type is an error that names the field.
class Fields {
 public:
  Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

  // `value` must outlive the result.
  static Result<Fields> of(const Json& value, std::string path) {
    static const Json empty = Json::object();
    if (value.is_null()) return Fields(empty, std::move(path));
    if (!value.is_object())
      return invalid(path + ": found " + value.type_name() + ", expected a map");
    return Fields(value, std::move(path));
  }

  const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  std::string at(const char* key) const { return path_.empty() ? key : path_ + "." + key; }

  Status read(const char* key, std::string& out) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string())
      return wrong(key, *value, "a string (in quotes, if it looks like a number)");
    out = value->get<std::string>();
    return {};
  }
  Status read(const char* key, bool& out) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_boolean()) return wrong(key, *value, "true or false");
    out = value->get<bool>();
    return {};
  }
  Status read(const char* key, std::vector<std::string>& out) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_array()) return wrong(key, *value, "a list of strings");
    for (const Json& item : *value) {
      if (!item.is_string()) return wrong(key, item, "strings in the list");
      out.push_back(item.get<std::string>());
    }
    return {};
  }
  Status read_base64(const char* key, std::string& out) const {
    std::string text;
    TRY(read(key, text));
    std::erase_if(text, [](char c) { return c == '\n' || c == '\r'; });
    Result<std::string> bytes = base64_decode(text);
    if (!bytes.ok()) return invalid(at(key) + ": not base64: " + bytes.error().message);
    out = std::move(bytes).value();
    return {};
  }
  Status read_path(const char* key, const std::string& folder, std::string& out) const {
    TRY(read(key, out));
    if (!out.empty()) out = (fs::path(folder) / out).lexically_normal().string();
    return {};
  }

 private:
  Error wrong(const char* key, const Json& value, const char* expected) const {
    return invalid(at(key) + ": found " + value.type_name() + ", expected " + expected);
  }

  const Json& object_;
  std::string path_;
};

Result<KubeconfigCluster> read_cluster(const Fields& fields, const std::string& folder) {
  KubeconfigCluster cluster;
  TRY(fields.read("server", cluster.server));
  TRY(fields.read("tls-server-name", cluster.tls_server_name));
  TRY(fields.read("proxy-url", cluster.proxy_url));
  TRY(fields.read("insecure-skip-tls-verify", cluster.insecure_skip_tls_verify));
  TRY(fields.read_path("certificate-authority", folder, cluster.certificate_authority));
  TRY(fields.read_base64("certificate-authority-data", cluster.certificate_authority_data));
  return cluster;
}

Result<ExecPlugin> read_exec(const Json& value, const std::string& path,
                             const std::string& folder) {
  ExecPlugin plugin;
  TRY_ASSIGN(const Fields fields, Fields::of(value, path));
  TRY(fields.read("apiVersion", plugin.api_version));
  TRY(fields.read("command", plugin.command));
  TRY(fields.read("args", plugin.args));
  TRY(fields.read("installHint", plugin.install_hint));
  TRY(fields.read("interactiveMode", plugin.interactive_mode));
  TRY(fields.read("provideClusterInfo", plugin.provide_cluster_info));
  if (plugin.interactive_mode.empty() && plugin.api_version != kExecV1) {
    plugin.interactive_mode = "IfAvailable";
  }
  if (plugin.command.find('/') != std::string::npos) {
    plugin.command = (fs::path(folder) / plugin.command).lexically_normal().string();
  }
  const Json* env = fields.find("env");
  if (env == nullptr) return plugin;
  if (!env->is_array())
    return invalid(fields.at("env") + ": expected a list of entries with name and value");
  for (size_t i = 0; i < env->size(); ++i) {
    TRY_ASSIGN(const Fields item,
               Fields::of((*env)[i], fields.at("env") + "[" + std::to_string(i) + "]"));
    std::pair<std::string, std::string> variable;
    TRY(item.read("name", variable.first));
    TRY(item.read("value", variable.second));
    plugin.env.push_back(std::move(variable));
  }
  return plugin;
}

Status read_extra(const Fields& fields, KubeconfigUser& user) {
  const Json* extra = fields.find("as-user-extra");
  if (extra == nullptr) return {};
  TRY_ASSIGN(const Fields values, Fields::of(*extra, fields.at("as-user-extra")));
  for (const auto& [key, value] : extra->items()) {
    TRY(values.read(key.c_str(), user.as_user_extra[key]));
  }
  return {};
}

Result<KubeconfigUser> read_user(const Fields& fields, const std::string& folder) {
  KubeconfigUser user;
  TRY(fields.read_path("client-certificate", folder, user.client_certificate));
  TRY(fields.read_base64("client-certificate-data", user.client_certificate_data));
  TRY(fields.read_path("client-key", folder, user.client_key));
  TRY(fields.read_base64("client-key-data", user.client_key_data));
  TRY(fields.read("token", user.token));
  TRY(fields.read_path("tokenFile", folder, user.token_file));
  TRY(fields.read("username", user.username));
  TRY(fields.read("password", user.password));
  TRY(fields.read("as", user.as));
  TRY(fields.read("as-uid", user.as_uid));
  TRY(fields.read("as-groups", user.as_groups));
  TRY(read_extra(fields, user));
  if (const Json* provider = fields.find("auth-provider")) {
    TRY_ASSIGN(const Fields of, Fields::of(*provider, fields.at("auth-provider")));
    TRY(of.read("name", user.auth_provider));
    if (user.auth_provider.empty()) user.auth_provider = "(no name)";
  }
  if (const Json* exec = fields.find("exec")) {
    TRY_ASSIGN(user.exec, read_exec(*exec, fields.at("exec"), folder));
  }
  return user;
}

Result<KubeconfigContext> read_context(const Fields& fields, const std::string&) {
  KubeconfigContext context;
  TRY(fields.read("cluster", context.cluster));
  TRY(fields.read("user", context.user));
  TRY(fields.read("namespace", context.namespace_));
  return context;
}

// Reads a list of {name, <inner>}: clusters/cluster, users/user, contexts/context.
template <class T>
Status read_named(const Fields& root, const char* list, const char* inner,
                  Result<T> (*read)(const Fields&, const std::string&), const std::string& folder,
                  std::map<std::string, T>& out) {
  const Json* items = root.find(list);
  if (items == nullptr) return {};
  if (!items->is_array())
    return invalid(std::string(list) + ": expected a list of entries with name and " + inner);
  for (size_t i = 0; i < items->size(); ++i) {
    const std::string path = std::string(list) + "[" + std::to_string(i) + "]";
    TRY_ASSIGN(const Fields item, Fields::of((*items)[i], path));
    std::string name;
    TRY(item.read("name", name));
    static const Json null;
    const Json* value = item.find(inner);
    TRY_ASSIGN(const Fields fields, Fields::of(value == nullptr ? null : *value, item.at(inner)));
    TRY_ASSIGN(T entry, read(fields, folder));
    if (!out.emplace(name, std::move(entry)).second) {
      return invalid(path + ".name: \"" + name + "\" is listed twice");
    }
  }
  return {};
}

Status check_kind(const Fields& root) {
  std::string version = "v1", kind = "Config";
  TRY(root.read("apiVersion", version));
  TRY(root.read("kind", kind));
  if (!version.empty() && version != "v1") {
    return invalid("apiVersion: found \"" + version + "\", expected v1");
  }
  if (!kind.empty() && kind != "Config") {
    return invalid("kind: found \"" + kind + "\", expected Config");
  }
  return {};
}

// Returns whether the text has only comments and white space.
bool is_blank(const std::string& text) {
  bool in_comment = false;
  for (const char c : text) {
    if (c == '\n') in_comment = false;
    if (c == '#') in_comment = true;
    if (!in_comment && c != ' ' && c != '\t' && c != '\r' && c != '\n') return false;
  }
  return true;
}

Result<Json> parse_document(const std::string& text) {
  if (is_blank(text)) return Json::object();
  if (text[text.find_first_not_of(" \t\r\n")] == '{') {
    Result<Json> json = parse_json(text, {.bytes_max = kKubeconfigBytesMax, .depth_max = 32});
    if (json.ok()) return json;
  }
  return json_from_yaml(text, {.bytes_max = kKubeconfigBytesMax, .values_max = 200'000});
}

std::string absolute(const std::string& path, const std::string& folder) {
  return (fs::path(folder) / path).lexically_normal().string();
}

}  // namespace

std::vector<std::string> kubeconfig_files(const KubeconfigSources& sources) {
  if (!sources.explicit_file.empty()) {
    return {absolute(sources.explicit_file, sources.working_folder)};
  }
  if (sources.environment.empty()) {
    if (sources.home.empty()) return {};
    return {absolute(sources.home, sources.working_folder) + "/.kube/config"};
  }
  std::vector<std::string> files;
  size_t begin = 0;
  while (begin <= sources.environment.size()) {
    const size_t end = std::min(sources.environment.find(':', begin), sources.environment.size());
    const std::string file = sources.environment.substr(begin, end - begin);
    begin = end + 1;
    if (file.empty()) continue;
    const std::string path = absolute(file, sources.working_folder);
    if (std::find(files.begin(), files.end(), path) == files.end()) files.push_back(path);
  }
  return files;
}

Result<Kubeconfig> parse_kubeconfig(const std::string& text, const std::string& folder) {
  TRY_ASSIGN(const Json document, parse_document(text));
  TRY_ASSIGN(const Fields root, Fields::of(document, ""));
  TRY(check_kind(root));
  Kubeconfig config;
  TRY(root.read("current-context", config.current_context));
  TRY(read_named(root, "clusters", "cluster", read_cluster, folder, config.clusters));
  TRY(read_named(root, "users", "user", read_user, folder, config.users));
  TRY(read_named(root, "contexts", "context", read_context, folder, config.contexts));
  return config;
}

Result<Kubeconfig> load_kubeconfig(const KubeconfigSources& sources) {
  const std::vector<std::string> files = kubeconfig_files(sources);
  if (files.size() > kFilesMax) {
    return invalid("KUBECONFIG: names " + std::to_string(files.size()) +
                   " files, expected at most " + std::to_string(kFilesMax));
  }
  Kubeconfig all;
  for (const std::string& file : files) {
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0 && errno == ENOENT) {
      if (sources.explicit_file.empty()) continue;
      return not_found("--kubeconfig: the file " + file + " does not exist");
    }
    if (S_ISDIR(info.st_mode))
      return invalid("kubeconfig " + file + ": expected a file, found a folder");
    Result<std::string> text = read_small_file(file, kKubeconfigBytesMax);
    if (!text.ok()) return invalid("kubeconfig " + file + ": " + text.error().message);
    Result<Kubeconfig> one = parse_kubeconfig(*text, fs::path(file).parent_path().string());
    if (!one.ok()) return invalid("kubeconfig " + file + ": " + one.error().message);
    // Existing entries win.
    all.clusters.merge(one->clusters);
    all.users.merge(one->users);
    all.contexts.merge(one->contexts);
    if (all.current_context.empty()) all.current_context = one->current_context;
  }
  return all;
}

}  // namespace lockstep::kube
