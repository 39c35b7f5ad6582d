#include "common/api/agent_messages.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <optional>

#include "common/api/message_fields.h"
#include "common/api/servers_view.h"
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/layout/pipeline_schedule.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 9> kPhaseNames = {"Starting",     "Forming",   "Loading",
                                                         "Broadcasting", "Training",  "Saving",
                                                         "Validating",   "Finishing", "Done"};
constexpr size_t kLogTailBytesMax = 2048;

constexpr size_t kReasonBytesMax = 64;

// Reasons are read by programs and used as metric labels.
bool is_word(std::string_view text) {
  return text.size() <= kReasonBytesMax && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
         });
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
}

void make_printable(std::string& text) {
  for (char& c : text) c = c >= ' ' && c <= '~' ? c : '?';
}

constexpr int64_t kProtocolWithWaits = 2;

void leave_waits_out(AgentState& state) {
  for (WorkerState& worker : state.workers) {
    worker.wait.reset();
    worker.is_lifeless = false;
  }
}

// Returns the document's protocol version if it is not served.
std::optional<int64_t> foreign_protocol(const Json& document) {
  const Json* found = document.is_object() ? find_member(document, "protocol") : nullptr;
  int64_t protocol = 0;
  if (found == nullptr || !codec::read_integer(*found, protocol)) return std::nullopt;
  return is_served(protocol) ? std::nullopt : std::optional(protocol);
}

template <class Message>
Result<Message> read_message(const Json& document, const std::string& name) {
  Message message;
  Problems problems;
  read_json(document, message, name, kReadStored, problems);
  if (problems.empty()) check_ranges(message, name, problems);
  if (!problems.empty()) return to_error(problems);
  return message;
}

// Whether workers and servers do what those of protocol 15 would not.
bool has_transfers(const std::optional<ParameterServersSpec>& servers) {
  const ParameterServersSpec plain;
  return servers && (servers->pushPrecision != plain.pushPrecision ||
                     servers->pullPrecision != plain.pullPrecision || servers->rows != plain.rows);
}

Status check_world(const Assignment& assignment) {
  const WorldAssignment& world = assignment.world;
  if (!find_place_in_round(assignment)) {
    return invalid("assignment.nodeIndex: " + std::to_string(assignment.node_index) +
                   " is not in the world of " + std::to_string(world.members.size()) + " nodes");
  }
  const auto& servers = assignment.parameter_servers;
  const Result<ServersView> view =
      servers_view_from_text(assignment.servers_view, server_count(world));
  if (!view.ok()) return invalid("assignment.serversView: " + view.error().message);
  const int64_t needed = protocol_needed(world, assignment.train,
                                         {.keeps_states = assignment.checkpoint.memory.has_value(),
                                          .losses = assignment.losses,
                                          .has_copies = servers && servers->copies > 0,
                                          .has_transfers = has_transfers(servers),
                                          .has_moved_server = has_moved_server(*view),
                                          .has_new_worker = !view->workers.empty(),
                                          .has_places = view->places > 0,
                                          .has_gpus = assignment.gpus_per_node > 0});
  if (assignment.protocol < needed) {
    return invalid("assignment.protocol: " + std::to_string(assignment.protocol) + ", expected " +
                   std::to_string(needed) +
                   " for a world with a mesh, gaps, roles, a layout or encryption, for rules about "
                   "losses, and for a new model, optimizer or timeline");
  }
  if (has_servers(world) != assignment.parameter_servers.has_value()) {
    return invalid("assignment.parameterServers: expected them if and only if the world has some");
  }
  const bool is_shared = world.layout != WorldLayout{} || has_servers(world);
  if (is_shared && !assignment.train) {
    return invalid("assignment.world: found roles or a layout, expected none without train");
  }
  if (world.is_encrypted && !assignment.train) {
    return invalid("assignment.world.encryption: found required, expected none without train");
  }
  if (assignment.train && world.pipeline > 1 && world.layout.schedule.empty()) {
    return invalid("assignment.world.layout.schedule: found none, expected one for the pipeline");
  }
  return {};
}

