// Measures what a connection to an agent takes of the controller's memory, and an answer of its CPU
// time: the real client and the code that polls, over loopback, with a server that plays the agents
// in another process.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/controller/scale/cpu_time.h"
#include "bench/controller/scale/played_objects.h"
#include "common/base/descriptors.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/run_main.h"
#include "common/http/guard.h"
#include "common/http/server.h"
#include "controller/kube/agent_http_client.h"
#include "controller/loop/agent_watchers.h"

namespace lockstep::bench {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
constexpr char kAddress[] = "127.0.0.1";

struct Flags {
  int64_t agents = 5'000;
  bool encrypts = false;
  double answer_after = 2;
  double seconds = 20;
};

std::string pod_name(int64_t number) {
  return "job-" + std::to_string(number / 5) + "-worker-" + std::to_string(number % 5) + "-1";
}

AgentState first_state() {
  WorldAssignment world;
  world.members.resize(5);
  AgentState state;
  state.boot_id = state.job_uid = "0b4c1c1c-0000-4000-8000-1234567890ab";
  state.hash = "0123456789abcdef";
  state.phase = "Running";
  state.workers = new_workers(world, 0);
  state.progress = first_progress();
  state.holdings = holdings();
  return state;
}

// Plays all agents behind one port. The k-th connection is the k-th agent's. Answers the first poll
// at once, and others after some time.
class PlayedAgents final : public http::Handler {
 public:
  explicit PlayedAgents(double answer_after) : answer_after_(answer_after) {}

  http::Admission authorize(const http::Head& head) const override {
    if (!head.is_authentic) return {.refusal = error(401, "no session")};
    return {.body_bytes_max = 1024, .authenticated = true};
  }
  http::Response error(unsigned status, const std::string& message) const override {
    return {.status = status, .body = message};
  }
  void handle(http::Request request, Respond respond) override {
    if (request.head.target.find("timeoutSeconds=0") != std::string::npos) return answer(respond);
    const std::lock_guard lock(mutex_);
    waiting_.emplace_back(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                             std::chrono::duration<double>(answer_after_)),
                          std::move(respond));
  }
  [[noreturn]] void run() {
    while (true) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      std::vector<Respond> due;
      {
        const std::lock_guard lock(mutex_);
        while (!waiting_.empty() && waiting_.front().first <= Clock::now()) {
          due.push_back(std::move(waiting_.front().second));
          waiting_.pop_front();
        }
      }
      for (const Respond& respond : due) answer(respond);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void answer(const Respond& respond) {
    const std::lock_guard lock(state_mutex_);
    ++state_.sequence;
    respond({.body = dump_json(to_json(state_))});
  }

  const double answer_after_;
  std::mutex mutex_;
  std::deque<std::pair<Clock::time_point, Respond>> waiting_;
  std::mutex state_mutex_;
  AgentState state_ = first_state();
};

// Runs in a process of its own. Writes its port to the pipe.
[[noreturn]] void play_agents(const Flags& flags, int port_fd) {
  PlayedAgents agents(flags.answer_after);
  int64_t connections = 0;
  const auto guard = [&connections, &flags] {
    return http::session_guards({.server_name = pod_name(connections++),
                                 .secret = kToken,
                                 .must_encrypt = flags.encrypts})();
  };
  const auto server = http::Server::start(
      kAddress, 0, agents,
      {.connections_max = static_cast<size_t>(flags.agents) + 1, .guard = guard});
  const int port = server.ok() ? server.value()->port() : 0;
  if (::write(port_fd, &port, sizeof port) != sizeof port || port == 0) std::_Exit(EXIT_FAILURE);
  agents.run();
}

// Agents without a network: they answer the first request, and keep the others.
class SilentAgents final : public loop::AgentClient {
 public:
  explicit SilentAgents(loop::Timers& timers) : timers_(timers) {}

  void put_assignment(const loop::AgentAddress&, const std::shared_ptr<const Assignment>&, int64_t,
                      Done) override {}
  void poll_state(const loop::AgentAddress&, const loop::StatePoll& poll, Done done) override {
    if (poll.since > 0) {
      open_.push_back(std::move(done));
      return;
    }
    timers_.after(Duration{0}, [done = std::move(done)] {
      AgentState state = first_state();
      state.sequence = 1;
      done(state);
    });
  }
  void forget(const loop::AgentAddress&) override {}

 private:
  loop::Timers& timers_;
  std::deque<Done> open_;
};

struct Memory {
  double heap = 0;
  double resident = 0;
};

Memory memory_now() {
  ::malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return {.heap = static_cast<double>(::mallinfo2().uordblks),
          .resident = resident * static_cast<double>(::sysconf(_SC_PAGESIZE))};
}

class Run {
 public:
  // `port`: of the server that plays the agents; 0: there is no network.
  Run(const Flags& flags, int port) : flags_(flags) {
    if (port > 0) connected_.emplace(kube::AgentHttpOptions{.port = port}, mailbox_, timers_);
  }

