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

bool take_state(std::string_view& text, ServerStanding& standing) {
  standing.is_new = take(text, '*');
  const bool had_left = standing.is_new && !text.starts_with('-') && !text.starts_with('+');
  if (had_left && !take_number(text, standing.left_in)) return false;
  if (take(text, '-')) {
    standing.state = ServerState::kGone;
  } else if (take(text, '+')) {
    standing.state = ServerState::kJoining;
  } else if (take(text, '!')) {
    standing.state = ServerState::kLeft;
  }
  if (!take_number(text, standing.since)) return false;
  if (standing.state == ServerState::kLeft) standing.left_in = standing.since;
  if (!take(text, '~')) return true;
  const bool was_whole = standing.state == ServerState::kWhole && !standing.is_new;
  standing.state = ServerState::kLeaving;
  return was_whole && take_number(text, standing.left_in);
}

bool take_standing(std::string_view& text, ServerStanding& standing) {
  if (!take_state(text, standing)) return false;
  if (!take(text, '@')) return true;
  ServerMove& move = standing.move.emplace();
  const bool was_added = text.starts_with('>');
  return (was_added || take_place(text, move.from)) && take(text, '>') && take_place(text, move.to);
}

// Takes workers with ascending ranks.
bool take_workers(std::string_view& text, ServersView& view) {
  do {
    int64_t rank = 0;
    int64_t since = 0;
    if (!take_rank(text, rank) || !take(text, '@') || !take_number(text, since)) return false;
    if (!view.workers.empty() && view.workers.rbegin()->first >= rank) return false;
    view.workers[rank] = since;
    if (!take(text, '@')) continue;
    ServerMove& move = view.worker_moves[rank];
    if (!take_place(text, move.from) || !take(text, '>') || !take_place(text, move.to))
      return false;
  } while (take(text, ','));
  return view.workers.size() <= kWorkersInViewMax;
}

std::string text_of(const ServerPlace& place) {
  return std::to_string(place.incarnation) + '/' + place.host;
}

bool was_added(const ServerStanding& server) {
  return server.move && server.move->from == ServerPlace();
}

bool can_be(const ServerStanding& server) {
  if (server.state == ServerState::kLeaving && server.left_in <= server.since) return false;
  if (server.is_new && (is_holding(server.state) || server.left_in == 1)) return false;
  if (server.is_new && (!server.move || server.left_in >= server.since)) return false;
  if (server.state == ServerState::kLeft && !server.move) return false;
  if (!server.move) return server.since > 1 || is_holding(server.state);
  const auto& [from, to] = *server.move;
  return server.since > 1 && from.incarnation <= to.incarnation &&
         (was_added(server) || !from.host.empty()) && (is_absent(server.state) || !to.host.empty());
}

// Those that the round began with come first, and then those that were added. Those that count come
// first, and then perhaps a new one, and those that have left.
bool are_in_order(const ServersView& view) {
  const size_t counted = counted_servers(view);
  const size_t first = first_servers(view);
  for (size_t i = 0; i < view.servers.size(); ++i) {
    const ServerStanding& server = view.servers[i];
    if (was_added(server) != (i >= first)) return false;
    if (server.state == ServerState::kLeaving && i + 1 != counted) return false;
    if (i > counted && server.state != ServerState::kLeft) return false;
  }
  const bool is_changing = counted < view.servers.size() && view.servers[counted].is_new;
  if (is_changing && counted > 0 && view.servers[counted - 1].state == ServerState::kLeaving)
    return false;
  if (view.places > 0) return view.places >= static_cast<int64_t>(first) && first > 0;
  return first == view.servers.size() && counted == first &&
         std::ranges::none_of(view.servers, [](const ServerStanding& server) {
           return server.state == ServerState::kLeaving;
         });
}