bool has_new_schedule(const OptimizerSpec& optimizer) {
  return optimizer.schedule == "warmupStableDecay" || optimizer.schedule == "step";
}

// Returns the state without what is_mere_progress() allows to differ.
AgentState without_progress(AgentState state) {
  state.sequence = 0;
  state.progress.reset();
  state.holdings.reset();
  state.last_checkpoint.reset();
  if (state.storage) {  // which saves failed and succeeded may change at every step
    StorageState& storage = *state.storage;
    storage.saved = 0;
    storage.failed_step = std::min<int64_t>(storage.failed_step, 0);
    storage.failure.clear();
  }
  for (WorkerState& worker : state.workers) {
    worker.step = 0;
    worker.speed.reset();
  }
  return state;
}

}  // namespace

std::string_view worker_phase_name(WorkerPhase phase) {
  const auto index = static_cast<size_t>(phase);
  return index < kPhaseNames.size() ? kPhaseNames[index] : "Unknown";
}

Result<WorkerPhase> worker_phase_from_name(std::string_view name) {
  const auto it = std::find(kPhaseNames.begin(), kPhaseNames.end(), name);
  if (it == kPhaseNames.end())
    return invalid("[worker phase] expected a known name, got " + in_quotes(name));
  return static_cast<WorkerPhase>(it - kPhaseNames.begin());
}

bool is_mere_progress(const AgentState& before, const AgentState& after) {
  return without_progress(before) == without_progress(after);
}

std::string signal_name(int64_t signal) {
  const bool is_known = signal > 0 && signal < NSIG;
  const char* name = is_known ? sigabbrev_np(static_cast<int>(signal)) : nullptr;
  return name == nullptr ? "" : std::string("SIG") + name;
}

bool shares_evenly(const BatchSpec& batch, int64_t data_ranks) {
  if (batch.global % data_ranks != 0) return false;
  return batch.micro <= 0 || batch.global / data_ranks % batch.micro == 0;
}

WorkerWishes wishes_of(const TrainingJobSpec& spec) {
  return {.keeps_states = spec.checkpoint.memory.has_value(),
          .losses = spec.train ? loss_rules(spec) : LossRules(),
          .has_copies = spec.parameterServers && spec.parameterServers->copies > 0,
          .has_transfers = has_transfers(spec.parameterServers),
          .has_gpus = spec.gpusPerNode > 0};
}

int64_t protocol_needed(const WorldAssignment& world, const std::optional<TrainSpec>& train,
                        const WorkerWishes& wishes) {
  if (has_servers(world) && wishes.has_places) return kProtocolWithPlaces;
  if (has_servers(world) && wishes.has_transfers) return kProtocolWithTransfers;
  const bool trains_convnet = train && is_convnet(train->model);
  if (has_servers(world) && trains_convnet) return kProtocolWithServedConvnets;
  const bool has_muon = train && train->optimizer.name == "muon";
  if (has_muon) return wishes.has_gpus ? kProtocolWithMuonOnGpus : kProtocolWithMuon;
  if (has_servers(world) && wishes.has_new_worker) return kProtocolWithNewWorkers;
  if (has_servers(world) && wishes.has_moved_server) return kProtocolWithMoves;
  if (train && is_bert(train->model)) return kProtocolWithBerts;
  const bool is_mlp = train && train->model.family == "mlp";
  if (world.pipeline > 1 && (is_mlp || trains_convnet)) return kProtocolWithAllStages;
  if (trains_convnet && train->dropout > 0) return kProtocolWithAllStages;
  if (has_servers(world) && wishes.has_copies) return kProtocolWithCopies;
  if (has_servers(world)) return kProtocolWithServers;
  if (train && is_click_family(train->model.family)) return kProtocolWithServers;
  if (trains_convnet || (train && train->dropout > 0)) return kProtocolWithConvnets;
  if (train &&
      (has_new_schedule(train->optimizer) || train->ema > 0 || !train->data.pieces.empty())) {
    return kProtocolWithAverages;
  }
  if (wishes.losses != LossRules{}) return kProtocolWithLossRules;
  if (wishes.keeps_states) return kProtocolWithUnevenBatches;
  const bool is_new = is_mlp || (train && train->optimizer.name != "adamw");
  const bool is_recorded = train && train->timeline.everySteps > 0;
  const std::string& schedule = world.layout.schedule;
  if (train && !shares_evenly(train->batch, world.data)) return kProtocolWithUnevenBatches;
  const bool is_split = schedule == pipeline_kind_name(PipelineKind::kZeroBubble);
  if (world.is_encrypted) return kProtocolWithEncryption;
  if (schedule == pipeline_kind_name(PipelineKind::kPipeDream)) return kProtocolWithEncryption;
  if (is_split || !world.layout.stages.empty()) return kProtocolWithStages;
  if (world.tensor > 1 || world.pipeline > 1 || is_recorded) return kProtocolWithMeshes;
  if (!shares_nothing(world.layout)) return kProtocolWithSharing;
  return is_ordinary(world) && !is_new ? kProtocolOldest : kProtocolWithLayouts;
}

