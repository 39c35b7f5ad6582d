#include "tests/controller/sim/world.h"

namespace lockstep::sim {
namespace {

constexpr Duration kLatency = std::chrono::milliseconds(40);
constexpr Duration kTimeout = std::chrono::seconds(5);

bool is_write(ApiVerb verb) {
  return verb != ApiVerb::kGet && verb != ApiVerb::kList;
}

// Delivers what has happened since, a little later each time, until it is cut.
class Watch final : public WatchHandle, public std::enable_shared_from_this<Watch> {
 public:
  Watch(World& world, WatchRequest request, WatchHandler handler)
      : world_(world), request_(std::move(request)), handler_(std::move(handler)) {
    version_ = std::stoll(request_.query.at("resourceVersion"));
    ends_at_ =
        world.timers.now() + std::chrono::seconds(std::stoll(request_.query.at("timeoutSeconds")));
    if (world.chance(world.faults.repeat)) version_ -= 20;
  }

  void schedule() {
    const Duration most = world_.chance(0.02) ? Duration(std::chrono::seconds(5))
                                              : Duration(std::chrono::milliseconds(200));
    world_.timers.after(world_.delay(most), [weak = weak_from_this()] {
      if (const auto self = weak.lock(); self && !self->is_closed) self->step();
    });
  }

  bool is_closed = false;

 private:
  void step() {
    std::vector<FakeStore::Event> events;
    if (!world_.store.events_since(request_, version_, events)) {
      handler_.on_end({.outcome = ApiOutcome::kExpired, .message = "too old"});
      return;
    }
    if (world_.chance(world_.faults.watch_cut)) {
      handler_.on_end({.outcome = ApiOutcome::kUnavailable, .message = "cut"});
      return;
    }
    if (world_.timers.now() >= ends_at_) {
      handler_.on_end({.outcome = ApiOutcome::kOk});
      return;
    }
    if (!events.empty()) deliver(std::move(events));
    if (!is_closed) schedule();
  }

  void deliver(std::vector<FakeStore::Event> events) {
    std::vector<WatchEvent> batch;
    for (FakeStore::Event& event : events) {
      version_ = event.version;
      batch.push_back(std::move(event.event));
    }
    handler_.on_events(std::move(batch));
  }

  World& world_;
  WatchRequest request_;
  WatchHandler handler_;
  int64_t version_ = 0;
  TimePoint ends_at_{};
};

class Handle final : public WatchHandle {
 public:
  explicit Handle(std::shared_ptr<Watch> watch) : watch_(std::move(watch)) {}
  ~Handle() override { watch_->is_closed = true; }

 private:
  std::shared_ptr<Watch> watch_;
};

}  // namespace

void Connection::answer(ApiClient::Done done, ApiReply reply) {
  const bool lost = world_.chance(world_.faults.lost_reply);
  if (lost) reply = {.outcome = ApiOutcome::kTimeout, .message = "the answer was lost"};
  const Duration delay = lost ? kTimeout : world_.delay(kLatency);
  world_.timers.after(
      delay, [alive = std::weak_ptr(alive_), done = std::move(done), reply = std::move(reply)] {
        if (!alive.expired()) done(reply);
      });
}

void Connection::send(ApiRequest request, ApiClient::Done done) {
  if (world_.chance(world_.faults.lost_request)) {
    world_.timers.after(kTimeout, [alive = std::weak_ptr(alive_), done = std::move(done)] {
      if (!alive.expired()) done({.outcome = ApiOutcome::kTimeout, .message = "lost"});
    });
    return;
  }
  // What is on its way arrives, whatever becomes of its sender.
  world_.timers.after(world_.delay(kLatency), [this, &world = world_, alive = std::weak_ptr(alive_),
                                               request = std::move(request),
                                               done = std::move(done)]() mutable {
    ApiReply reply;
    if (world.chance(world.faults.server_error)) {
      reply = {.outcome = ApiOutcome::kUnavailable, .message = "HTTP 500"};
    } else {
      const bool rival =
          request.verb == ApiVerb::kReplaceStatus && world.chance(world.faults.conflict);
      if (rival) {
        world.store.update(request.type, request.namespace_ + "/" + request.name, [](Json& job) {
          Json& note = job["metadata"]["annotations"]["rival"];
          note = std::to_string(note.is_string() ? std::stoi(note.get<std::string>()) + 1 : 1);
        });
      }
      reply = world.store.serve(request, world.now());
      if (is_write(request.verb) && world.chance(world.faults.crash)) world.crash_wanted = true;
    }
    if (!alive.expired()) answer(std::move(done), std::move(reply));
  });
}

std::unique_ptr<WatchHandle> Connection::watch(WatchRequest request, WatchHandler handler) {
  if (world_.chance(world_.faults.watch_expired)) world_.store.compact();
  auto watch = std::make_shared<Watch>(world_, std::move(request), std::move(handler));
  watch->schedule();
  return std::make_unique<Handle>(std::move(watch));
}

void Connection::put_assignment(const AgentAddress& agent, const Assignment& assignment,
                                AgentClient::Done done) {
  const bool never_arrives = world_.chance(world_.faults.lost_request);
  world_.timers.after(world_.delay(kLatency),
                      [this, &world = world_, alive = std::weak_ptr(alive_), ip = agent.ip,
                       assignment, never_arrives, done = std::move(done)] {
                        Result<AgentState> result = timed_out("lost");
                        if (!never_arrives) result = world.put(ip, assignment);
                        if (alive.expired()) return;
                        if (world.chance(world.faults.lost_reply))
                          result = timed_out("the answer was lost");
                        world.timers.after(world.delay(kLatency), [alive, done, result] {
                          if (!alive.expired()) done(result);
                        });
                      });
}

void Connection::poll_state(const AgentAddress& agent, int64_t since, Duration wait,
                            AgentClient::Done done) {
  poll(agent.ip, since, world_.timers.now() + wait, std::move(done));
}

void Connection::poll(const std::string& ip, int64_t since, TimePoint until,
                      AgentClient::Done done) {
  world_.timers.after(
      world_.delay(kLatency) + std::chrono::milliseconds(20),
      [this, alive = std::weak_ptr(alive_), ip, since, until, done = std::move(done)] {
        if (alive.expired()) return;
        const World::Agent* agent = world_.agent_at(ip);
        if (agent == nullptr) {
          done(unavailable("nobody answers"));
        } else if (world_.chance(world_.faults.lost_reply / 10)) {
          done(timed_out("lost"));
        } else if (agent->state.sequence > since || world_.timers.now() >= until) {
          done(agent->state);
        } else {
          world_.timers.after(std::chrono::milliseconds(200),
                              [this, alive, ip, since, until, done] {
                                if (!alive.expired()) poll(ip, since, until, done);
                              });
        }
      });
}

}  // namespace lockstep::sim
