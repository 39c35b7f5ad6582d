#include "tests/agent/server/chaos.h"

#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <thread>

#include "agent/server/placement.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "tests/agent/server/chaos_check.h"
#include "tests/agent/server/chaos_processes.h"
#include "tests/agent/server/servers.h"

namespace lockstep::test {
namespace {

using server::Chain;
using server::Holders;
using server::View;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

const std::vector<uint32_t> kWorkers = {0, 1, 2};
const std::vector<uint32_t> kServers = {8, 9, 10, 11};
const std::vector<uint32_t> kSpares = {12, 13};
constexpr auto kPatience = std::chrono::seconds(60);  // then a run counts as hanging

// Calls use(chain, joining) for every range and slot.
template <class AnyView, class Use>
void for_holders(AnyView& view, const Use& use) {
  for (auto& range : view.ranges) use(range.chain, range.joining);
  for (auto& slot : view.slots) use(slot.chain, slot.joining);
}

// Kills and stops processes, and says in views how the others go on.
class Chaos {
 public:
  Chaos(const ChaosSetup& setup, ChaosReport& report)
      : setup_(setup), report_(report), random_(setup.seed, 7) {
    char folder[] = "/tmp/lockstep-chaos-XXXXXX";
    CHECK(::mkdtemp(folder) != nullptr);
    outcome_.folder = folder;
    outcome_.workers = kWorkers;
    outcome_.servers = kServers;
    outcome_.servers.insert(outcome_.servers.end(), kSpares.begin(), kSpares.end());
    auto placed =
        server::place(chaos_catalog(), {.round = 7, .workers = kWorkers, .servers = kServers},
                      {.copies = setup.copies, .range_elements_max = 20, .virtual_nodes = 16});
    CHECK(placed.ok());
    view_ = *std::move(placed);
    alive_.insert(outcome_.servers.begin(), outcome_.servers.end());
    processes_.emplace(ChaosProcesses::Options{.folder = outcome_.folder,
                                               .seed = setup.seed,
                                               .consistency = setup.consistency,
                                               .view = view_,
                                               .servers = outcome_.servers,
                                               .steps = setup.steps,
                                               .cuts_connections = setup.cuts_connections,
                                               .calls_max = setup.calls_max});
    auto client =
        rpc::Client::create({.self = server_identity(kChaosManager), .limits = quick_limits()});
    CHECK(client.ok());
    client_ = *std::move(client);
    for (const auto& address : processes_->addresses()) {
      peers_[address.rank] = client_->add_server(address);
    }
  }

  void run() {
    for (uint32_t i = 0; i < setup_.faults && report_.problems.empty(); ++i) {
      const uint64_t steps = setup_.steps * kWorkers.size();
      wait_for([&] { return progress() * (setup_.faults + 1) >= steps * (i + 1) || has_failed(); });
      if (report_.problems.empty()) do_fault();
    }
    wait_for([&] {
      return has_failed() || std::ranges::all_of(view_.workers, [&](uint32_t worker) {
               return processes_->steps_of(worker) == setup_.steps;
             });
    });
    if (has_failed()) report_.problems.push_back("a worker failed");
    for (const uint32_t worker : kWorkers) {
      if (processes_->steps_of(worker) == setup_.steps) outcome_.finished.push_back(worker);
    }
    std::this_thread::sleep_for(milliseconds(20));  // workers that finish write the last event
    client_.reset();
    report_.cuts = processes_->cuts();
    processes_.reset();
    outcome_.last = view_;
    report_.views = view_.number;
    check_histories(setup_, outcome_, report_);
    if (report_.problems.empty()) std::filesystem::remove_all(outcome_.folder);
  }

