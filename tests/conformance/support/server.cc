#include "tests/conformance/support/server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace lockstep::conformance {
namespace {

std::unique_ptr<Server> the_server;

constexpr double kProbeSeconds = 10;
// Resources that the suite's cases leave in their namespaces.
constexpr const char* kSwept[] = {"pods",     "secrets", "configmaps",     "events",
                                  "services", "leases",  "serviceaccounts"};

std::string prefix_of(const std::string& group_version) {
  return (group_version.find('/') == std::string::npos ? "/api/" : "/apis/") + group_version;
}

void finish_namespace(const std::string& name) {
  const std::string path = "/api/v1/namespaces/" + name;
  for (const char* plural : kSwept) {
    std::string prefix =
        std::string(plural) == "leases" ? "/apis/coordination.k8s.io/v1" : "/api/v1";
    (void)server().ask("DELETE",
                       prefix + "/namespaces/" + name + "/" + plural + "?gracePeriodSeconds=0");
  }
  Json object = server().ask("GET", path).body;
  if (!object.is_object() || !object.contains("spec")) return;
  object["spec"]["finalizers"] = Json::array();
  (void)server().ask("PUT", path + "/finalize", object);
}

}  // namespace

Server::Server(Target target) : target_(std::move(target)) {}

Reply Server::send_bare(const Request& request) const {
  Request prefixed = request;
  prefixed.target = target_.path_prefix + request.target;
  Result<Reply> reply = exchange(target_.endpoint, prefixed);
  if (!reply.ok()) {
    ADD_FAILURE() << request.method << " " << request.target << ": " << reply.error().message;
    return {};
  }
  return *std::move(reply);
}

Reply Server::send(Request request) const {
  request.headers.insert(target_.headers.begin(), target_.headers.end());
  request.headers.try_emplace("Accept", "application/json");
  request.headers.try_emplace("User-Agent", "lockstep-conformance");
  return send_bare(request);
}

Reply Server::ask(const std::string& method, const std::string& target, const Json& body,
                  const std::string& content_type) const {
  Request request{.method = method, .target = target};
  if (!body.is_null()) {
    request.headers["Content-Type"] = content_type;
    request.body = dump_json(body);
  }
  return send(std::move(request));
}

Result<std::unique_ptr<ReplyStream>> Server::open(const std::string& target,
                                                  const std::string& accept) const {
  Request request{.target = target_.path_prefix + target, .headers = target_.headers};
  request.headers["Accept"] = accept;
  return ReplyStream::open(target_.endpoint, request);
}

bool Server::serves(const std::string& group_version, const std::string& resource) const {
  Reply list = ask("GET", prefix_of(group_version));
  if (list.code != 200) return false;
  for (const Json& one : list.body.value("resources", Json::array())) {
    if (string_or(one, "name", "") == resource) return true;
  }
  return false;
}

bool Server::collects_garbage() {
  if (collects_garbage_ >= 0) return collects_garbage_ == 1;
  const std::string secrets = "/api/v1/namespaces/default/secrets";
  Json owner = ask("POST", secrets, {{"metadata", {{"generateName", "conformance-owner-"}}}}).body;
  if (!owner.contains("metadata")) return false;
  Json reference = {{"apiVersion", "v1"},
                    {"kind", "Secret"},
                    {"name", owner["metadata"]["name"]},
                    {"uid", owner["metadata"]["uid"]}};
  std::string name = owner["metadata"]["name"];
  Json owned = {
      {"metadata", {{"name", name + "-owned"}, {"ownerReferences", Json::array({reference})}}}};
  (void)ask("POST", secrets, owned);
  (void)ask("DELETE", secrets + "/" + name);
  auto gone = [&] { return ask("GET", secrets + "/" + name + "-owned").code == 404; };
  collects_garbage_ = eventually(gone, kProbeSeconds) ? 1 : 0;
  if (collects_garbage_ == 0) (void)ask("DELETE", secrets + "/" + name + "-owned");
  return collects_garbage_ == 1;
}

bool Server::empties_namespaces() {
  if (empties_namespaces_ >= 0) return empties_namespaces_ == 1;
  Json made =
      ask("POST", "/api/v1/namespaces", {{"metadata", {{"generateName", "conformance-empty-"}}}})
          .body;
  if (!made.contains("metadata")) return false;
  std::string path = "/api/v1/namespaces/" + made["metadata"]["name"].get<std::string>();
  (void)ask("DELETE", path);
  auto gone = [&] { return ask("GET", path).code == 404; };
  empties_namespaces_ = eventually(gone, kProbeSeconds) ? 1 : 0;
  if (empties_namespaces_ == 0) finish_namespace(made["metadata"]["name"]);
  return empties_namespaces_ == 1;
}

int Server::minor_version() const {
  std::string minor = string_or(ask("GET", "/version").body, "minor", "0");
  return std::atoi(minor.c_str());
}

Server& server() {
  return *the_server;
}

void set_server(std::unique_ptr<Server> server) {
  the_server = std::move(server);
}

bool eventually(const std::function<bool()>& condition, double limit_seconds) {
  using std::chrono::steady_clock;
  auto end = steady_clock::now() + std::chrono::duration<double>(limit_seconds);
  while (!condition()) {
    if (steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

void remove_namespace(const std::string& name) {
  const std::string path = "/api/v1/namespaces/" + name;
  (void)server().ask("DELETE", path);
  if (!server().empties_namespaces()) finish_namespace(name);
}

}  // namespace lockstep::conformance
