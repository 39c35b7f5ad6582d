#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/job_run.h"
#include "tests/support/program.h"

namespace lockstep::test {

inline const std::string kBin = LOCKSTEP_BIN_DIR;

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// One cluster for all tests of a suite.
class ClientFixture : public testing::Test {
 protected:
  static void start(int machines) {
    folder_ = new TemporaryFolder();
    up_ = new Program({.arguments = {kBin + "/lockstep", "up", "--folder", path("up"), "--machines",
                                     std::to_string(machines)}});
    ASSERT_TRUE(eventually(
        [] { return std::filesystem::exists(path("up/kubeconfig")) || !up_->running(); }));
    ASSERT_TRUE(up_->running()) << up_->errors();
    write_file(path("text.txt"), generated_text(20'000, 5));
  }
  static void TearDownTestSuite() {
    up_->signal(SIGINT);
    EXPECT_EQ(up_->wait(60), 0) << up_->errors();
    delete up_;
    delete folder_;
  }

  static std::string path(const std::string& name) { return (folder_->path() / name).string(); }

  // Runs `lockstep WORDS...` with the cluster's kubeconfig.
  static Outcome tool(std::vector<std::string> words,
                      const std::string& kubeconfig = path("up/kubeconfig"),
                      const std::string& program = "lockstep") {
    words.insert(words.begin(), kBin + "/" + program);
    return run_program(
        {.arguments = words,
         .environment = {{"KUBECONFIG", kubeconfig}, {"HOME", folder_->path().string()}}},
        240);
  }

  // Writes a small job's file. Concurrent jobs need different ports only if they share a machine's
  // address.
  static std::string job(const std::string& name, const std::string& data = "text.txt") {
    const std::string file = path(name + ".yaml");
    write_file(file,
               "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata:\n  name: " + name +
                   "\n  labels: {suite: client}\nspec:\n  nodes: 2\n  threadsPerProcess: 1\n"
                   "  failure: {maxRestarts: 0}\n  terminationGracePeriodSeconds: 5\n"
                   "  checkpoint: {path: " +
                   path(name) +
                   "}\n"
                   "  train:\n    model: {layers: 1, width: 16, heads: 2, context: 16}\n    data: "
                   "{path: " +
                   path(data) + "}\n    steps: 5\n    batch: {global: 4}\n");
    return file;
  }

  static inline TemporaryFolder* folder_ = nullptr;
  static inline Program* up_ = nullptr;
};

}  // namespace lockstep::test
