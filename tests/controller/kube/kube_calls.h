#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/kube/kube_client.h"
#include "tests/controller/kube/client_loop.h"
#include "tests/controller/kube/scripted_server.h"

namespace lockstep {

using Peer = ScriptedServer::Peer;
using Request = ScriptedServer::Request;

using Loop = ClientLoop;

inline KubeClientOptions options_for(const ScriptedServer& server) {
  return {.server = {.url = server.url()}};
}

inline ApiReply call(Loop& loop, ApiClient& client, ApiRequest request) {
  std::optional<ApiReply> reply;
  client.send(std::move(request), [&](ApiReply answer) { reply = std::move(answer); });
  loop.run_until([&] { return reply.has_value(); });
  return *reply;
}

inline const ApiRequest kGetPod{
    .verb = ApiVerb::kGet, .type = kPods, .namespace_ = "ns", .name = "p"};

struct Watched {
  std::vector<WatchEvent> events;
  std::optional<ApiReply> end;
  std::unique_ptr<WatchHandle> handle;
};

inline void open(Watched& watched, ApiClient& client, const std::string& timeout_seconds = "300") {
  WatchRequest request{.type = kPods};
  request.query["timeoutSeconds"] = timeout_seconds;
  watched.handle = client.watch(
      std::move(request), {.on_events =
                               [&](std::vector<WatchEvent> events) {
                                 for (WatchEvent& event : events) {
                                   watched.events.push_back(std::move(event));
                                 }
                               },
                           .on_end = [&](ApiReply reply) { watched.end = std::move(reply); }});
}

inline std::string event_line(const char* type, const std::string& name, size_t padding = 0) {
  const Json event = {
      {"type", type},
      {"object", {{"metadata", {{"name", name}}}, {"pad", std::string(padding, 'x')}}}};
  return dump_json(event) + "\n";
}

}  // namespace lockstep
