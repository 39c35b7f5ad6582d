#include "tests/conformance/support/target.h"

#include <filesystem>

#include "controller/kube/kube_access.h"

namespace lockstep::conformance {

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

Result<Target> target_from_kubeconfig(const std::string& file, const std::string& context) {
  TRY_ASSIGN(kube::Kubeconfig config,
             kube::load_kubeconfig({.explicit_file = file,
                                    .environment = "",
                                    .home = "",
                                    .working_folder = std::filesystem::current_path().string()}));
  TRY_ASSIGN(kube::KubeAccess access, kube::kube_access(config, {.context = context}));
  if (!access.server.proxy_url.empty())
    return invalid(
        "[kubeconfig] expected no proxy-url, found one; the suite does not support proxies");
  Target target;
  TRY_ASSIGN(target.endpoint, parse_url(access.server.url));
  const std::string& url = access.server.url;
  size_t path = url.find('/', url.find("://") + 3);
  if (path != std::string::npos) target.path_prefix = url.substr(path);
  while (target.path_prefix.ends_with('/')) target.path_prefix.pop_back();
  kube::TlsOptions& tls = access.server.tls;
  target.endpoint.server_name = tls.server_name;
  target.endpoint.verify = tls.verify;
  target.endpoint.ca_pem = std::move(tls.ca_pem);
  target.endpoint.certificate_pem = std::move(tls.certificate_pem);
  target.endpoint.key_pem = std::move(tls.key_pem);
  SystemClock clock;
  kube::Credentials credentials(std::move(access.credentials), clock);
  if (const std::string& text = credentials.authorization(); !text.empty())
    target.headers["Authorization"] = text;
  for (const kube::HttpField& field : credentials.fields()) {
    if (!target.headers.emplace(field.name, field.value).second)
      return invalid("[kubeconfig] " + field.name + ": expected one value, found several");
  }
  return target;
}

}  // namespace lockstep::conformance
