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

// A clock that runs `speed` times as fast as the machine's, from the same beginning, so that
// client-go's real times can be waited for. For people it shows a time that is wrong by `skew`.
class FastClock final : public Clock {
 public:
  explicit FastClock(double speed, Duration skew = {});
  TimePoint now() const override;
  WallTime wall_now() const override;
  // When the machine's clock shows it that this one shows `time`.
  TimePoint machine_time(TimePoint time) const;
  double speed() const { return speed_; }

 private:
  const double speed_;
  const TimePoint begin_;
  const WallTime wall_begin_;
};

// The thread that clients and controllers live on: this one, while it is in here.
class Loop {
 public:
  explicit Loop(double speed = 1, Duration skew = {});

  // False where it doesn't hold within a minute of the machine's time: a guard against hangs.
  bool run_until(const std::function<bool()>& done);
  // So long on this loop's clock.
  void run_for(Duration time);
  // What is due and what has come.
  void run();
  // For more of it, no longer than until the machine's `until`.
  void wait(TimePoint until);

  FastClock clock;
  Timers timers{clock};
  Mailbox mailbox;
};

// Several loops side by side.
bool run_until(std::initializer_list<Loop*> loops, const std::function<bool()>& done);

inline constexpr ResourceType kConfigMaps{"/api/v1", "configmaps"};

// A client whose deadlines are as long on the machine's clock as a controller's.
KubeClientOptions client_options(const Loop& loop, const FaultProxy& proxy);

// An informer behind a proxy, and what it reported: "+a", "~a", "-a".
class Cache {
  Random random_;

 public:
  Cache(Loop& loop, KubeClientOptions client, InformerOptions options);

  // The names that it has, joined by spaces.
  std::string names() const;
  // "a" -> the object; null where there is none.
  Json object(const std::string& name) const;
  // How often a change was reported.
  int times(const std::string& change) const;

  std::vector<std::string> changes;
  KubeClient client;
  Informer informer;
};

// One test, with a namespace of its own, and a proxy before the server.
class Semantics : public conformance::Case {
 protected:
  Semantics() : proxy(conformance::server().target()) {}

  // Of our own: clusters put others into every namespace.
  InformerOptions of_configmaps() const {
    return {.type = kConfigMaps, .namespace_ = namespace_, .label_selector = "mine=1"};
  }
  // Made at the server itself.
  Json make_map(const std::string& name) {
    return make(configmaps(), named(name, {{"mine", "1"}}));
  }
  void change_map(const std::string& name, const std::string& value);
  void delete_map(const std::string& name);

  void SetUp() override;
  void TearDown() override;
  // What was logged since the test began; it is printed where the test has failed.
  std::string logged();

  FaultProxy proxy;

 private:
  std::string log_;
};

// A seed for this run, printed.
uint64_t new_seed();

}  // namespace lockstep::semantics
