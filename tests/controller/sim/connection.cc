#include "tests/controller/sim/connection.h"

#include <algorithm>

#include "controller/loop/informer.h"

namespace lockstep::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLatency = milliseconds(40);
constexpr Duration kTimeout = seconds(5);
constexpr Duration kDelayMax = milliseconds(200);  // delay of events
constexpr Duration kLagMax = seconds(60);
constexpr Duration kTurnMax = seconds(20);
constexpr int64_t kVersionsRepeated = 20;

int64_t number_in(const loop::WatchRequest& request, const char* key) {
  return std::stoll(request.query.at(key));
}

// Keeps only the newest modification of each object, as a list in between would.
void coalesce(std::vector<FakeStore::Event>& events) {
  for (auto event = events.begin(); event != events.end();) {
    const auto is_newer = [&](const FakeStore::Event& other) {
      return other.type == loop::WatchEventType::kModified &&
             loop::object_key(*other.object) == loop::object_key(*event->object);
    };
    const bool drop = event->type == loop::WatchEventType::kModified &&
                      std::any_of(event + 1, events.end(), is_newer);
    event = drop ? events.erase(event) : event + 1;
  }
}

}  // namespace

// Delivers new events after a random delay, until the watch is cut.
class Connection::Watch final : public std::enable_shared_from_this<Watch> {
 public:
  Watch(Connection& connection, loop::WatchRequest request, loop::WatchHandler handler)
      : connection_(connection),
        world_(connection.world_),
        request_(std::move(request)),
        handler_(std::move(handler)),
        version_(number_in(request_, "resourceVersion")) {
    if (world_.chance.happens(Fault::kRepeatedEvents)) version_ -= kVersionsRepeated;
  }

  void open() {
    const auto self = weak_from_this();
    world_.subscribe(request_.type, alive_, [this] { wake(); });
    connection_.deliver(seconds(number_in(request_, "timeoutSeconds")), [self] {
      if (const auto watch = self.lock()) watch->end({.outcome = loop::ApiOutcome::kOk});
    });
    wake();
  }
  void close() { alive_.reset(); }

 private:
  void wake() {
    if (std::exchange(is_awake_, true)) return;
    const Duration most = world_.chance.happens(Fault::kLaggingWatch) ? kLagMax : kDelayMax;
    connection_.deliver(world_.chance.delay(most), [self = weak_from_this()] {
      if (const auto watch = self.lock(); watch && watch->alive_) watch->step();
    });
  }

  void step() {
    is_awake_ = false;
    std::vector<FakeStore::Event> events;
    if (!world_.store.events_since(request_, version_, events)) {
      return end({.outcome = loop::ApiOutcome::kExpired, .message = "too old"});
    }
    if (world_.is_server_away() || world_.chance.happens(Fault::kWatchCut)) {
      return end({.outcome = loop::ApiOutcome::kUnavailable, .message = "cut"});
    }
    if (world_.chance.happens(Fault::kWatchTooLarge)) {
      return end({.outcome = loop::ApiOutcome::kTooLarge, .message = "from the future"});
    }
    if (!events.empty()) deliver_events(std::move(events));
  }

  void end(loop::ApiReply reply) {
    if (!alive_) return;
    close();
    handler_.on_end(std::move(reply));
  }

  void deliver_events(std::vector<FakeStore::Event> events) {
    version_ = events.back().version;
    if (events.size() > 1 && world_.chance.happens(Fault::kCoalescedEvents)) coalesce(events);
    world_.chance.note("watch", request_.type.plural);
    std::vector<loop::WatchEvent> batch;
    for (const FakeStore::Event& event : events) batch.push_back({event.type, event.object});
    handler_.on_events(std::move(batch));
  }

