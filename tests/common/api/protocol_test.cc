// Compatibility with agents and controllers of earlier protocol versions.
#include <gtest/gtest.h>

#include "common/api/agent_messages.h"

namespace lockstep {
namespace {

// A state as an agent of version 1 wrote it before version 2 existed: workers don't report how long
// ago they failed, what they wait for, or whether they are lifeless.
constexpr char kStateOfVersion1[] = R"({
  "bootId": "b", "failedSecondsAgo": 0.25, "hash": "92ffaaeb67246a3b", "incarnation": 4,
  "jobUid": "uid", "lastCheckpoint": {"path": "/ckpt/step-00000030", "step": 30}, "nodeIndex": 1,
  "phase": "Failed",
  "progress": {"loss": 2.5, "samples": 0, "step": 40, "steps": 100, "tokens": 0,
               "tokensPerSecond": 0.0},
  "protocol": 1, "round": 7, "sequence": 12,
  "workers": [{"exitCode": 137, "localRank": 0, "logTail": "no memory\n", "phase": "Saving",
               "pid": 100, "rank": 1, "reason": "Signal", "running": false, "signal": 9,
               "step": 40, "suspectRank": 0}]})";

// An assignment as a controller of version 1 wrote it.
constexpr char kAssignmentOfVersion1[] = R"({
  "action": "Run", "checkpoint": {"everySteps": 10, "keep": 3, "path": "/ckpt"}, "exitCode": 0,
  "gracePeriodSeconds": 30, "hash": "92ffaaeb67246a3b", "jobName": "gpt",
  "jobNamespace": "default", "nodeIndex": 1, "protocol": 1, "rendezvousTimeoutSeconds": 60,
  "threadsPerProcess": 0,
  "train": {"batch": {"global": 8, "micro": 0}, "bucketBytes": 4194304,
            "data": {"path": "/data/text", "seed": 1, "tokenizer": "bytes",
                     "validationFraction": 0.0},
            "model": {"context": 32, "family": "gpt2", "heads": 4, "layers": 2, "vocabulary": 0,
                      "width": 64},
            "optimizer": {"beta1": 0.9, "beta2": 0.95, "clipNorm": 1.0, "epsilon": 1e-08,
                          "learningRate": 0.0003, "minimumLearningRate": 0.0, "name": "adamw",
                          "schedule": "cosine", "warmupSteps": 0, "weightDecay": 0.1},
            "precision": "fp32",
            "sample": {"prompt": "\n", "seed": 1, "temperature": 0.8, "tokens": 0, "topK": 40},
            "seed": 1, "steps": 1000, "validation": {"everySteps": 0}},
  "world": {"groups": [], "jobUid": "uid", "mesh": {"data": 2, "pipeline": 1, "tensor": 1},
            "nodes": [{"host": "10.0.0.1", "incarnation": 1, "index": 0, "port": 29500},
                      {"host": "10.0.0.2", "incarnation": 4, "index": 1, "port": 29500}],
            "processesPerNode": 1, "round": 7}})";

// Checks that the newer document has every member of the older one, with the same value.
void expect_has_all_of(const Json& older, const Json& newer, const std::string& path) {
  for (const auto& [key, value] : older.items()) {
    const std::string at = path + "/" + key;
    ASSERT_TRUE(newer.contains(key)) << at;
    if (value.is_object()) {
      expect_has_all_of(value, newer.at(key), at);
    } else {
      EXPECT_EQ(newer.at(key), value) << at;
    }
  }
}

AgentState a_waiting_state() {
  WorkerState worker{.rank = 1, .running = true, .phase = WorkerPhase::kTraining};
  worker.wait = WorkerWait{.operation = "all_reduce #17", .ranks = "0-3", .group_size = 4};
  worker.is_lifeless = true;
  AgentState state;
  state.workers = {worker};
  return state;
}

TEST(Protocol, AStateOfVersion1IsUnderstood) {
  const Result<AgentState> state = agent_state_from_json(*parse_json(kStateOfVersion1));
  ASSERT_TRUE(state.ok()) << state.error().message;
  EXPECT_EQ(state->protocol, 1);
  EXPECT_EQ(state->progress->step, 40);
  const WorkerState& worker = state->workers.at(0);
  EXPECT_EQ(worker.reason, "Signal");
  EXPECT_EQ(worker.exit_code, 137);
  EXPECT_EQ(worker.suspect_rank, 0);
  EXPECT_EQ(worker.wait, std::nullopt);
  EXPECT_FALSE(worker.is_lifeless);
}

TEST(Protocol, AnAssignmentOfVersion1IsUnderstoodAndItsWorldHasTheSameHash) {
  const Result<Assignment> read = assignment_from_json(*parse_json(kAssignmentOfVersion1));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(world_hash(read->world), "92ffaaeb67246a3b");
  EXPECT_TRUE(read->checkpoint.atEnd);
}

TEST(Protocol, AnAssignmentInVersion1SaysAllThatAnAgentOfItReadsAndNothingThatItRefuses) {
  const Json older = *parse_json(kAssignmentOfVersion1);
  const Json newer = to_json(*assignment_from_json(older));
  expect_has_all_of(older, newer, "");
  EXPECT_FALSE(newer.at("checkpoint").contains("onPreemption")) << "\"not in this version\"";
}

TEST(Protocol, AStateInVersion1LeavesOutWhatOnlyTheSecondHas) {
  AgentState state = a_waiting_state();
  EXPECT_EQ(*agent_state_from_json(to_json(state)), state);
  state.protocol = 1;
  const Json document = to_json(state);
  EXPECT_EQ(document.at("protocol"), 1);
  EXPECT_FALSE(document.at("workers").at(0).contains("wait"));
  EXPECT_EQ(agent_state_from_json(document)->workers.at(0).is_lifeless, false);
}

TEST(Protocol, AStateInVersion3LeavesOutWhatRanksHold) {
  AgentState state;
  state.holdings = HoldingsStatus{.sharding = "optimizer", .shardingRanks = 2};
  EXPECT_EQ(*agent_state_from_json(to_json(state)), state);
  state.protocol = 3;
  EXPECT_FALSE(to_json(state).contains("holdings"));
}

TEST(Protocol, OfAVersionThatIsNotServedOnlyThatIsRead) {
  for (const int64_t protocol : {kProtocolOldest - 1, kProtocolNewest + 1, int64_t{1} << 60}) {
    // No other member is valid in this version.
    const Json document = {{"protocol", protocol}, {"sequence", "a"}, {"phase", "Dancing"}};
    const Result<AgentState> state = agent_state_from_json(document);
    ASSERT_TRUE(state.ok()) << state.error().message;
    EXPECT_EQ(*state, AgentState{.protocol = protocol});
  }
  EXPECT_FALSE(agent_state_from_json({{"protocol", "2"}}).ok());
  EXPECT_FALSE(agent_state_from_json({{"sequence", 1}}).ok());
  EXPECT_FALSE(agent_state_from_json(Json::array({3})).ok());
}

}  // namespace
}  // namespace lockstep
