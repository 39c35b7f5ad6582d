#include "common/api/servers_view.h"

#include <algorithm>
#include <charconv>

#include "common/api/problems.h"
#include "common/api/training_job_fields.h"
#include "common/base/utf8.h"

namespace lockstep {
namespace {

constexpr char kWhere[] = "[servers view] ";
constexpr size_t kServerHostBytesMax = 45;  // of an IPv6 address

// Takes a number from 1 on without leading zeros from the front of the text.
bool take_number(std::string_view& text, int64_t& number) {
  if (text.empty() || text.front() < '1' || text.front() > '9') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

// Takes a rank, likewise.
bool take_rank(std::string_view& text, int64_t& rank) {
  rank = 0;
  const bool is_first = text.starts_with('0');
  if (is_first) text.remove_prefix(1);
  return (is_first || take_number(text, rank)) && rank < kWorldSizeMax;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

// Takes a place whose address, if there is one, has the characters of IPv4 and IPv6.
bool take_place(std::string_view& text, ServerPlace& place) {
  if (!take_number(text, place.incarnation) || !take(text, '/')) return false;
  const size_t end = std::min(text.find_first_not_of("0123456789abcdef.:"), text.size());
  place.host = text.substr(0, end);
  text.remove_prefix(end);
  return end <= kServerHostBytesMax;
}

bool take_standing(std::string_view& text, ServerStanding& standing) {
  if (take(text, '-')) {
    standing.state = ServerState::kGone;
  } else if (take(text, '+')) {
    standing.state = ServerState::kJoining;
  }
  if (!take_number(text, standing.since)) return false;
  if (!take(text, '@')) return true;
  ServerMove& move = standing.move.emplace();
  return take_place(text, move.from) && take(text, '>') && take_place(text, move.to);
}

// Takes workers with ascending ranks.
bool take_workers(std::string_view& text, std::map<int64_t, int64_t>& workers) {
  do {
    int64_t rank = 0;
    int64_t since = 0;
    if (!take_rank(text, rank) || !take(text, '@') || !take_number(text, since)) return false;
    if (!workers.empty() && workers.rbegin()->first >= rank) return false;
    workers[rank] = since;
  } while (take(text, ','));
  return workers.size() <= kWorkersInViewMax;
}

std::string text_of(const ServerPlace& place) {
  return std::to_string(place.incarnation) + '/' + place.host;
}

bool can_be(const ServerStanding& server) {
  const bool is_gone = server.state == ServerState::kGone;
  if (!server.move) return server.since > 1 || server.state == ServerState::kWhole;
  const auto& [from, to] = *server.move;
  return server.since > 1 && from.incarnation < to.incarnation && !from.host.empty() &&
         (is_gone || !to.host.empty());
}

bool can_be(const ServersView& view) {
  const auto has_state = [](ServerState state) {
    return [state](const ServerStanding& server) { return server.state == state; };
  };
  const bool are_past = std::ranges::all_of(view.servers, [&](const ServerStanding& server) {
    return server.since <= view.number && can_be(server);
  });
  const bool were_started = std::ranges::all_of(view.workers, [&](const auto& worker) {
    return worker.second > 1 && worker.second <= view.number;
  });
  return are_past && were_started &&
         std::ranges::count_if(view.servers, has_state(ServerState::kJoining)) <= 1 &&
         std::ranges::any_of(view.servers, has_state(ServerState::kWhole));
}

Error not_a_view(std::string_view text) {
  return invalid(std::string(kWhere) + "expected a view such as 4:1,-2,+4, got " +
                 in_quotes(utf8_tail(text, 64)));
}

}  // namespace

ServersView first_servers_view(size_t servers) {
  return {.number = 1, .servers = std::vector<ServerStanding>(servers)};
}

std::string text_of(const ServersView& view) {
  std::string text = std::to_string(view.number);
  char separator = ':';
  for (const ServerStanding& server : view.servers) {
    text += separator;
    separator = ',';
    if (server.state == ServerState::kGone) text += '-';
    if (server.state == ServerState::kJoining) text += '+';
    text += std::to_string(server.since);
    if (server.move) text += '@' + text_of(server.move->from) + '>' + text_of(server.move->to);
  }
  separator = ';';
  for (const auto& [rank, since] : view.workers) {
    text += separator + std::to_string(rank) + '@' + std::to_string(since);
    separator = ',';
  }
  return text;
}

Result<ServersView> servers_view_from_text(std::string_view text) {
  if (text.size() > kServersViewBytesMax) return not_a_view(text);
  std::string_view rest = text;
  ServersView view;
  if (!take_number(rest, view.number)) return not_a_view(text);
  for (char separator = ':'; !rest.empty() && !rest.starts_with(';'); separator = ',') {
    ServerStanding standing;
    if (!take(rest, separator) || !take_standing(rest, standing)) return not_a_view(text);
    view.servers.push_back(standing);
  }
  const bool has_workers = take(rest, ';');
  if (has_workers && !take_workers(rest, view.workers)) return not_a_view(text);
  if (!rest.empty()) return not_a_view(text);
  if (view.servers.size() > kServersInViewMax || !can_be(view)) return not_a_view(text);
  return view;
}

Result<ServersView> servers_view_from_text(std::string_view text, size_t servers) {
  if (text.empty()) return first_servers_view(servers);
  TRY_ASSIGN(ServersView view, servers_view_from_text(text));
  if (view.servers.size() == servers) return view;
  return invalid(std::string(kWhere) + "expected " + std::to_string(servers) + " servers, got " +
                 std::to_string(view.servers.size()));
}

ServersView next_view(const ServersView& view, size_t server, ServerState state) {
  ServersView next = view;
  ++next.number;
  next.servers[server].state = state;
  next.servers[server].since = next.number;
  return next;
}

ServersView view_with_new_worker(const ServersView& view, int64_t rank) {
  ServersView next = view;
  next.workers[rank] = ++next.number;
  return next;
}

ServersView moved_view(const ServersView& view, const std::map<size_t, ServerMove>& moves) {
  ServersView next = view;
  ++next.number;
  for (const auto& [server, move] : moves) {
    const std::optional<ServerMove>& known = view.servers[server].move;
    next.servers[server] = {
        .state = ServerState::kGone,
        .since = next.number,
        .move = ServerMove{.from = known ? known->from : move.from, .to = move.to}};
  }
  return next;
}

bool has_moved_server(const ServersView& view) {
  return std::ranges::any_of(view.servers,
                             [](const ServerStanding& server) { return server.move.has_value(); });
}

int64_t servers_changed_in(const ServersView& view) {
  int64_t newest = 1;
  for (const ServerStanding& server : view.servers) newest = std::max(newest, server.since);
  return newest;
}

int64_t worker_since(const ServersView& view, int64_t rank) {
  const auto found = view.workers.find(rank);
  return found == view.workers.end() ? 1 : found->second;
}

bool holds_everything(const ServersView& view, int64_t copies) {
  const size_t count = view.servers.size();
  for (size_t first = 0; first < count; ++first) {
    bool is_held = false;
    for (size_t i = 0; i <= static_cast<size_t>(copies) && i < count; ++i) {
      is_held |= view.servers[(first + i) % count].state == ServerState::kWhole;
    }
    if (!is_held) return false;
  }
  return true;
}

size_t joining_server(const ServersView& view) {
  const auto joining =
      std::ranges::find(view.servers, ServerState::kJoining, &ServerStanding::state);
  return static_cast<size_t>(joining - view.servers.begin());
}

}  // namespace lockstep