  Connection& connection_;
  World& world_;
  loop::WatchRequest request_;
  loop::WatchHandler handler_;
  int64_t version_;
  bool is_awake_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class Connection::Handle final : public loop::WatchHandle {
 public:
  explicit Handle(std::shared_ptr<Watch> watch) : watch_(std::move(watch)) {}
  ~Handle() override { watch_->close(); }

 private:
  std::shared_ptr<Watch> watch_;
};

void Connection::deliver(Duration delay, std::function<void()> call) {
  const TimePoint due = world_.chance.clock.now() + delay;
  world_.chance.timers.at(std::max(due, stalled_until_),
                          [this, alive = std::weak_ptr(alive_), call = std::move(call)] {
                            if (alive.expired()) return;
                            if (world_.chance.clock.now() >= stalled_until_) return call();
                            deliver(Duration{0}, call);
                          });
}

void Connection::answer(loop::ApiClient::Done done, loop::ApiReply reply) {
  const bool is_lost = world_.chance.happens(Fault::kLostReply);
  if (is_lost) reply = {.outcome = loop::ApiOutcome::kTimeout, .message = "the answer was lost"};
  deliver(is_lost ? kTimeout : world_.chance.delay(kLatency),
          [done = std::move(done), reply = std::move(reply)]() mutable { done(std::move(reply)); });
}

void Connection::answer(const loop::AgentAddress& agent, loop::AgentClient::Done done,
                        Result<AgentState> result) {
  const bool is_lost = world_.chance.happens(Fault::kLostReply) || world_.is_partitioned(agent);
  if (is_lost) result = timed_out("the answer was lost");
  if (result.ok()) world_.nodes.heard(agent, *result);
  deliver(is_lost ? kTimeout : world_.chance.delay(kLatency),
          [done = std::move(done), result = std::move(result)] { done(result); });
}

void Connection::send(loop::ApiRequest request, loop::ApiClient::Done done) {
  const auto may_send = [](const loop::ApiRequest& asked) {
    return !asked.may_send || asked.may_send();
  };
  const bool is_limited = is_write(request.verb) && request.type.plural != loop::kLeases.plural;
  if (!is_limited || !world_.chance.happens(Fault::kRateLimited)) {
    if (may_send(request)) return send_now(std::move(request), std::move(done));
    return deliver(Duration{0}, [done = std::move(done)] { done(loop::not_sent()); });
  }
  deliver(world_.chance.delay(kTurnMax),
          [this, may_send, request = std::move(request), done = std::move(done)] {
            if (may_send(request)) return send_now(request, done);
            done(loop::not_sent());
          });
}

void Connection::send_now(loop::ApiRequest request, loop::ApiClient::Done done) {
  if (request.make_text) request.body = Json::parse(request.make_text());
  if (world_.chance.happens(Fault::kLostRequest)) {
    return deliver(kTimeout, [done = std::move(done)] {
      done({.outcome = loop::ApiOutcome::kTimeout, .message = "lost"});
    });
  }
  world_.chance.timers.after(
      world_.chance.delay(kLatency),
      [this, &world = world_, sender = identity_, alive = std::weak_ptr(alive_),
       request = std::move(request), done = std::move(done)]() mutable {
        const bool writes = is_write(request.verb);
        loop::ApiReply reply = world.serve(std::move(request), sender);
        const bool dies = writes && world.chance.happens(Fault::kCrash, sender);
        if (alive.expired()) return;
        crash_wanted_ = crash_wanted_ || dies;
        answer(std::move(done), std::move(reply));
      });
}

std::unique_ptr<loop::WatchHandle> Connection::watch(loop::WatchRequest request,
                                                     loop::WatchHandler handler) {
  if (world_.chance.happens(Fault::kWatchExpired)) world_.store.compact();
  auto watch = std::make_shared<Watch>(*this, std::move(request), std::move(handler));
  watch->open();
  return std::make_unique<Handle>(std::move(watch));
}

void Connection::put_assignment(const loop::AgentAddress& agent,
                                const std::shared_ptr<const Assignment>& assignment,
                                int64_t node_index, loop::AgentClient::Done done) {
  Assignment sent = *assignment;
  sent.node_index = node_index;
  const bool never_arrives =
      world_.chance.happens(Fault::kLostRequest) || world_.is_partitioned(agent);
  world_.chance.timers.after(world_.chance.delay(kLatency),
                             [this, &world = world_, alive = std::weak_ptr(alive_), agent, sent,
                              never_arrives, done = std::move(done)] {
                               Result<AgentState> result = timed_out("lost");
                               if (!never_arrives) result = world.nodes.put(agent, sent);
                               if (!alive.expired()) answer(agent, done, std::move(result));
                             });
}

void Connection::poll_state(const loop::AgentAddress& agent, const loop::StatePoll& poll,
                            loop::AgentClient::Done done) {
  const TimePoint until = world_.chance.clock.now() + poll.wait;
  deliver(world_.chance.delay(kLatency),
          [this, agent, since = poll.since, until, done = std::move(done)] {
            world_.nodes.poll(
                agent, since, until,
                [this, alive = std::weak_ptr(alive_), agent, done](Result<AgentState> result) {
                  if (alive.expired()) return;
                  const std::optional<AgentState> old = world_.nodes.old_report(agent);
                  if (result.ok() && old && world_.chance.happens(Fault::kOldReport)) result = *old;
                  if (result.ok()) result = world_.nodes.reported_state(agent, *std::move(result));
                  answer(agent, done, std::move(result));
                });
          });
}

}  // namespace lockstep::sim
