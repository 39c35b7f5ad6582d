#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "local/node/embedded_node_api.h"
#include "local/node/local_node.h"

namespace lockstep::local {

inline constexpr char kPods[] = "/api/v1/namespaces/default/pods";
inline constexpr auto kGuard = std::chrono::seconds(30);

inline std::string text_of(const std::string& file) {
  return end_of_file(file, 1u << 20);
}

// A local node with real processes and the embedded server.
class NodeTest : public testing::Test {
 protected:
  NodeTest() {
    folder_ = testing::TempDir() + "lockstep-node-" + std::to_string(getpid());
    api_.on_change([this] {
      std::lock_guard lock(mutex_);
      changed_.notify_all();
    });
  }
  ~NodeTest() override {
    node_.reset();
    std::filesystem::remove_all(folder_);
  }

  // `gpus` are those of the only machine.
  void start_node(size_t machines = 0, const Gpus& gpus = {}) {
    LocalNodeOptions options{.pods = {.folder = folder_ + "/pods",
                                      .program_folder = folder_ + "/none",
                                      .backoff_first = std::chrono::milliseconds(200),
                                      .backoff_max = std::chrono::milliseconds(800),
                                      .retry = std::chrono::milliseconds(50)},
                             .logs = {.folder = folder_ + "/logs", .keep = true},
                             .seed = static_cast<uint64_t>(getpid())};
    options.machines.front().gpus = gpus;
    if (machines > 0) options.machines = divided_computer(machines, {});
    auto node = LocalNode::start(node_api(), host_, clock_, options);
    ASSERT_TRUE(node.ok());
    node_ = *std::move(node);
  }
  virtual NodeApi& node_api() { return node_api_; }
  ApiResponse ask(const std::string& method, const std::string& target, const Json& body = Json()) {
    return api_.handle({method, target, "", body.is_null() ? "" : dump_json(body)});
  }
  Json get(const std::string& name) { return ask("GET", std::string(kPods) + "/" + name).body; }

  static Json shell_pod(const std::string& name, const std::string& script) {
    return {
        {"metadata", {{"name", name}, {"labels", {{"role", "worker"}}}}},
        {"spec",
         {{"restartPolicy", "Never"},
          {"containers",
           Json::array(
               {{{"name", "node"}, {"image", "none"}, {"command", {"/bin/sh", "-c", script}}}})}}}};
  }
  void make(const Json& pod) {
    ApiResponse made = ask("POST", kPods, pod);
    ASSERT_EQ(made.code, 201) << made.body;
  }
  void make_object(const std::string& plural, const Json& object) {
    EXPECT_EQ(ask("POST", "/api/v1/namespaces/default/" + plural, object).code, 201);
  }
  bool wait_for_event(const std::string& reason, const std::string& text) {
    return wait_until([&] {
      Json events = ask("GET", "/api/v1/events").body["items"];
      for (const Json& event : events) {
        if (event["reason"] == reason &&
            event["message"].get<std::string>().find(text) != std::string::npos)
          return true;
      }
      return false;
    });
  }
  template <class Condition>
  bool wait_until(Condition condition) {
    auto deadline = std::chrono::steady_clock::now() + kGuard;
    std::unique_lock lock(mutex_);
    while (true) {
      lock.unlock();
      bool holds = condition();
      lock.lock();
      if (holds) return true;
      if (std::chrono::steady_clock::now() > deadline) return false;
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
  }
  bool wait_for_phase(const std::string& name, const std::string& phase) {
    return wait_until([&] {
      Json pod = get(name);
      return pod.contains("status") && pod["status"]["phase"] == phase;
    });
  }
  bool wait_gone(const std::string& name) {
    return wait_until([&] { return get(name)["code"] == 404; });
  }
  std::string log_of(const std::string& name) {
    return text_of(folder_ + "/logs/" + name + ".log");
  }
  bool wait_for_log(const std::string& name, const std::string& text) {
    return wait_until([&] { return log_of(name).find(text) != std::string::npos; });
  }
  // Returns the processes whose LOCKSTEP_POD_ROOT is in the pod's folder.
  std::vector<pid_t> processes_of(const std::string& name) {
    std::vector<pid_t> all;
    std::string entry = "LOCKSTEP_POD_ROOT=" + folder_ + "/pods/" + name + "-";
    std::error_code error;
    for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
      int pid = std::atoi(process.path().filename().c_str());
      if (pid <= 0 || pid == getpid()) continue;
      std::ifstream environment(process.path() / "environ", std::ios::binary);
      std::string text{std::istreambuf_iterator<char>(environment), {}};
      if (text.find(entry) != std::string::npos) all.push_back(pid);
    }
    return all;
  }

  std::string folder_;
  SystemClock clock_;
  Api api_{clock_, 1};
  EmbeddedNodeApi node_api_{api_};
  std::mutex mutex_;
  std::condition_variable changed_;
  ProcessHost host_;
  std::unique_ptr<LocalNode> node_;
};

}  // namespace lockstep::local
