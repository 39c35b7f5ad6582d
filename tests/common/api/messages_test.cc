#include <gtest/gtest.h>

#include <limits>

#include "common/api/agent_messages.h"
#include "common/api/message_fields.h"
#include "common/api/worker_config.h"

namespace lockstep {
namespace {

WorldAssignment a_world() {
  TrainingJobSpec spec;
  spec.nodes = 2;
  spec.processesPerNode = 2;
  const WorldInput input{.job_uid = "uid",
                         .round = 7,
                         .members = {{0, 1, "127.1.0.1", 29500}, {1, 4, "127.1.0.2", 29500}}};
  return *make_world(spec, input);
}

TrainSpec a_train() {
  TrainSpec train;
  train.model = {.layers = 2, .width = 64, .heads = 4, .context = 32};
  train.data = {.path = "/data/text", .validationFraction = 0.05, .seed = 9};
  train.sample.prompt = "";  // not the default, and empty
  return train;
}

Assignment an_assignment() {
  Assignment assignment;
  assignment.job_name = "gpt";
  assignment.job_namespace = "default";
  assignment.node_index = 1;
  assignment.world = a_world();
  assignment.hash = world_hash(assignment.world);
  assignment.train = a_train();
  assignment.checkpoint = {.path = "/ckpt", .everySteps = 10, .atEnd = false, .keep = 2};
  assignment.gpus_per_node = 8;
  assignment.threads_per_process = 3;
  return assignment;
}

AgentState a_state() {
  AgentState state{.sequence = 12,
                   .boot_id = "b",
                   .job_uid = "uid",
                   .node_index = 1,
                   .incarnation = 4,
                   .round = 7,
                   .hash = "0123456789abcdef",
                   .phase = "Failed"};
  state.workers = {
      {.rank = 2,
       .local_rank = 0,
       .pid = 100,
       .running = false,
       .exit_code = 137,
       .signal = 9,
       .reason = "Signal",
       .log_tail = "no\nmemory\n",
       .phase = WorkerPhase::kSaving,
       .step = 40,
       .micro_batch = 3,
       .suspect_rank = 1,
       .wait = WorkerWait{.operation = "reduce_scatter #123456789",
                          .ranks = "0, 2, 4, 6, 8, 10, 12, 14, 16, ...",
                          .group_size = 4096,
                          .waits_for = {4088, 4089, 4090, 4091, 4092, 4093, 4094, 4095},
                          .seconds = 12.5},
       .is_lifeless = true}};
  state.holdings = HoldingsStatus{.sharding = "gradients",
                                  .shardingRanks = 4,
                                  .parametersBytes = 1 << 20,
                                  .gradientsBytes = 2,
                                  .optimizerBytes = 3,
                                  .gatheredBytes = 4,
                                  .activationsBytes = 5,
                                  .offloadedBytes = 6};
  state.progress = ProgressStatus{{.step = 40,
                                   .steps = 100,
                                   .loss = 2.5,
                                   .tokens_per_second = 1e5,
                                   .samples_per_second = 12.5,
                                   .palm_mfu = 0.41}};
  state.last_checkpoint = CheckpointStatus{.step = 30, .path = "/ckpt/step-00000030"};
  state.storage = StorageState{.saved = 3,
                               .failed_step = 40,
                               .failure = "/ckpt/step-00000040: no space left on device",
                               .set_aside = 1,
                               .set_aside_step = 20,
                               .set_aside_reason = "/ckpt/step-00000020: caf\u00e9",
                               .resumed_step = 10,
                               .from_memory = true};
  state.failed_seconds_ago = 0.25;
  return state;
}

template <class T>
Json through_text(const T& message) {
  return *parse_json(dump_json(to_json(message)));
}

TEST(AgentMessages, AssignmentReadsBackWhatItWrote) {
  const Result<Assignment> read = assignment_from_json(through_text(an_assignment()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, an_assignment());
}

TEST(AgentMessages, AgentStateReadsBackWhatItWrote) {
  const Result<AgentState> read = agent_state_from_json(through_text(a_state()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, a_state());
  EXPECT_EQ(*agent_state_from_json(through_text(AgentState{})), AgentState{});
}

TEST(AgentMessages, NumbersThatJsonCannotHoldAreLeftOut) {
  AgentState state = a_state();
  state.progress->loss = std::numeric_limits<double>::quiet_NaN();
  state.progress->tokens_per_second = std::numeric_limits<double>::infinity();
  const Json document = through_text(state);
  EXPECT_FALSE(document.at("progress").contains("loss"));
  EXPECT_FALSE(document.at("progress").contains("tokensPerSecond"));
  EXPECT_EQ(agent_state_from_json(document)->progress->loss, std::nullopt);
}

TEST(AgentMessages, EveryPhaseHasANameThatReadsBack) {
  for (uint32_t i = 0; i <= static_cast<uint32_t>(WorkerPhase::kDone); ++i) {
    const auto phase = static_cast<WorkerPhase>(i);
    EXPECT_EQ(*worker_phase_from_name(worker_phase_name(phase)), phase);
  }
  EXPECT_FALSE(worker_phase_from_name("Sleeping").ok());
  EXPECT_EQ(worker_phase_name(static_cast<WorkerPhase>(77)), "Unknown");
}

TEST(AgentMessages, ANewerSidesUnknownMembersArePassedOver) {
  Json document = through_text(an_assignment());
  document["later"] = {1, 2};
  document["train"]["later"] = true;
  EXPECT_EQ(*assignment_from_json(document), an_assignment());
}

TEST(AgentMessages, RefuseWhatCannotBeCarriedOut) {
  const Json good = through_text(an_assignment());
  const auto error_of = [&](const char* pointer, Json value) {
    Json changed = good;
    changed[Json::json_pointer(pointer)] = std::move(value);
    const Result<Assignment> read = assignment_from_json(changed);
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_EQ(error_of("/protocol", 17), "assignment.protocol: 17 is out of range, expected 1 to 16");
  EXPECT_EQ(error_of("/action", "Dance"),
            "assignment.action: found \"Dance\", expected Run or Exit");
  EXPECT_EQ(error_of("/nodeIndex", 2), "assignment.nodeIndex: 2 is not in the world of 2 nodes");
  EXPECT_EQ(error_of("/nodeIndex", "two"),
            "assignment.nodeIndex: found the string \"two\", expected an integer");
  EXPECT_EQ(error_of("/world/round", 8).substr(0, 16), "assignment.hash:");
  EXPECT_EQ(error_of("/world/nodes/0/port", 70000),
            "assignment.world.nodes[0]: port 70000 with 2 processes, expected 1 to 65534");
  EXPECT_EQ(error_of("/world", 1).substr(0, 17), "assignment.world.");
  Json without = good;
  without.erase("world");
  EXPECT_EQ(assignment_from_json(without).error().message,
            "assignment.world: missing, expected an object");
  EXPECT_FALSE(assignment_from_json(Json(1)).ok());
}

TEST(AgentMessages, AnEncryptedWorldNeedsItsProtocolVersionAndTrain) {
  TrainingJobSpec spec;
  spec.train.emplace();
  spec.security.encryption = "required";
  const std::vector<WorldMember> two = {{0, 1, "10.0.0.1", 29500}, {1, 1, "10.0.0.2", 29500}};
  const WorldInput input{.job_uid = "uid", .round = 7, .members = two};
  Assignment assignment = an_assignment();
  assignment.world = *make_world(spec, input);
  assignment.train = spec.train;
  assignment.hash = world_hash(assignment.world);
  EXPECT_EQ(protocol_needed(assignment.world, spec.train), 7);
  EXPECT_EQ(*assignment_from_json(through_text(assignment)), assignment);
  const auto error_of = [](const Assignment& wrong) {
    return assignment_from_json(through_text(wrong)).error().message;
  };
  assignment.protocol = 6;
  EXPECT_EQ(error_of(assignment),
            "assignment.protocol: 6, expected 7 for a world with a mesh, gaps, roles, a layout or "
            "encryption, for rules about losses, and for a new model, optimizer or timeline");
  assignment.protocol = 7;
  assignment.train.reset();
  EXPECT_EQ(error_of(assignment),
            "assignment.world.encryption: found required, expected none without train");
}

TEST(AgentMessages, RulesAboutLossesNeedTheirProtocolVersion) {
  TrainingJobSpec spec;
  spec.train.emplace();
  const WorldInput input{.job_uid = "uid", .round = 7, .members = {{0, 1, "10.0.0.1", 29500}}};
  const WorldAssignment world = *make_world(spec, input);
  EXPECT_EQ(protocol_needed(world, spec.train, wishes_of(spec)), kProtocolOldest);
  spec.failure.rules = {{.event = "LossNotFinite", .action = "Fail"}};
  EXPECT_EQ(protocol_needed(world, spec.train, wishes_of(spec)), kProtocolOldest)
      << "what older workers do";
  spec.failure.rules = {{.event = "LossNotFinite", .action = "SkipBatch"}};
  EXPECT_EQ(protocol_needed(world, spec.train, wishes_of(spec)), 9);
  spec.failure.rules = {{.event = "LossSpike", .action = "Fail"}};
  EXPECT_EQ(protocol_needed(world, spec.train, wishes_of(spec)), 9);
}

TEST(AgentMessages, NewSchedulesAveragesAndPiecesNeedTheirProtocolVersion) {
  TrainingJobSpec spec;
  spec.train.emplace();
  const WorldInput input{.job_uid = "uid", .round = 7, .members = {{0, 1, "10.0.0.1", 29500}}};
  const WorldAssignment world = *make_world(spec, input);
  const auto needed = [&](const char* schedule) {
    spec.train->optimizer.schedule = schedule;
    return protocol_needed(world, spec.train);
  };
  EXPECT_EQ(needed("linear"), kProtocolOldest);
  EXPECT_EQ(needed("warmupStableDecay"), 10);
  EXPECT_EQ(needed("step"), 10);
  spec.train->ema = 0.99;
  EXPECT_EQ(needed("cosine"), 10);
  spec.train->ema = 0;
  spec.train->data.pieces = "text.pieces";
  EXPECT_EQ(needed("cosine"), 10);
  spec.train->dropout = 0.1;
  EXPECT_EQ(needed("cosine"), 11);
}

TEST(AgentMessages, WhatTravelsToServersNeedsItsProtocolVersion) {
  TrainingJobSpec spec;
  EXPECT_FALSE(wishes_of(spec).has_transfers);
  spec.parameterServers.emplace();
  EXPECT_FALSE(wishes_of(spec).has_transfers);
  for (const auto& change : {+[](ParameterServersSpec& servers) { servers.pushPrecision = "int8"; },
                             +[](ParameterServersSpec& servers) { servers.pullPrecision = "bf16"; },
                             +[](ParameterServersSpec& servers) { servers.rows.decay = 0.1; },
                             +[](ParameterServersSpec& servers) { servers.rows.pushThreshold = 1; },
                             +[](ParameterServersSpec& servers) { servers.rows.idleSteps = 7; }}) {
    spec.parameterServers.emplace();
    change(*spec.parameterServers);
    EXPECT_TRUE(wishes_of(spec).has_transfers);
  }
}

TEST(AgentMessages, ABertNeedsItsProtocolVersion) {
  TrainingJobSpec spec;
  spec.train.emplace();
  const WorldInput input{.job_uid = "uid", .round = 7, .members = {{0, 1, "10.0.0.1", 29500}}};
  const WorldAssignment world = *make_world(spec, input);
  spec.train->model.preset = "bert-tiny";
  EXPECT_EQ(protocol_needed(world, spec.train), 14);
  spec.train->model = {.family = "bert"};
  EXPECT_EQ(protocol_needed(world, spec.train), 14);
  spec.train->model = {.family = "gpt2"};
  EXPECT_EQ(protocol_needed(world, spec.train), kProtocolOldest);
  spec.train->optimizer.name = "muon";
  EXPECT_EQ(protocol_needed(world, spec.train), 15);
  EXPECT_EQ(protocol_needed(world, spec.train, {.has_gpus = true}), 16);
}

TEST(AgentMessages, AWorldWithGapsRolesOrALayoutNeedsItsProtocolVersion) {
  TrainingJobSpec spec;
  const std::vector<WorldMember> two = {{0, 1, "10.0.0.1", 29500}, {1, 1, "10.0.0.2", 29500}};
  WorldInput input{.job_uid = "uid", .round = 7, .members = two};
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), kProtocolOldest);
  spec.parallelism.tensor = 2;
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 5);
  spec.parallelism.tensor = 1;
  for (const auto& change : {+[](StateSharing& sharing) { sharing.sharding = "optimizer"; },
                             +[](StateSharing& sharing) { sharing.offload = "optimizer"; },
                             +[](StateSharing& sharing) { sharing.reducePrecision = "bf16"; },
                             +[](StateSharing& sharing) { sharing.exchange = "firstRank"; }}) {
    spec.parallelism = {};
    change(spec.parallelism);
    EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 4);
  }
  spec.parallelism = {};
  spec.parallelism.pipeline = 2;
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 5);
  spec.train.emplace();
  spec.parallelism.pipelineSchedule = "pipedream";
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 7);
  spec.parallelism.pipelineSchedule = "zerobubble";
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 6);
  spec.parallelism.pipelineSchedule = "1f1b";
  spec.parallelism.stages = {1, 2};
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 6);
  spec.train.reset();
  spec.parallelism = {};
  input.members[1].role = MemberRole::kServer;
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 12);
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train, {.has_copies = true}), 13);
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train, {.has_transfers = true}), 16);
  input.members[1].role = MemberRole::kWorker;
  spec.train.emplace();
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), kProtocolOldest);
  spec.train->optimizer.name = "sgd";
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 3);
  spec.train = TrainSpec{.timeline = {.everySteps = 10}};
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 5);
  spec.train = TrainSpec{.model = {.family = "mlp"}};
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 3);
  spec.parallelism.pipeline = 2;
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 14);
  spec.train = TrainSpec{.model = {.preset = "resnet20"}};
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 14);
  spec.parallelism = {};
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 11);
  spec.train->dropout = 0.1;
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 14);
  input.members[1].role = MemberRole::kServer;
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 16);
  input.members[1].role = MemberRole::kWorker;
  spec.train.reset();
  input.members[1] = {2, 1, "10.0.0.3", 29500};
  EXPECT_EQ(protocol_needed(*make_world(spec, input), spec.train), 3);

  Assignment assignment = an_assignment();
  assignment.world = *make_world(spec, input);
  assignment.hash = world_hash(assignment.world);
  assignment.node_index = 2;
  EXPECT_EQ(*assignment_from_json(through_text(assignment)), assignment);
  EXPECT_EQ(place_in_round(assignment), 1);
  const auto error_of = [](const Assignment& wrong) {
    return assignment_from_json(through_text(wrong)).error().message;
  };
  assignment.node_index = 1;
  EXPECT_EQ(error_of(assignment), "assignment.nodeIndex: 1 is not in the world of 2 nodes");
  assignment.node_index = 2;
  assignment.protocol = 2;
  EXPECT_EQ(error_of(assignment),
            "assignment.protocol: 2, expected 3 for a world with a mesh, gaps, roles, a layout or "
            "encryption, for rules about losses, and for a new model, optimizer or timeline");
  assignment.protocol = 3;
  assignment.train.reset();
  EXPECT_TRUE(assignment_from_json(through_text(assignment)).ok()) << "a gap concerns any program";
  spec.parallelism.sharding = "optimizer";
  assignment.world = *make_world(spec, input);
  assignment.hash = world_hash(assignment.world);
  EXPECT_EQ(error_of(assignment),
            "assignment.protocol: 3, expected 4 for a world with a mesh, gaps, roles, a layout or "
            "encryption, for rules about losses, and for a new model, optimizer or timeline");
  assignment.protocol = 4;
  EXPECT_EQ(error_of(assignment),
            "assignment.world: found roles or a layout, expected none without train");
}

