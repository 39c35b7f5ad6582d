#include "tests/semantics/rig.h"

#include <algorithm>
#include <iostream>
#include <random>

namespace lockstep::semantics {
namespace {

constexpr Duration kHangGuard = std::chrono::minutes(1);
constexpr Duration kTurn = std::chrono::milliseconds(5);

std::string after_slash(const std::string& key) {
  return key.substr(key.find('/') + 1);
}

Duration stretched(Duration time, double by) {
  return std::chrono::duration_cast<Duration>(time * by);
}

}  // namespace

FastClock::FastClock(double speed, Duration skew)
    : speed_(speed), begin_(SystemClock().now()), wall_begin_(SystemClock().wall_now() + skew) {}

TimePoint FastClock::now() const {
  return begin_ + stretched(SystemClock().now() - begin_, speed_);
}

WallTime FastClock::wall_now() const {
  return wall_begin_ + (now() - begin_);
}

TimePoint FastClock::machine_time(TimePoint time) const {
  return begin_ + stretched(time - begin_, 1 / speed_);
}

Loop::Loop(double speed, Duration skew) : clock(speed, skew) {
  [[maybe_unused]] static const bool started = [] {
    kube::start_http_threads(4);
    return true;
  }();
}

void Loop::run() {
  timers.run_due();
  mailbox.run();
}

void Loop::wait(TimePoint until) {
  if (const std::optional<TimePoint> next = timers.next())
    until = std::min(until, clock.machine_time(*next));
  mailbox.wait(until);
}

bool Loop::run_until(const std::function<bool()>& done) {
  const SystemClock machine;
  const TimePoint end = machine.now() + kHangGuard;
  for (run(); !done(); run()) {
    if (machine.now() >= end) return false;
    wait(machine.now() + kTurn);  // another thread may change the condition
  }
  return true;
}

void Loop::run_for(Duration time) {
  const TimePoint end = timers.now() + time;
  for (run(); timers.now() < end; run()) wait(clock.machine_time(end));
}

bool run_until(std::initializer_list<Loop*> loops, const std::function<bool()>& done) {
  const SystemClock machine;
  const TimePoint end = machine.now() + kHangGuard;
  while (!done()) {
    if (machine.now() >= end) return false;
    for (Loop* loop : loops) {
      loop->run();
      loop->wait(machine.now() + kTurn);
    }
  }
  return true;
}

kube::KubeClientOptions client_options(const Loop& loop, const FaultProxy& proxy) {
  kube::KubeClientOptions options{.server = {.url = proxy.url()}};
  options.deadline = stretched(options.deadline, loop.clock.speed());
  options.watch_margin = stretched(options.watch_margin, loop.clock.speed());
  return options;
}

uint64_t new_seed() {
  std::random_device device;
  const uint64_t seed = device();
  std::cout << "seed: " << seed << "\n";
  return seed;
}

Cache::Cache(Loop& loop, kube::KubeClientOptions client_options, loop::InformerOptions options)
    : random_(new_seed()),
      client(std::move(client_options), loop.mailbox, loop.timers, loop.clock),
      informer(
          client, loop.timers, random_, std::move(options),
          [this](const std::string& key, const Json* before, const Json* after) {
            const char sign = before == nullptr ? '+' : after == nullptr ? '-' : '~';
            changes.push_back(sign + after_slash(key));
          },
          [] {}) {}

std::string Cache::names() const {
  std::string text;
  for (const auto& [key, object] : informer.objects())
    text += (text.empty() ? "" : " ") + after_slash(key);
  return text;
}

Json Cache::object(const std::string& name) const {
  for (const auto& [key, object] : informer.objects())
    if (after_slash(key) == name) return object.json();
  return {};
}

int Cache::times(const std::string& change) const {
  return static_cast<int>(std::count(changes.begin(), changes.end(), change));
}

void Semantics::SetUp() {
  testing::internal::CaptureStderr();
  conformance::Case::SetUp();
}

void Semantics::TearDown() {
  conformance::Case::TearDown();
  log_ += testing::internal::GetCapturedStderr();
  if (HasFailure()) std::cerr << log_;
}

std::string Semantics::logged() {
  log_ += testing::internal::GetCapturedStderr();
  testing::internal::CaptureStderr();
  return log_;
}

void Semantics::change_map(const std::string& name, const std::string& value) {
  EXPECT_TRUE(
      conformance::is_code(patch(configmaps() + "/" + name, {{"data", {{"value", value}}}}), 200));
}

void Semantics::delete_map(const std::string& name) {
  EXPECT_TRUE(conformance::is_code(ask("DELETE", configmaps() + "/" + name), 200));
}

}  // namespace lockstep::semantics
