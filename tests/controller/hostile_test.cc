// Servers that mean harm: what they say ends their exchange, and neither the process nor its
// memory.
#include <gtest/gtest.h>

#include <optional>

#include "controller/kube/agent_http_client.h"
#include "tests/controller/client_loop.h"
#include "tests/controller/scripted_server.h"

namespace lockstep {
namespace {

using Peer = ScriptedServer::Peer;
using Request = ScriptedServer::Request;

Result<HttpReply> get(ClientLoop& loop, HttpClient& client, HttpRequest request = {}) {
  std::optional<Result<HttpReply>> reply;
  client.send(std::move(request), [&](Result<HttpReply> answer) { reply = std::move(answer); });
  loop.run_until([&] { return reply.has_value(); });
  return *reply;
}

TEST(HostileServer, AChunkOfNoSizeThereIsEndsTheExchangeAlone) {
  ClientLoop loop;
  std::string size;
  ScriptedServer server([&](const Request&, const Peer& peer) {
    peer.begin_chunks();
    peer.chunk("hello");
    peer.write(size + "\r\n\r\n0\r\n\r\n");
    peer.wait_for_close();
  });
  HttpClient client({.url = server.url()}, loop.mailbox, loop.timers);
  for (const char* said : {"-2", "-1"}) {
    SCOPED_TRACE(said);
    size = said;
    EXPECT_FALSE(get(loop, client).ok());
    std::optional<Result<HttpReply>> end;
    const auto stream =
        client.stream({}, {.on_lines = [](const std::vector<std::string>&) {},
                           .on_end = [&](Result<HttpReply> reply) { end = std::move(reply); }});
    loop.run_until([&] { return end.has_value(); });
    EXPECT_FALSE(end->ok());
  }
}

}  // namespace
}  // namespace lockstep