// Jobs with servers leave no node out.
std::optional<int64_t> find_place_in_round(const Assignment& assignment) {
  const WorldAssignment& world = assignment.world;
  const std::optional<int64_t> place = place_of(world, assignment.node_index);
  if (place || assignment.node_index < std::ssize(world.members)) return place;
  const Result<ServersView> view =
      servers_view_from_text(assignment.servers_view, server_count(world));
  const int64_t added = assignment.node_index - std::ssize(world.members);
  const bool is_added = view.ok() && world.processes_per_node == 1 &&
                        added < static_cast<int64_t>(view->servers.size() - first_servers(*view));
  return is_added ? std::optional(assignment.node_index) : std::nullopt;
}

int64_t place_in_round(const Assignment& assignment) {
  const std::optional<int64_t> place = find_place_in_round(assignment);
  CHECK(place);
  return *place;
}

int64_t rank_in_round(const Assignment& assignment, int64_t local_rank) {
  return place_in_round(assignment) * assignment.world.processes_per_node + local_rank;
}

Json to_json(const Assignment& assignment) {
  return write_json(assignment);
}

Result<Assignment> assignment_from_json(const Json& document) {
  TRY_ASSIGN(Assignment assignment, read_message<Assignment>(document, "assignment"));
  TRY(check_world(assignment));
  const std::string hash = world_hash(assignment.world);
  if (assignment.hash != hash) {
    return invalid("assignment.hash: found " + in_quotes(assignment.hash) + ", expected " + hash);
  }
  return assignment;
}

Json to_json(const AgentState& state) {
  AgentState bounded = state;
  if (state.protocol < kProtocolWithWaits) leave_waits_out(bounded);
  if (state.protocol < kProtocolWithSharing) bounded.holdings.reset();
  for (size_t bytes_max = kLogTailBytesMax;; bytes_max /= 2) {
    for (WorkerState& worker : bounded.workers) {
      worker.log_tail = std::string(utf8_tail(worker.log_tail, bytes_max));
    }
    Json document = write_json(bounded);
    if (bytes_max == 0 || dump_json(document).size() <= kAgentStateBytesMax) return document;
  }
}

Result<AgentState> agent_state_from_json(const Json& document) {
  if (const auto protocol = foreign_protocol(document)) return AgentState{.protocol = *protocol};
  TRY_ASSIGN(AgentState state, read_message<AgentState>(document, "state"));
  for (WorkerState& worker : state.workers) {
    if (!is_word(worker.reason)) worker.reason = "Error";
    if (!worker.wait) continue;
    make_printable(worker.wait->operation);
    make_printable(worker.wait->ranks);
  }
  if (state.storage) {
    StorageState& storage = *state.storage;
    for (std::string* text : {&storage.failure, &storage.set_aside_reason, &storage.skip}) {
      std::replace_if(text->begin(), text->end(), is_control, '?');
    }
  }
  return state;
}

}  // namespace lockstep
