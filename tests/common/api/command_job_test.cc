// A TrainingJob that runs a command: what its validation refuses, and its ports.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/common/api/training_jobs.h"

namespace lockstep {
namespace {

// Returns the error of a job that runs a command, with one value changed.
std::string command_error_with(const std::string& pointer, Json value) {
  Json document = good_document();
  document["spec"].erase("train");
  document["spec"]["command"] = {"python3", "train.py", ""};
  document[Json::json_pointer(pointer)] = std::move(value);
  const Result<TrainingJob> job = valid_training_job_from_json(document);
  return job.ok() ? "no error" : job.error().message;
}

TEST(TrainingJob, ACommandIsCheckedAndLeavesToItsProgramWhatTheLoopWouldDo) {
  constexpr char kLoop[] =
      ", which is only valid with spec.train; omit the field, because a command does this itself";
  const std::vector<Refusal> cases = {
      {"/spec/nodes", 3, "no error"},
      {"/spec/checkpoint", {{"path", "/ckpt"}}, "no error"},
      {"/spec/checkpoint", {{"path", "/ckpt"}, {"onPreemption", "5m"}}, "no error"},
      {"/spec/rendezvous", {{"variables", {"jax", "tensorflow", "mpi"}}}, "no error"},
      {"/spec/gpusPerNode", 8, "no error"},  // with processesPerNode: 2
      {"/spec/command", Json::array(),
       "spec: found neither train nor command, expected exactly one of them"},
      {"/spec/command", {""}, "spec.command[0]: found \"\", expected a program"},
      {"/spec/command", {"sh", 3}, "spec.command[1]: found 3, expected a string"},
      {"/spec/command",
       {"sh", std::string("a\0b", 3)},
       "spec.command[1]: found \"a\\u0000b\", expected text without zero bytes"},
      {"/spec/command",
       {"sh", std::string(70'000, 'x')},
       "spec.command[1]: 70000 bytes, expected at most 65536"},
      {"/spec/command",
       {"sh", std::string(60'000, 'x'), std::string(60'000, 'y'), std::string(60'000, 'z')},
       "spec.command: 180006 bytes, expected at most 131072 (put a script into the image)"},
      {"/spec/rendezvous",
       {{"variables", {"jax", "pytorch"}}},
       "spec.rendezvous.variables[1]: found \"pytorch\", expected jax, tensorflow or mpi"},
      {"/spec/rendezvous",
       {{"variables", {""}}},
       "spec.rendezvous.variables[0]: found \"\", expected jax, tensorflow or mpi"},
      {"/spec/rendezvous",
       {{"variables", {"mpi", "mpi"}}},
       "spec.rendezvous.variables[1]: \"mpi\" is listed twice"},
      {"/spec/security", {{"encryption", "none"}}, "no error"},
      {"/spec/security",
       {{"encryption", "required"}},
       "spec.security.encryption: found \"required\", which is only valid with spec.train, "
       "expected none, because a command's traffic is its own"},
      {"/spec/security",
       {{"encryption", "some"}},
       "spec.security.encryption: found \"some\", expected none or required"},
      {"/spec/security", {{"networkPolicy", "job"}}, "no error"},
      {"/spec/security",
       {{"networkPolicy", "all"}},
       "spec.security.networkPolicy: found \"all\", expected auto, job or none"},
  };
  for (const Refusal& c : cases) {
    EXPECT_EQ(command_error_with(c.pointer, c.value), c.error) << c.pointer;
  }
  const std::pair<const char*, Json> loops_own[] = {
      {"/spec/parallelism/sharding", "optimizer"}, {"/spec/parallelism/reducePrecision", "bf16"},
      {"/spec/parallelism/offload", "optimizer"},  {"/spec/checkpoint/everySteps", 5},
      {"/spec/checkpoint/atEnd", false},           {"/spec/checkpoint/keep", 5},
      {"/spec/rendezvous/timeoutSeconds", 5}};
  for (const auto& [pointer, value] : loops_own) {
    std::string path = std::string(pointer).substr(1);
    std::replace(path.begin(), path.end(), '/', '.');
    EXPECT_EQ(command_error_with(pointer, value), path + ": found " + value.dump() + kLoop);
  }
  EXPECT_EQ(command_error_with("/spec/checkpoint/memory", Json::object()),
            "spec.checkpoint.memory: only valid with spec.train; omit the field, because a command "
            "does this itself");
  EXPECT_EQ(command_error_with("/spec/parallelism/tensor", 2), "no error");
  EXPECT_EQ(command_error_with("/spec/parallelism/pipeline", 2), "no error");
  EXPECT_EQ(error_with("/spec/rendezvous/variables", {"jax"}),
            "spec.rendezvous.variables: only valid with spec.command, which is not set");
}

TEST(TrainingJob, TheRanksPortsAreTheirOwn) {
  EXPECT_EQ(error_with("/spec/rendezvous/port", 29399),
            "spec.rendezvous.port: 29399 to 29400, the ports of 2 processes, include the agent's "
            "port 29400, expected a range without it");
  EXPECT_EQ(error_with("/spec/rendezvous/port", 29398), "no error");
  EXPECT_EQ(command_error_with("/spec/rendezvous/port", 29385),
            "spec.rendezvous.port: 29385 to 29400, the ports of 2 processes with 8 ports each, "
            "include the agent's port 29400, expected a range without it");
  EXPECT_EQ(command_error_with("/spec/rendezvous/port", 29384), "no error");
  EXPECT_EQ(command_error_with("/spec/rendezvous/port", 65530),
            "spec.rendezvous.port: 65530 leaves no room for 2 processes with 8 ports each, "
            "expected at most 65520");
}

TEST(TrainingJob, RoundsOfACommandTakeTheirPortsInTurn) {
  TrainingJobSpec spec;
  spec.processesPerNode = 3;
  spec.command = {"sh"};
  EXPECT_EQ(port_count(spec), 24);
  EXPECT_EQ(round_port(spec, 1), 29500);
  EXPECT_EQ(round_port(spec, 2), 29503);
  EXPECT_EQ(round_port(spec, 8), 29521);
  EXPECT_EQ(round_port(spec, 9), 29500);
  spec.train.emplace();
  EXPECT_EQ(port_count(spec), 3);
  EXPECT_EQ(round_port(spec, 9), 29500);
}

}  // namespace
}  // namespace lockstep
