#pragma once

#include <string>
#include <vector>

#include "tests/controller/sim/chance.h"
#include "tests/controller/sim/fake_store.h"

namespace lockstep::sim {

struct JobOptions {
  std::string name;
  int64_t nodes = 1;
  int64_t steps = 10;
  int64_t max_restarts = 10;
};

bool is_illegal(const Json& spec);

// Those who write jobs: they scale, suspend and delete them, write what isn't valid, and lay hands
// on pods.
class Users {
 public:
  Users(Chance& chance, FakeStore& store);

  // Its key: namespace/name.
  std::string add_job(const JobOptions& options);
  // Puts right what they did wrong.
  void calm_down();

 private:
  void edit_jobs();
  void edit_pods();
  void edit_job(const std::string& key);
  void spoil_label(const std::string& key);
  void replace_job(const std::string& key);

  Chance& chance_;
  FakeStore& store_;
};

}  // namespace lockstep::sim
