#include "controller/kube/kube_access.h"

#include <algorithm>
#include <charconv>

#include "common/base/base64.h"

namespace lockstep::kube {
namespace {

constexpr size_t kFileBytesMax = 4u << 20;

template <class T>
std::string names_of(const std::map<std::string, T>& entries) {
  std::string names;
  for (const auto& [name, entry] : entries) {
    if (names.size() > 500) return names + ", ...";
    names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? "none exist" : "available: " + names;
}

template <class T>
Result<T> entry(const std::map<std::string, T>& entries, const char* kind,
                const std::string& name) {
  const auto found = entries.find(name);
  if (found != entries.end()) return found->second;
  return not_found(std::string(kind) + " \"" + name + "\" does not exist (" + names_of(entries) +
                   ")");
}

bool has_control(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

// Checks that the URL is "scheme://[user@]host[:port][/path]".
Status check_url(const std::string& url, const std::string& where) {
  const Error bad = invalid(where + ": \"" + url + "\" is not a URL such as https://host:6443");
  const size_t scheme = url.find("://");
  if (scheme == std::string::npos) return bad;
  const std::string rest = url.substr(scheme + 3);
  std::string host = rest.substr(0, rest.find_first_of("/?#"));
  host = host.substr(host.rfind('@') == std::string::npos ? 0 : host.rfind('@') + 1);
  const size_t colon = host.find(':', host.starts_with('[') ? host.find(']') : 0);
  const std::string port = colon == std::string::npos ? "443" : host.substr(colon + 1);
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool is_port =
      error == std::errc() && end == port.data() + port.size() && number > 0 && number < 65536;
  const bool is_text = std::all_of(url.begin(), url.end(), [](char c) {
    return c > 0x20 && c < 0x7f && c != '"' && c != '<' && c != '>' && c != '\\';
  });
  if (host.substr(0, colon).empty() || !is_port || !is_text) return bad;
  return {};
}

Status check_files(const std::string& where, const char* file_field, const std::string& file,
                   const std::string& data) {
  if (file.empty() || data.empty()) return {};
  return invalid(where + ": " + file_field + " and " + file_field +
                 "-data are both given, expected only one of them");
}

Result<std::string> data_or_file(const std::string& where, const std::string& data,
                                 const std::string& file) {
  if (file.empty()) return data;
  Result<std::string> text = read_small_file(file, kFileBytesMax);
  if (!text.ok()) return invalid(where + ": " + text.error().message);
  return text;
}

Result<HttpServer> server_of(const std::string& name, const KubeconfigCluster& cluster) {
  const std::string where = "cluster \"" + name + "\"";
  HttpServer server{.url = cluster.server};
  if (server.url.empty()) return invalid(where + ": server is not set");
  if (server.url.find("://") == std::string::npos) server.url = "http://" + server.url;
  if (!server.url.starts_with("https://") && !server.url.starts_with("http://")) {
    return invalid(where + ": server: \"" + server.url + "\", expected http:// or https://");
  }
  TRY(check_url(server.url, where + ": server"));
  TRY(check_files(where, "certificate-authority", cluster.certificate_authority,
                  cluster.certificate_authority_data));
  TRY_ASSIGN(server.tls.ca_pem,
             data_or_file(where + ": certificate-authority", cluster.certificate_authority_data,
                          cluster.certificate_authority));
  server.tls.ca_file = cluster.certificate_authority;
  server.tls.server_name = cluster.tls_server_name;
  server.tls.verify = !cluster.insecure_skip_tls_verify;
  if (!server.tls.ca_pem.empty()) {
    if (!server.tls.verify) {
      return invalid(where +
                     ": certificate-authority and insecure-skip-tls-verify are both given, "
                     "expected only one of them");
    }
    const Status status = check_certificate_authority(server.tls.ca_pem);
    if (!status.ok()) return invalid(where + ": certificate-authority: " + status.error().message);
  }
  server.proxy_url = cluster.proxy_url;
  if (server.proxy_url.empty()) return server;
  if (!server.proxy_url.starts_with("http://")) {
    return invalid(where + ": proxy-url: \"" + server.proxy_url +
                   "\": expected an http:// proxy; others are not in this version");
  }
  TRY(check_url(server.proxy_url, where + ": proxy-url"));
  return server;
}

// Returns the ExecCredential's spec.cluster.
Json cluster_for_plugin(const KubeconfigCluster& cluster, const HttpServer& server) {
  Json json = {{"server", cluster.server}, {"config", Json()}};
  if (!cluster.tls_server_name.empty()) json["tls-server-name"] = cluster.tls_server_name;
  if (cluster.insecure_skip_tls_verify) json["insecure-skip-tls-verify"] = true;
  if (!server.tls.ca_pem.empty()) {
    json["certificate-authority-data"] = base64_encode(server.tls.ca_pem);
  }
  if (!cluster.proxy_url.empty()) json["proxy-url"] = cluster.proxy_url;
  return json;
}

// Percent-encodes what header names may not contain, as client-go does.
std::string header_key(const std::string& key) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) ||
        (c != '\0' && std::string_view("!#$&'*+-.^_`|~").find(c) != std::string_view::npos)) {
      out += c;
    } else {
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

Result<std::vector<HttpField>> impersonation(const std::string& where, const KubeconfigUser& user) {
  std::vector<HttpField> fields;
  if (user.as.empty()) {
    if (user.as_uid.empty() && user.as_groups.empty() && user.as_user_extra.empty()) return fields;
    return invalid(where + ": as-uid, as-groups and as-user-extra need `as`");
  }
  fields.push_back({"Impersonate-User", user.as});
  if (!user.as_uid.empty()) fields.push_back({"Impersonate-Uid", user.as_uid});
  for (const std::string& group : user.as_groups) fields.push_back({"Impersonate-Group", group});
  for (const auto& [key, values] : user.as_user_extra) {
    for (const std::string& value : values) {
      fields.push_back({"Impersonate-Extra-" + header_key(key), value});
    }
  }
  for (const HttpField& field : fields) {
    if (has_control(field.value))
      return invalid(where + ": " + field.name + ": expected no control characters");
  }
  return fields;
}

Status check_methods(const std::string& where, const KubeconfigUser& user) {
  const bool has_basic = !user.username.empty() || !user.password.empty();
  const bool has_token = !user.token.empty() || !user.token_file.empty();
  if (has_basic && has_token) {
    return invalid(where + ": both a token and a user name are given, expected only one of them");
  }
  if (!user.auth_provider.empty()) {
    return invalid(where + ": auth-provider \"" + user.auth_provider +
                   "\" is not in this version; use an exec plugin");
  }
  if (has_control(user.token) || has_control(user.username)) {
    return invalid(where + ": expected no control characters in the token and the user name");
  }
  return {};
}

Status add_certificate(const std::string& where, const KubeconfigUser& user, TlsOptions& tls) {
  if (user.client_certificate.empty() && user.client_certificate_data.empty()) return {};
  TRY(check_files(where, "client-certificate", user.client_certificate,
                  user.client_certificate_data));
  TRY(check_files(where, "client-key", user.client_key, user.client_key_data));
  if (user.client_key.empty() && user.client_key_data.empty()) {
    return invalid(where + ": client-certificate needs client-key or client-key-data");
  }
  TRY_ASSIGN(tls.certificate_pem,
             data_or_file(where + ": client-certificate", user.client_certificate_data,
                          user.client_certificate));
  TRY_ASSIGN(tls.key_pem,
             data_or_file(where + ": client-key", user.client_key_data, user.client_key));
  tls.certificate_file = user.client_certificate;
  tls.key_file = user.client_key;
  const Status status = check_client_certificate(tls.certificate_pem, tls.key_pem);
  return status.ok() ? status : invalid(where + ": client-certificate: " + status.error().message);
}

Status add_user(const std::string& name, const KubeconfigUser& user,
                const KubeconfigCluster& cluster, KubeAccess& access) {
  const std::string where = "user \"" + name + "\"";
  CredentialOptions& credentials = access.credentials;
  TRY_ASSIGN(credentials.fields, impersonation(where, user));
  TRY(check_methods(where, user));
  if (!access.server.url.starts_with("https://")) return {};
  TRY(add_certificate(where, user, access.server.tls));
  credentials.token = user.token;
  credentials.username = user.username;
  credentials.password = user.password;
  if (!user.token_file.empty()) {
    const Result<std::string> token = read_small_file(user.token_file);
    if (!token.ok() && user.token.empty()) {
      return invalid(where + ": tokenFile: " + token.error().message);
    }
    if (token.ok()) credentials.token_file = user.token_file;
  }
  const bool has_other = !user.token.empty() || !user.token_file.empty() ||
                         !user.username.empty() || !user.password.empty();
  if (!user.exec || has_other) return {};
  credentials.exec = user.exec;
  credentials.exec_cluster = cluster_for_plugin(cluster, access.server);
  Result<ExecCredential> first = run_exec_plugin(*user.exec, credentials.exec_cluster);
  if (!first.ok()) return Error{first.error().code, where + ": " + first.error().message};
  if (!first->certificate_pem.empty()) {
    const Status status = check_client_certificate(first->certificate_pem, first->key_pem);
    if (!status.ok()) return invalid(where + ": exec: " + status.error().message);
    access.server.tls.certificate_pem = first->certificate_pem;
    access.server.tls.key_pem = first->key_pem;
  }
  credentials.exec_first = std::move(first).value();
  return {};
}

}  // namespace

Result<KubeAccess> kube_access(const Kubeconfig& config, const KubeOverrides& overrides) {
  KubeAccess access;
  const std::string& context_name =
      overrides.context.empty() ? config.current_context : overrides.context;
  KubeconfigContext context;
  if (!context_name.empty()) {
    TRY_ASSIGN(context, entry(config.contexts, "context", context_name));
  } else if (overrides.cluster.empty()) {
    return not_found("no current-context is set in the kubeconfig (" + names_of(config.contexts) +
                     "); choose one with --context");
  }
  const std::string cluster_name = overrides.cluster.empty() ? context.cluster : overrides.cluster;
  const std::string user_name = overrides.user.empty() ? context.user : overrides.user;
  TRY_ASSIGN(const KubeconfigCluster cluster, entry(config.clusters, "cluster", cluster_name));
  TRY_ASSIGN(access.server, server_of(cluster_name, cluster));
  if (!context.namespace_.empty()) access.namespace_ = context.namespace_;
  if (!overrides.namespace_.empty()) access.namespace_ = overrides.namespace_;
  if (user_name.empty()) return access;
  TRY_ASSIGN(const KubeconfigUser user, entry(config.users, "user", user_name));
  TRY(add_user(user_name, user, cluster, access));
  return access;
}

std::string lease_namespace(const LeaseNamespace& sources) {
  for (const std::string* source : {&sources.of_pod, &sources.of_flag, &sources.of_context}) {
    if (!source->empty()) return *source;
  }
  return "default";
}

}  // namespace lockstep::kube