 private:
  template <class Condition>
  void wait_for(const Condition& condition) {
    const auto end = steady_clock::now() + kPatience;
    while (!condition()) {
      if (steady_clock::now() > end) {
        report_.problems.push_back("nothing goes on after:" + report_.faults);
        return;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  // A worker that is dead counts as ready.
  uint64_t progress() const {
    uint64_t steps = setup_.steps * (kWorkers.size() - view_.workers.size());
    for (const uint32_t worker : view_.workers) steps += processes_->steps_of(worker);
    return steps;
  }
  bool has_failed() const {
    return std::ranges::any_of(kWorkers, [&](uint32_t w) { return processes_->has_failed(w); });
  }
  void note(const std::string& what) { report_.faults += " " + what; }
  void pause(uint64_t most_ms) {
    std::this_thread::sleep_for(milliseconds(random_.below(most_ms)));
  }

  // Returns the answers' state: whether all living servers have the view and fill nobody.
  bool tell(const std::string& text) {
    const rpc::Bytes body[] = {bytes_of(text)};
    std::vector<rpc::Call> calls;
    for (const uint32_t server : alive_) {
      calls.push_back(peers_.at(server).call(server::kInstallView,
                                             {.body = body, .timeout = std::chrono::seconds(30)}));
    }
    for (const uint32_t worker : view_.workers) {
      if (!text.empty()) processes_->give_view(worker, text);
    }
    bool is_filled = true;
    for (rpc::Call& call : calls) {
      if (const Status told = call.wait(); !told.ok()) {
        report_.problems.push_back("view " + std::to_string(view_.number) + ": " +
                                   told.error().message);
        return true;
      }
      const auto reply = value_of<server::ViewReply>(call.head());
      is_filled &= reply.view == view_.number && reply.unfilled == 0;
    }
    return is_filled;
  }
  void install(const View& next) {
    view_ = next;
    ++view_.number;
    tell(text_of(view_));
  }

  // Whether every chain keeps a server without these.
  bool can_lose(const std::set<uint32_t>& dead) const {
    bool can = true;
    for_holders(view_, [&](const Chain& chain, const auto&) {
      can &= std::ranges::any_of(chain, [&](uint32_t server) { return !dead.contains(server); });
    });
    return can;
  }
  View without(const std::set<uint32_t>& dead) const {
    View next = view_;
    for_holders(next, [&](Chain& chain, std::optional<uint32_t>& joining) {
      std::erase_if(chain, [&](uint32_t server) { return dead.contains(server); });
      if (joining && dead.contains(*joining)) joining.reset();
    });
    return next;
  }

  void do_fault() {
    switch (random_.below(8)) {
      case 0:
      case 1:
        return kill_servers(1);
      case 2:
        return kill_servers(2);
      case 3:
        return stop_server();
      case 4:
        return pause_process();
      case 5:
        return move();
      case 6:
        return corner_server();
      default:
        return kill_worker();
    }
  }

  void kill_servers(size_t count) {
    std::set<uint32_t> dead;
    for (int tries = 0; tries < 20 && dead.size() < count; ++tries) {
      std::set<uint32_t> more = dead;
      auto at = alive_.begin();
      std::advance(at, random_.below(alive_.size()));
      more.insert(*at);
      if (can_lose(more) && alive_.size() > more.size() + setup_.copies) dead = more;
    }
    if (dead.empty()) return refill();
    ChaosKill kill{.at = {}, .view = view_.number, .units = {}};
    for (const server::UnitId& unit : units_of(view_, chaos_catalog())) {
      if (dead.contains(holders_of(view_, unit).chain.front())) kill.units.push_back(unit);
    }
    for (const uint32_t server : dead) {
      processes_->signal(server, SIGKILL);
      alive_.erase(server);
      note("kill " + std::to_string(server));
    }
    kill.at = steady_clock::now();
    outcome_.kills.push_back(kill);
    // Sometimes the manager is late.
    if (random_.below(4) == 0) {
      outcome_.kills.pop_back();
      pause(60);
    }
    install(without(dead));
    refill();
  }

  // Kills a server while no other one listens: what it takes then is nowhere else, and nobody may
  // be told of it.
  void corner_server() {
    const auto can_die = [&](uint32_t server) {
      return can_lose({server}) && alive_.size() > 1 + setup_.copies;
    };
    const auto dies = std::ranges::find_if(alive_, can_die);
    if (dies == alive_.end()) return refill();
    const uint32_t dead = *dies;
    alive_.erase(dies);
    note("corner " + std::to_string(dead));
    for (const uint32_t server : alive_) processes_->signal(server, SIGSTOP);
    pause(15);
    processes_->signal(dead, SIGKILL);
    for (const uint32_t server : alive_) processes_->signal(server, SIGCONT);
    install(without({dead}));
    refill();
  }

  // A server that is stopped for long loses its ranges, and does not know it when it goes on.
  void stop_server() {
    std::optional<uint32_t> stopped;
    for (const uint32_t server : alive_) {
      if (can_lose({server}) && alive_.size() > 1 + setup_.copies && random_.below(2) == 0) {
        stopped = server;
      }
    }
    if (!stopped) return pause_process();
    note("stop " + std::to_string(*stopped));
    processes_->signal(*stopped, SIGSTOP);
    alive_.erase(*stopped);
    pause(30);
    install(without({*stopped}));
    pause(50);
    processes_->signal(*stopped, SIGCONT);
    refill();
  }

  void pause_process() {
    std::vector<uint32_t> all(alive_.begin(), alive_.end());
    all.insert(all.end(), view_.workers.begin(), view_.workers.end());
    const uint32_t rank = all[random_.below(all.size())];
    note("pause " + std::to_string(rank));
    processes_->signal(rank, SIGSTOP);
    pause(150);
    processes_->signal(rank, SIGCONT);
  }

  void kill_worker() {
    if (view_.workers.size() < kWorkers.size()) return kill_servers(1);
    const uint32_t worker = view_.workers[random_.below(view_.workers.size())];
    note("kill worker " + std::to_string(worker));
    processes_->signal(worker, SIGKILL);
    View next = view_;
    std::erase(next.workers, worker);
    install(next);
  }

  // Fills short chains with servers that are not in them; maybe one dies meanwhile.
  void refill() {
    View next = view_;
    bool joins = false;
    for_holders(next, [&](Chain& chain, std::optional<uint32_t>& joining) {
      if (chain.size() > setup_.copies) return;
      joining = other_than(chain);
      joins |= joining.has_value();
    });
    if (joins) fill(next);
  }
  std::optional<uint32_t> other_than(const Chain& chain) {
    std::vector<uint32_t> others;
    std::ranges::copy_if(alive_, std::back_inserter(others), [&](uint32_t server) {
      return std::ranges::find(chain, server) == chain.end();
    });
    if (others.empty()) return std::nullopt;
    return others[random_.below(others.size())];
  }
  void fill(const View& next) {
    install(next);
    note("join");
    if (random_.below(4) == 0) {
      pause(10);
      return kill_servers(1);
    }
    wait_for([&] { return tell(""); });
    View filled = view_;
    for_holders(filled, [&](Chain& chain, std::optional<uint32_t>& joining) {
      if (joining) chain.push_back(*joining);
      joining.reset();
    });
    install(filled);
  }

  // Another server becomes the primary of some ranges and slots, and the old one leaves.
  void move() {
    View next = view_;
    std::set<size_t> moved;
    size_t index = 0;
    for_holders(next, [&](Chain& chain, std::optional<uint32_t>& joining) {
      if (random_.below(3) == 0 && !joining && chain.size() < 4) {
        joining = other_than(chain);
        if (joining) moved.insert(index);
      }
      ++index;
    });
    if (moved.empty()) return pause_process();
    note("move");
    const uint64_t number = view_.number;
    fill(next);
    if (view_.number != number + 2) return;  // something else happened
    View after = view_;
    index = 0;
    for_holders(after, [&](Chain& chain, const auto&) {
      if (moved.contains(index++)) chain.erase(chain.begin());
    });
    install(after);
  }

  const ChaosSetup& setup_;
  ChaosReport& report_;
  Random random_;
  ChaosOutcome outcome_;
  View view_;
  std::set<uint32_t> alive_;  // servers that the manager counts on
  std::optional<ChaosProcesses> processes_;
  std::unique_ptr<rpc::Client> client_;
  std::map<uint32_t, rpc::Peer> peers_;
};

}  // namespace

ChaosReport run_chaos(const ChaosSetup& setup) {
  ChaosReport report;
  Chaos(setup, report).run();
  return report;
}

}  // namespace lockstep::test
