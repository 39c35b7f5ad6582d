#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/kube/kube_client.h"
#include "tests/controller/kube/client_loop.h"
#include "tests/controller/kube/scripted_server.h"

namespace lockstep::kube {

using Peer = ScriptedServer::Peer;
using Request = ScriptedServer::Request;

using Loop = ClientLoop;

inline KubeClientOptions options_for(const ScriptedServer& server) {
  return {.server = {.url = server.url()}};
}

inline loop::ApiReply call(Loop& loop, loop::ApiClient& client, loop::ApiRequest request) {
  std::optional<loop::ApiReply> reply;
  client.send(std::move(request), [&](loop::ApiReply answer) { reply = std::move(answer); });
  loop.run_until([&] { return reply.has_value(); });
  return *reply;
}

inline const loop::ApiRequest kGetPod{
    .verb = loop::ApiVerb::kGet, .type = loop::kPods, .namespace_ = "ns", .name = "p"};

struct Watched {
  std::vector<loop::WatchEvent> events;
  std::optional<loop::ApiReply> end;
  std::unique_ptr<loop::WatchHandle> handle;
};

inline void open(Watched& watched, loop::ApiClient& client,
                 const std::string& timeout_seconds = "300",
                 loop::ResourceType type = loop::kPods) {
  loop::WatchRequest request{.type = type};
  request.query["timeoutSeconds"] = timeout_seconds;
  watched.handle =
      client.watch(std::move(request),
                   {.on_events =
                        [&](std::vector<loop::WatchEvent> events) {
                          for (loop::WatchEvent& event : events) {
                            watched.events.push_back(std::move(event));
                          }
                        },
                    .on_end = [&](loop::ApiReply reply) { watched.end = std::move(reply); }});
}

inline std::string event_line(const char* type, const std::string& name, size_t padding = 0) {
  const Json event = {
      {"type", type},
      {"object", {{"metadata", {{"name", name}}}, {"pad", std::string(padding, 'x')}}}};
  return dump_json(event) + "\n";
}

}  // namespace lockstep::kube