TEST(AgentMessages, AgentStateStaysWithinItsBoundAndKeepsTheEndsOfTheLogs) {
  AgentState state = a_state();
  state.workers.assign(128, state.workers[0]);
  for (WorkerState& worker : state.workers) {
    worker.log_tail = std::string(100'000, '\x01') + "the last words";  // 6 bytes each in JSON
  }
  state.storage->failure = std::string(kStorageTextBytesMax, 'x');
  state.storage->set_aside_reason = std::string(kStorageTextBytesMax, 'x');
  const Json document = to_json(state);
  EXPECT_LE(dump_json(document).size(), kAgentStateBytesMax);
  const Result<AgentState> read = agent_state_from_json(document);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->workers.size(), 128u);
  EXPECT_TRUE(read->workers[127].log_tail.ends_with("the last words"));
}

TEST(AgentMessages, TheLargestHoldingsAreTheLargestOfEachNumber) {
  std::optional<HoldingsStatus> largest;
  take_largest({.sharding = "parameters", .shardingRanks = 4, .gradientsBytes = 7}, largest);
  take_largest({.sharding = "parameters",
                .shardingRanks = 4,
                .parametersBytes = 1,
                .gradientsBytes = 2,
                .optimizerBytes = 3,
                .gatheredBytes = 4,
                .activationsBytes = 5,
                .offloadedBytes = 6},
               largest);
  EXPECT_EQ(*largest, (HoldingsStatus{.sharding = "parameters",
                                      .shardingRanks = 4,
                                      .parametersBytes = 1,
                                      .gradientsBytes = 7,
                                      .optimizerBytes = 3,
                                      .gatheredBytes = 4,
                                      .activationsBytes = 5,
                                      .offloadedBytes = 6}));
}

