// Mistakes about servers, and about workers next to them.
#include <algorithm>

#include "common/api/server_places.h"
#include "common/api/servers_view.h"
#include "tests/controller/sim/mutants.h"

namespace lockstep::sim {
namespace {

using Status = TrainingJobStatus;

// `wrong` gets the status after the plan and before it.
Mutation with_status(std::function<void(Status&, const Status&)> wrong) {
  Mutation mutation;
  mutation.plan = [wrong = std::move(wrong)](const plan::Observed& observed, TimePoint now,
                                             const plan::Limits& limits) {
    plan::Plan plan = plan::plan(observed, now, limits);
    for (plan::Action& action : plan.actions) {
      auto* write = std::get_if<plan::WriteStatus>(&action);
      if (write != nullptr) wrong(write->status, observed.job.status);
    }
    return plan;
  };
  return mutation;
}

// `wrong` gets the view of a status that has another one than before.
Mutation with_view(std::function<void(ServersView&)> wrong) {
  return with_status([wrong = std::move(wrong)](Status& status, const Status& before) {
    Result<ServersView> view = servers_view_from_text(status.serversView);
    if (!view.ok() || status.serversView == before.serversView) return;
    wrong(*view);
    status.serversView = text_of(*view);
  });
}

Mutation with_report(std::function<void(AgentState&)> wrong) {
  return with_agents({}, std::move(wrong));
}

}  // namespace

void add_servers(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by, Mutation mutation) {
    mutants.push_back({name, found_by, std::move(mutation)});
  };
  add("every process is taken to follow every view", "servers: a server counts that lacks",
      with_report([](AgentState& state) {
        for (WorkerState& worker : state.workers) {
          if (worker.servers_view > 0) worker.servers_view = 1 << 30;
        }
      }));
  add("servers count before they are filled", "servers: a server counts that lacks",
      with_report([](AgentState& state) {
        for (WorkerState& worker : state.workers) worker.is_filling = false;
      }));
  add("servers are taken for started anew before they are", "convergence: a job has not ended",
      with_report([](AgentState& state) {
        if (state.servers_started == 0) return;
        state.servers_started = state.servers_view;
        for (WorkerState& worker : state.workers) worker.running = true;
      }));
  add("a round goes on without the last copy",
      "servers: ", with_status([](Status& status, const Status& before) {
        const bool ends = status.round > before.round || status.worldHash != before.worldHash;
        const bool is_server =
            status.lastFailure && status.failures.size() > before.failures.size();
        const Result<ServersView> view = servers_view_from_text(before.serversView);
        if (!ends || !is_server || !view.ok() || view->servers.empty()) return;
        const auto servers = static_cast<int64_t>(view->servers.size());
        const int64_t place = status.lastFailure->nodeIndex - (before.nodes.desired);
        if (place < 0 || place >= servers || status.lastFailure->rank < 0) return;
        const auto server = static_cast<size_t>(place);
        if (view->servers[server].state != ServerState::kWhole) return;
        const ServersView next = next_view(*view, server, ServerState::kGone);
        if (holds_everything(next, 1)) return;
        status.round = before.round;
        status.worldHash = before.worldHash;
        status.rendezvous = before.rendezvous;
        status.serversView = text_of(next);
      }));
  add("each view starts a worker anew", "servers: a worker is started anew that has not failed",
      with_status([](Status& status, const Status& before) {
        const Result<ServersView> view = servers_view_from_text(status.serversView);
        if (!view.ok() || status.serversView == before.serversView) return;
        ServersView wrong = *view;
        for (const int64_t rank : {0, 1}) {
          if (worker_since(*view, rank) < view->number) wrong.workers[rank] = view->number;
        }
        status.serversView = text_of(wrong);
      }));
  add("a view outlives its round", "servers: a view outlived its round",
      with_status([](Status& status, const Status& before) {
        if (status.round > before.round) status.serversView = before.serversView;
      }));
  add("a server in another pod counts at once", "servers: a server counts that lacks",
      with_status([](Status& status, const Status& before) {
        Result<ServersView> view = servers_view_from_text(status.serversView);
        if (!view.ok() || status.serversView == before.serversView) return;
        for (ServerStanding& server : view->servers) {
          if (server.move && server.state == ServerState::kJoining)
            server.state = ServerState::kWhole;
        }
        status.serversView = text_of(*view);
      }));
  add("a server that was added counts at once", "servers: a server counts that lacks",
      with_view([](ServersView& view) {
        for (ServerStanding& server : view.servers) {
          if (!server.is_new || server.state != ServerState::kJoining) continue;
          server.state = ServerState::kWhole;
          server.is_new = false;
          server.left_in = 0;
        }
      }));
  add("a server leaves before it has handed over", "servers: a server counts that lacks",
      with_view([](ServersView& view) {
        ServerStanding& last = view.servers[counted_servers(view) - 1];
        if (last.state != ServerState::kLeaving || !last.move) return;
        last.state = ServerState::kLeft;
        last.since = last.left_in;
        last.move->to.host.clear();
      }));
  add("members forget the pod that took a server's place",
      "servers: a view has a server in another",
      with_status([](Status& status, const Status& before) {
        const bool is_same = status.serversView == before.serversView;
        const bool awaits_pod = status.serversView.find("/#") != std::string::npos;
        if (!is_same && awaits_pod) status.members = before.members;
      }));
  add("a number of a view is used twice", "servers: a view does not follow",
      with_status([](Status& status, const Status& before) {
        Result<ServersView> view = servers_view_from_text(status.serversView);
        if (!view.ok() || status.serversView == before.serversView || view->number < 4) return;
        --view->number;
        for (ServerStanding& server : view->servers) {
          server.since = std::min(server.since, view->number);
        }
        status.serversView = text_of(*view);
      }));
}

}  // namespace lockstep::sim
