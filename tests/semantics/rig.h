#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "controller/kube/kube_client.h"
#include "controller/loop/informer.h"
#include "tests/conformance/support/case.h"
#include "tests/semantics/fault_proxy.h"

namespace lockstep::semantics {

// A clock that runs `speed` times as fast as the machine's, from the same start, so that tests can
// wait for the real delays of client-go. Its wall clock is off by `skew`.
class FastClock final : public Clock {
 public:
  explicit FastClock(double speed, Duration skew = {});
  TimePoint now() const override;
  WallTime wall_now() const override;
  // Returns the machine's time at which this clock shows `time`.
  TimePoint machine_time(TimePoint time) const;
  double speed() const { return speed_; }

 private:
  const double speed_;
  const TimePoint begin_;
  const WallTime wall_begin_;
};

// The event loop of clients and controllers, run by the calling thread.
class Loop {
 public:
  explicit Loop(double speed = 1, Duration skew = {});

  // Runs until `done` holds. Returns false after a minute of the machine's time, a guard against
  // hangs.
  bool run_until(const std::function<bool()>& done);
  // Runs for `time` on this loop's clock.
  void run_for(Duration time);
  // Runs due timers and received messages.
  void run();
  // Waits for the next of these, but not beyond `until` on the machine's clock.
  void wait(TimePoint until);

  FastClock clock;
  loop::Timers timers{clock};
  kube::Mailbox mailbox;
};

// Runs several loops in turn; see Loop::run_until().
bool run_until(std::initializer_list<Loop*> loops, const std::function<bool()>& done);

inline constexpr loop::ResourceType kConfigMaps{"/api/v1", "configmaps"};

// Returns options of a client whose deadlines are as long on the machine's clock as a controller's.
kube::KubeClientOptions client_options(const Loop& loop, const FaultProxy& proxy);

// An informer behind a proxy, and the changes that it reported: "+a", "~a", "-a" for an object that
// was added, modified or removed.
class Cache {
  Random random_;

 public:
  Cache(Loop& loop, kube::KubeClientOptions client, loop::InformerOptions options);

  // Returns the names in the cache, joined by spaces.
  std::string names() const;
  // Returns the object of that name; null if there is none.
  Json object(const std::string& name) const;
  // Returns how often a change was reported.
  int times(const std::string& change) const;

  std::vector<std::string> changes;
  kube::KubeClient client;
  loop::Informer informer;
};

// A test with its own namespace and a proxy in front of the server.
class Semantics : public conformance::Case {
 protected:
  Semantics() : proxy(conformance::server().target()) {}

  // Selects the test's own configmaps: clusters put others into every namespace.
  loop::InformerOptions of_configmaps() const {
    return {.type = kConfigMaps, .namespace_ = namespace_, .label_selector = "mine=1"};
  }
  // Creates a configmap directly at the server, not through the proxy.
  Json make_map(const std::string& name) {
    return make(configmaps(), named(name, {{"mine", "1"}}));
  }
  void change_map(const std::string& name, const std::string& value);
  void delete_map(const std::string& name);

  void SetUp() override;
  void TearDown() override;
  // Returns the log since the test began. A failed test prints it.
  std::string logged();

  FaultProxy proxy;

 private:
  std::string log_;
};

// Returns a seed for this run and prints it.
uint64_t new_seed();

}  // namespace lockstep::semantics
