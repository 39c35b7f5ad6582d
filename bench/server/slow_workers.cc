#include "bench/server/slow_workers.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <thread>

#include "agent/server/parameter_client.h"
#include "common/base/check.h"
#include "common/base/random.h"

namespace lockstep::bench {
namespace {

constexpr auto kLook = std::chrono::milliseconds(1);
constexpr double kSlowShare = 0.1;

}  // namespace

SlowWorkers::SlowWorkers(const ParameterServers& servers, uint32_t workers, Options options)
    : options_(options), workers_(workers) {
  bytes_ = sizeof(WorkerTrace) * workers + 2 * sizeof(std::atomic<uint32_t>);
  void* shared = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  traces_ = static_cast<WorkerTrace*>(shared);  // the mapping is all zero, as a new trace
  ready_ = reinterpret_cast<std::atomic<uint32_t>*>(traces_ + workers);
  go_ = ready_ + 1;
  for (uint32_t worker = 0; worker < workers; ++worker) {
    const pid_t pid = ::fork();
    CHECK(pid >= 0);
    if (pid == 0) work(servers, worker);
    pids_.push_back(pid);
  }
}

SlowWorkers::~SlowWorkers() {
  for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
  for (const pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
  ::munmap(traces_, bytes_);
}

void SlowWorkers::start() {
  while (ready_->load() < workers_) std::this_thread::sleep_for(kLook);
  go_->store(1);
}

bool SlowWorkers::is_slow(uint32_t worker, uint64_t step) const {
  if (options_.slowness == Slowness::kOne) return worker + 1 == workers_;
  if (options_.slowness == Slowness::kNone) return false;
  return Random(options_.seed, step * workers_ + worker).uniform() < kSlowShare;
}

void SlowWorkers::work(const ParameterServers& servers, uint32_t worker) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto rpc = rpc::Client::create({.self = servers.identity_of(worker)});
  CHECK(rpc.ok());
  auto made = server::ParameterClient::create({.rpc = rpc->get(),
                                               .catalog = servers.catalog(),
                                               .view = servers.view(),
                                               .servers = servers.addresses()});
  CHECK(made.ok());
  server::ParameterClient& client = **made;
  std::vector<float> values(servers.catalog().tensors[0].count);
  if (worker == 0) CHECK(client.put({.tensor = 0, .values = values}).wait().ok());
  ready_->fetch_add(1);
  while (go_->load() == 0) std::this_thread::sleep_for(kLook);
  WorkerTrace& trace = traces_[worker];
  using Client = server::ParameterClient;
  for (uint64_t step = 0; step < kTracedSteps; ++step) {
    const auto pulled = client.pull(Client::TensorPull{.clock = step, .into = values}).wait();
    CHECK(pulled.ok());
    if (pulled->slowest < step)
      trace.ahead = std::max<uint64_t>(trace.ahead, step - pulled->slowest);
    std::this_thread::sleep_for(options_.compute * (is_slow(worker, step) ? kSlowFactor : 1));
    const auto pushed =
        client.push(Client::TensorPush{.clock = step, .gradient = values, .learning_rate = 0.1})
            .wait();
    CHECK(pushed.ok());
    if (pushed->is_late) ++trace.late;
    trace.ends[step] = std::chrono::steady_clock::now().time_since_epoch().count();
    trace.steps = step + 1;
  }
  while (true) ::pause();
}

}  // namespace lockstep::bench