bool can_be(const ServersView& view) {
  const auto has_state = [](ServerState state) {
    return [state](const ServerStanding& server) { return server.state == state; };
  };
  const bool are_past = std::ranges::all_of(view.servers, [&](const ServerStanding& server) {
    return std::max(server.since, server.left_in) <= view.number && can_be(server);
  });
  const bool were_started = std::ranges::all_of(view.workers, [&](const auto& worker) {
    return worker.second > 1 && worker.second <= view.number;
  });
  const bool have_moved = std::ranges::all_of(view.worker_moves, [](const auto& worker) {
    const auto& [from, to] = worker.second;
    return from.incarnation < to.incarnation && !from.host.empty();
  });
  if (!have_moved || (view.places == 0 && !view.worker_moves.empty())) return false;
  return are_past && were_started && are_in_order(view) &&
         std::ranges::count_if(view.servers, has_state(ServerState::kJoining)) <= 1 &&
         std::ranges::any_of(view.servers, is_holding, &ServerStanding::state);
}

Error not_a_view(std::string_view text) {
  return invalid(std::string(kWhere) + "expected a view such as 4:1,-2,+4, got " +
                 in_quotes(utf8_tail(text, 64)));
}

}  // namespace

ServersView first_servers_view(size_t servers, int64_t places) {
  return {.number = 1, .servers = std::vector<ServerStanding>(servers), .places = places};
}

std::string text_of(const ServersView& view) {
  std::string text = std::to_string(view.number);
  char separator = ':';
  for (const ServerStanding& server : view.servers) {
    text += separator;
    separator = ',';
    if (server.is_new) text += '*';
    if (server.is_new && server.left_in > 0) text += std::to_string(server.left_in);
    if (server.state == ServerState::kGone) text += '-';
    if (server.state == ServerState::kJoining) text += '+';
    if (server.state == ServerState::kLeft) text += '!';
    text += std::to_string(server.since);
    if (server.state == ServerState::kLeaving) text += '~' + std::to_string(server.left_in);
    if (!server.move) continue;
    text += '@' + (was_added(server) ? "" : text_of(server.move->from));
    text += '>' + text_of(server.move->to);
  }
  if (view.places > 0) text += '#' + std::to_string(view.places);
  separator = ';';
  for (const auto& [rank, since] : view.workers) {
    text += separator + std::to_string(rank) + '@' + std::to_string(since);
    separator = ',';
    const auto move = view.worker_moves.find(rank);
    if (move == view.worker_moves.end()) continue;
    text += '@' + text_of(move->second.from) + '>' + text_of(move->second.to);
  }
  return text;
}

Result<ServersView> servers_view_from_text(std::string_view text) {
  if (text.size() > kServersViewBytesMax) return not_a_view(text);
  std::string_view rest = text;
  ServersView view;
  if (!take_number(rest, view.number)) return not_a_view(text);
  const auto is_at_end = [&] {
    return rest.empty() || rest.starts_with('#') || rest.starts_with(';');
  };
  for (char separator = ':'; !is_at_end(); separator = ',') {
    ServerStanding standing;
    if (!take(rest, separator) || !take_standing(rest, standing)) return not_a_view(text);
    view.servers.push_back(standing);
  }
  const bool has_places = take(rest, '#');
  if (has_places && (!take_number(rest, view.places) || view.places > kPlacesMax)) {
    return not_a_view(text);
  }
  const bool has_workers = take(rest, ';');
  if (has_workers && !take_workers(rest, view)) return not_a_view(text);
  if (!rest.empty()) return not_a_view(text);
  if (view.servers.size() > kServersInViewMax || !can_be(view)) return not_a_view(text);
  return view;
}

Result<ServersView> servers_view_from_text(std::string_view text, size_t servers) {
  if (text.empty()) return first_servers_view(servers);
  TRY_ASSIGN(ServersView view, servers_view_from_text(text));
  const size_t first = first_servers(view);
  if (first == servers) return view;
  return invalid(std::string(kWhere) + "expected " + std::to_string(servers) + " servers, got " +
                 std::to_string(first));
}