TEST(AgentMessages, AnAgentsWordsAreWithinWhatTheStatusTakes) {
  const auto error_of = [](const char* pointer, Json value) {
    Json changed = through_text(a_state());
    changed[Json::json_pointer(pointer)] = std::move(value);
    const Result<AgentState> read = agent_state_from_json(changed);
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_EQ(error_of("/workers/0/exitCode", -7),
            "state.workers[0].exitCode: -7 is out of range, expected 0 to 255");
  EXPECT_NE(error_of("/workers/0/exitCode", 256), "");
  EXPECT_NE(error_of("/workers/0/signal", -1), "");
  EXPECT_EQ(error_of("/holdings/shardingRanks", 0),
            "state.holdings.shardingRanks: 0 is out of range, expected 1 to 9007199254740992");
  EXPECT_NE(error_of("/holdings/offloadedBytes", -1), "");
  EXPECT_NE(error_of("/workers/0/failedSecondsAgo", 1e10), "");
  EXPECT_NE(error_of("/failedSecondsAgo", 9e15), "");
  EXPECT_EQ(error_of("/failedSecondsAgo", 86400), "");
}

TEST(AgentMessages, AReasonIsOneWord) {
  AgentState state = a_state();
  for (const std::string& good :
       {std::string(), std::string("OOMKilled"), std::string("OfALaterVersion")}) {
    state.workers[0].reason = good;
    EXPECT_EQ(agent_state_from_json(through_text(state))->workers[0].reason, good);
  }
  for (const std::string& bad :
       {std::string("step 17"), std::string("a\nb"), std::string("x1"), std::string(65, 'a')}) {
    state.workers[0].reason = bad;
    EXPECT_EQ(agent_state_from_json(through_text(state))->workers[0].reason, "Error") << bad;
  }
}

TEST(AgentMessages, AnOlderAgentsStateTellsNothingOfTheStorage) {
  Json document = through_text(a_state());
  ASSERT_EQ(document.erase("storage"), 1u);
  const Result<AgentState> read = agent_state_from_json(document);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_FALSE(read->storage);
}

TEST(AgentMessages, TextsOfTheStorageAreBoundedAndHaveNoControlCharacters) {
  AgentState state = a_state();
  state.storage->failure = "step-40:\n\x7fno space\tleft";
  const Result<AgentState> read = agent_state_from_json(through_text(state));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->storage->failure, "step-40:??no space?left");
  EXPECT_EQ(read->storage->set_aside_reason, state.storage->set_aside_reason);
  const auto is_read = [&](const char* pointer, Json value) {
    Json changed = through_text(a_state());
    changed[Json::json_pointer(pointer)] = std::move(value);
    return agent_state_from_json(changed).ok();
  };
  EXPECT_TRUE(is_read("/storage/failure", std::string(1024, 'x')));
  EXPECT_FALSE(is_read("/storage/failure", std::string(1025, 'x')));
  EXPECT_FALSE(is_read("/storage/setAsideReason", std::string(1025, 'x')));
  EXPECT_FALSE(is_read("/storage/failedStep", -2));
  EXPECT_FALSE(is_read("/storage/saved", -1));
}

