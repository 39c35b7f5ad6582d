#include "common/api/server_places.h"

#include <algorithm>
#include <map>

namespace lockstep {
namespace {

constexpr int64_t kPlacesOfServer = 4;
constexpr int64_t kPlacesMin = 8;
constexpr int64_t kPlacesOfSmallRounds = 256;

using Holders = std::vector<size_t>;

bool contains(const Holders& holders, size_t server) {
  return std::ranges::find(holders, server) != holders.end();
}

// The servers that are to hold each place, by the number of servers alone.
class Shares {
 public:
  Shares(size_t places, size_t servers, size_t copies)
      : servers_(servers), places_(places), counts_(servers, 0) {
    for (size_t place = 0; place < places; ++place) {
      for (size_t i = 0; i <= copies && i < servers; ++i) give(place, (place + i) % servers);
    }
  }

  const std::vector<Holders>& places() const { return places_; }
  void resize(size_t servers) {
    while (servers_ < servers) add();
    while (servers_ > servers) remove();
  }

 private:
  void give(size_t place, size_t server) {
    places_[place].push_back(server);
    ++counts_[server];
  }
  void take(size_t place, size_t server) {
    std::erase(places_[place], server);
    --counts_[server];
  }
  size_t all() const {
    size_t all = 0;
    for (const size_t count : counts_) all += count;
    return all;
  }
  // Returns a place of that server which the new one can have instead: if possible, one of which it
  // has a copy, so that the primaries stay where they are.
  std::optional<size_t> place_to_take(size_t from, size_t by) const {
    std::optional<size_t> found;
    for (size_t place = 0; place < places_.size(); ++place) {
      const Holders& holders = places_[place];
      if (!contains(holders, from) || contains(holders, by)) continue;
      const bool is_primary = holders.front() == from;
      if (!found || !is_primary || places_[*found].front() == from) found = place;
    }
    return found;
  }
  void add() {
    const size_t added = servers_++;
    counts_.push_back(0);
    const size_t share = all() / servers_;
    while (counts_[added] < share) {
      const auto fullest = std::ranges::max_element(counts_);
      const auto from = static_cast<size_t>(fullest - counts_.begin());
      const std::optional<size_t> place = place_to_take(from, added);
      if (!place) return;
      take(*place, from);
      give(*place, added);
    }
  }
  void remove() {
    const size_t removed = --servers_;
    for (size_t place = 0; place < places_.size(); ++place) {
      if (!contains(places_[place], removed)) continue;
      std::optional<size_t> to;
      for (size_t server = 0; server < removed; ++server) {
        if (contains(places_[place], server)) continue;
        if (!to || counts_[server] < counts_[*to]) to = server;
      }
      take(place, removed);
      if (to) give(place, *to);
    }
    counts_.pop_back();
  }

  size_t servers_;
  std::vector<Holders> places_;
  std::vector<size_t> counts_;  // of places, by server
};

// The holders of each place for any number of servers. Each number is made from the one next to it,
// and kept.
class Sharing {
 public:
  Sharing(const ServersView& view, int64_t copies) : first_(first_servers(view)) {
    const size_t places = view.places > 0 ? static_cast<size_t>(view.places) : first_;
    shares_.emplace(first_, Shares(places, first_, static_cast<size_t>(copies)));
  }

  const std::vector<Holders>& among(size_t servers) {
    for (size_t number = first_; number != servers;) {
      const Shares& near = shares_.at(number);
      number = number < servers ? number + 1 : number - 1;
      if (shares_.contains(number)) continue;
      shares_.emplace(number, near).first->second.resize(number);
    }
    return shares_.at(servers).places();
  }

 private:
  size_t first_;
  std::map<size_t, Shares> shares_;  // by number of servers
};

// Returns the one of `more` that is not among `fewer`, if there is one.
std::optional<size_t> other_of(const Holders& more, const Holders& fewer) {
  for (const size_t server : more) {
    if (!contains(fewer, server)) return server;
  }
  return std::nullopt;
}

// Since when servers hold places again that a server which left has handed back, by place.
using Since = std::vector<std::map<size_t, int64_t>>;
Since handed_back(const ServersView& view, Sharing& sharing, size_t places) {
  Since since(places);
  for (size_t left = counted_servers(view); left < view.servers.size(); ++left) {
    const int64_t number = view.servers[left].left_in;
    if (number == 0) continue;
    const std::vector<Holders>& with = sharing.among(left + 1);
    const std::vector<Holders>& without = sharing.among(left);
    for (size_t place = 0; place < places; ++place) {
      const std::optional<size_t> server = other_of(without[place], with[place]);
      if (server) since[place][*server] = std::max(since[place][*server], number);
    }
  }
  return since;
}

// Returns the holders that the places are about to have; none if no server is added or leaves.
std::vector<Holders> coming(const ServersView& view, Sharing& sharing) {
  const size_t counted = counted_servers(view);
  if (counted < view.servers.size() && view.servers[counted].is_new) {
    return sharing.among(counted + 1);
  }
  const bool leaves = counted > 0 && view.servers[counted - 1].state == ServerState::kLeaving;
  return leaves ? sharing.among(counted - 1) : std::vector<Holders>();
}

}  // namespace

int64_t places_for(size_t servers) {
  const auto count = static_cast<int64_t>(servers);
  const int64_t several = std::max(kPlacesOfServer * count, kPlacesMin);
  return std::max(count, std::min(several, kPlacesOfSmallRounds));
}

std::vector<PlaceHolders> holders_of_places(const ServersView& view, int64_t copies) {
  Sharing sharing(view, copies);
  const std::vector<Holders>& now = sharing.among(counted_servers(view));
  const std::vector<Holders> next = coming(view, sharing);
  const Since again = handed_back(view, sharing, now.size());
  std::vector<PlaceHolders> all(now.size());
  for (size_t place = 0; place < now.size(); ++place) {
    PlaceHolders& holders = all[place];
    for (const size_t server : now[place]) {
      const ServerState state = view.servers[server].state;
      if (is_holding(state)) holders.chain.push_back(server);
      if (state == ServerState::kJoining) holders.joining = server;
    }
    std::ranges::stable_sort(holders.chain, {}, [&](size_t server) {
      const auto back = again[place].find(server);
      const int64_t since = view.servers[server].since;
      return back == again[place].end() ? since : std::max(since, back->second);
    });
    if (next.empty() || holders.joining) continue;
    const std::optional<size_t> newcomer = other_of(next[place], now[place]);
    if (newcomer && !is_absent(view.servers[*newcomer].state)) holders.joining = newcomer;
  }
  return all;
}

bool holds_everything(const ServersView& view, int64_t copies) {
  return std::ranges::none_of(holders_of_places(view, copies),
                              [](const PlaceHolders& holders) { return holders.chain.empty(); });
}

}  // namespace lockstep