size_t first_servers(const ServersView& view) {
  return static_cast<size_t>(std::ranges::find_if(view.servers, was_added) - view.servers.begin());
}

size_t counted_servers(const ServersView& view) {
  const auto counts = [](const ServerStanding& server) {
    return server.state != ServerState::kLeft && !server.is_new;
  };
  return static_cast<size_t>(std::ranges::find_if_not(view.servers, counts) - view.servers.begin());
}

ServersView next_view(const ServersView& view, size_t server, ServerState state) {
  ServersView next = view;
  ServerStanding& standing = next.servers[server];
  standing.state = state;
  standing.since = ++next.number;
  if (state == ServerState::kWhole) standing.is_new = false;
  if (!standing.is_new) standing.left_in = 0;
  return next;
}

ServersView view_with_new_server(const ServersView& view, const ServerPlace& pod) {
  ServersView next = view;
  const size_t place = counted_servers(view);
  if (place == view.servers.size()) next.servers.push_back({.move = ServerMove()});
  ServerStanding& server = next.servers[place];
  server.state = ServerState::kGone;
  server.since = ++next.number;
  server.is_new = true;
  server.move->to = pod;
  return next;
}

ServersView view_with_leaving_server(const ServersView& view) {
  ServersView next = view;
  ServerStanding& server = next.servers[counted_servers(view) - 1];
  server.state = ServerState::kLeaving;
  server.left_in = ++next.number;
  return next;
}

ServersView view_without_last_server(const ServersView& view, const ServerPlace& first,
                                     int64_t next_incarnation) {
  ServersView next = view;
  ServerStanding& server = next.servers[counted_servers(view) - 1];
  server.state = ServerState::kLeft;
  server.since = server.left_in = ++next.number;
  if (!server.move) server.move = ServerMove{.from = first, .to = {}};
  server.move->to = {.incarnation = next_incarnation, .host = ""};
  return next;
}

ServersView view_with_new_worker(const ServersView& view, int64_t rank) {
  ServersView next = view;
  next.workers[rank] = ++next.number;
  return next;
}

ServersView moved_view(const ServersView& view, const std::map<size_t, ServerMove>& moves,
                       const std::map<int64_t, ServerMove>& workers) {
  ServersView next = view;
  ++next.number;
  for (const auto& [server, move] : moves) {
    ServerStanding& standing = next.servers[server];
    standing.state = ServerState::kGone;
    standing.since = next.number;
    standing.move =
        ServerMove{.from = standing.move ? standing.move->from : move.from, .to = move.to};
    if (!standing.is_new) standing.left_in = 0;
  }
  for (const auto& [rank, move] : workers) {
    next.workers[rank] = next.number;
    next.worker_moves.try_emplace(rank, move).first->second.to = move.to;
  }
  return next;
}

ServersView view_without_new_server(const ServersView& view) {
  ServersView next = view;
  ServerStanding& server = next.servers[counted_servers(view)];
  server.state = ServerState::kLeft;
  server.is_new = false;
  server.since = server.left_in = ++next.number;
  server.move->to.host.clear();
  return next;
}

bool has_moved_server(const ServersView& view) {
  return std::ranges::any_of(view.servers,
                             [](const ServerStanding& server) { return server.move.has_value(); });
}

int64_t servers_changed_in(const ServersView& view) {
  int64_t newest = 1;
  for (const ServerStanding& server : view.servers) {
    newest = std::max({newest, server.since, server.left_in});
  }
  return newest;
}

int64_t worker_since(const ServersView& view, int64_t rank) {
  const auto found = view.workers.find(rank);
  return found == view.workers.end() ? 1 : found->second;
}

size_t joining_server(const ServersView& view) {
  const auto joining =
      std::ranges::find(view.servers, ServerState::kJoining, &ServerStanding::state);
  return static_cast<size_t>(joining - view.servers.begin());
}

}  // namespace lockstep