  // Connects one agent after the other, so that the server knows who is who.
  bool connect() {
    for (int64_t i = 0; i < flags_.agents; ++i) {
      const std::string job = "job-" + std::to_string(i / 5);
      if (i % 5 == 0) targets_.clear();
      targets_.push_back({.pod_uid = pod_name(i) + "-0b4c1c1c-0000-4000-8000",
                          .pod_name = pod_name(i),
                          .ip = kAddress,
                          .node = "machine",
                          .is_signed = true,
                          .is_encrypted = flags_.encrypts,
                          .job_uid = state_.job_uid,
                          .node_index = state_.node_index,
                          .incarnation = state_.incarnation});
      watchers_->set_targets(job, {kToken}, targets_);
      const std::string& uid = targets_.back().pod_uid;
      const auto is_heard = [&] { return watchers_->views(job).at(uid).state != nullptr; };
      if (!run(10, is_heard)) return false;
    }
    return true;
  }

  bool measure() {
    loop::AgentClient& agents = connected_ ? static_cast<loop::AgentClient&>(*connected_) : silent_;
    const Memory before = memory_now();
    watchers_.emplace(agents, timers_, random_, loop::AgentWatchOptions{},
                      [this](const std::string&, loop::Urgency) { ++changes_; });
    if (!connect()) {
      std::printf("an agent did not answer\n");
      return false;
    }
    if (!connected_) {
      print("no connections: their reports alone", before);
      return true;
    }
    print("all connected, and asked again", before);
    const double cpu = cpu_seconds();
    const uint64_t changes = changes_;
    run(flags_.seconds, [] { return false; });
    print("after the time below", before);
    const auto answers = static_cast<double>(changes_ - changes);
    std::printf("\n%.0f answers in %.0f s, with %.0f us of CPU time for each.\n", answers,
                flags_.seconds, 1e6 * (cpu_seconds() - cpu) / answers);
    return true;
  }

 private:
  // Returns whether it is done before the time is over.
  bool run(double seconds, const std::function<bool()>& done) {
    const TimePoint end = timers_.now() + from_seconds(seconds);
    while (!done() && timers_.now() < end) {
      mailbox_.run();
      timers_.run_due();
      mailbox_.wait(std::min(end, timers_.next().value_or(end)));
    }
    return done();
  }

  void print(const char* when, const Memory& before) const {
    const Memory now = memory_now();
    const auto agents = static_cast<double>(flags_.agents);
    std::printf("| %s | %lld | %.1f | %.1f |\n", when, static_cast<long long>(flags_.agents),
                (now.heap - before.heap) / agents / 1024,
                (now.resident - before.resident) / agents / 1024);
    std::fflush(stdout);
  }

  Flags flags_;
  SystemClock clock_;
  loop::Timers timers_{clock_};
  kube::Mailbox mailbox_;
  Random random_{1};
  std::optional<kube::AgentHttpClient> connected_;
  SilentAgents silent_{timers_};
  uint64_t changes_ = 0;
  const AgentState state_ = first_state();
  std::optional<loop::AgentWatchers> watchers_;
  std::vector<plan::AgentTarget> targets_;
};

int measure(const Flags& flags) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return EXIT_FAILURE;
  const pid_t child = ::fork();
  if (child == 0) play_agents(flags, ends[1]);
  int port = 0;
  const bool is_read = ::read(ends[0], &port, sizeof port) == sizeof port && port != 0;
  std::printf("| %s | agents | heap for each, KiB | resident for each, KiB |\n|---|---|---|---|\n",
              flags.encrypts ? "encrypted sessions" : "signed sessions");
  const bool is_good = is_read && Run(flags, 0).measure() && Run(flags, port).measure();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return is_good ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace lockstep::bench

namespace {

int program(int argc, char** argv) {
  using namespace lockstep;
  bench::Flags flags;
  CLI::App app("What connections to agents take of the controller's memory and CPU time.");
  app.add_option("--agents", flags.agents, "Agents; a descriptor for each, here and in the server")
      ->capture_default_str();
  app.add_flag("--encrypted", flags.encrypts, "With encrypted sessions");
  app.add_option("--answer-after", flags.answer_after, "Seconds that an agent holds a request")
      ->capture_default_str();
  app.add_option("--seconds", flags.seconds, "For which answers are counted")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  set_log_options({.minimum = LogLevel::kError});
  raise_descriptor_limit();
  signal(SIGPIPE, SIG_IGN);
  return bench::measure(flags);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("bench_agent_connections", program, argc, argv);
}