TEST(AgentMessages, ALossMayBeAnyNumber) {
  AgentState state = a_state();
  for (const double loss : {1e20, -3e200, 1e-300}) {
    state.progress->loss = loss;
    const Result<AgentState> read = agent_state_from_json(through_text(state));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->progress->loss, loss);
  }
}

TEST(AgentMessages, ALogTailIsCutBetweenCharacters) {
  AgentState state = a_state();
  state.workers[0].log_tail.clear();
  for (int i = 0; i < 2000; ++i) state.workers[0].log_tail += "\u00e9";
  state.workers[0].log_tail += "x";  // so that a cut by bytes would split a character
  const std::string tail = agent_state_from_json(through_text(state))->workers[0].log_tail;
  EXPECT_EQ(tail.find("\ufffd"), std::string::npos);
  EXPECT_EQ(tail.size(), 2047u);
}

WorkerConfig a_config() {
  WorkerConfig config;
  config.job_name = "gpt";
  config.boot_id = "8f3a";
  config.world = a_world();
  config.hash = world_hash(config.world);
  config.rank = 3;
  config.train = a_train();
  config.token_file = "/var/run/lockstep/token/token";
  config.progress_fd = 5;
  return config;
}

TEST(WorkerConfig, ReadsBackWhatItWrote) {
  const Result<WorkerConfig> read = worker_config_from_json(through_text(a_config()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, a_config());
}

TEST(WorkerConfig, OfAnOlderAgentHasNoBootId) {
  Json document = through_text(a_config());
  ASSERT_EQ(document.erase("bootId"), 1u);
  const Result<WorkerConfig> read = worker_config_from_json(document);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->boot_id, "");
}

TEST(WorkerConfig, RefusesARankOutsideItsWorldAndAForeignHash) {
  Json document = through_text(a_config());
  document["rank"] = 4;
  EXPECT_EQ(worker_config_from_json(document).error().message,
            "config.rank: 4 is not in the world of 4 ranks");
  document["rank"] = -1;
  EXPECT_FALSE(worker_config_from_json(document).ok());
  document = through_text(a_config());
  document["hash"] = "0123456789abcdef";
  EXPECT_EQ(worker_config_from_json(document).error().message.substr(0, 12), "config.hash:");
  document = through_text(a_config());
  document["train"]["batch"]["global"] = 0;
  EXPECT_EQ(worker_config_from_json(document).error().message,
            "config.train.batch.global: 0 is out of range, expected 1 to 1048576");
}

}  // namespace
}  // namespace lockstep
