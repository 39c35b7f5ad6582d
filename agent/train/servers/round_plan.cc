#include "agent/train/servers/round_plan.h"

#include <numeric>

#include "agent/comm/make_communicator.h"
#include "agent/server/placement.h"
#include "agent/train/clicks/click_step.h"
#include "agent/train/forming.h"
#include "common/base/check.h"
#include "common/base/sha256.h"
#include "common/layout/model_design.h"

namespace lockstep::train {
namespace {

server::Consistency consistency_of(const ParameterServersSpec& servers) {
  server::Consistency consistency{.staleness = static_cast<uint64_t>(servers.staleness),
                                  .backup_workers = static_cast<uint32_t>(servers.backupWorkers)};
  if (servers.consistency == "asynchronous") {
    consistency.kind = server::ConsistencyKind::kAsynchronous;
  } else if (servers.consistency == "boundedStaleness") {
    consistency.kind = server::ConsistencyKind::kBoundedStaleness;
  }
  return consistency;
}

server::Encoding encoding_of(const std::string& precision) {
  if (precision == "bf16") return server::Encoding::kBf16;
  return precision == "int8" ? server::Encoding::kInt8 : server::Encoding::kF32;
}

server::RowLife life_of(const ServerRowsSpec& rows) {
  return {.idle_max = static_cast<uint32_t>(rows.idleSteps),
          .frequency_min = static_cast<float>(rows.minFrequency),
          .half_life = static_cast<float>(rows.halfLifeSteps),
          .decay = rows.decay};
}

std::vector<uint32_t> ranks_between(uint32_t begin, uint32_t end) {
  std::vector<uint32_t> ranks(end - begin);
  std::iota(ranks.begin(), ranks.end(), begin);
  return ranks;
}

Result<optim::OptimizerOptions> optimizer_of(const OptimizerSpec& from) {
  TRY_ASSIGN(const optim::OptimizerKind kind, optim::parse_optimizer(from.name));
  return optim::OptimizerOptions{.kind = kind,
                                 .beta1 = from.beta1,
                                 .beta2 = from.beta2,
                                 .epsilon = from.epsilon,
                                 .momentum = from.momentum,
                                 .nesterov = from.nesterov,
                                 .weight_decay = from.weightDecay};
}

// Workers push running statistics with kStatisticRate.
optim::OptimizerOptions plain_descent() {
  return {.kind = optim::OptimizerKind::kSgd, .weight_decay = 0};
}

}  // namespace

Result<server::Catalog> click_catalog(const TrainSpec& train, const ServerRowsSpec& rows) {
  TRY_ASSIGN(const optim::OptimizerOptions optimizer, optimizer_of(train.optimizer));
  const server::RowLife life = life_of(rows);
  server::Catalog catalog;
  catalog.tables.push_back({.name = "weights", .dim = 1, .optimizer = optimizer, .life = life});
  if (const int64_t factors = click_factors(train.model); factors > 0) {
    catalog.tables.push_back({.name = "factors",
                              .dim = static_cast<uint32_t>(factors),
                              .deviation = kFactorDeviation,
                              .optimizer = optimizer,
                              .life = life});
  }
  optim::OptimizerOptions plain = optimizer;
  plain.weight_decay = 0;
  catalog.tensors.push_back({.name = "bias", .count = 1, .optimizer = plain});
  if (const auto layers = click_layers(train.model)) {
    for (const model::ClickLayers::Tensor& tensor : layers->tensors()) {
      const size_t index = catalog.tensors.size() - kFirstLayerTensor;
      const bool is_bias = index % 2 == 1;
      catalog.tensors.push_back(
          {.name = "hidden." + std::to_string(index / 2) + (is_bias ? ".bias" : ".weight"),
           .count = tensor.count(),
           .optimizer = is_bias ? plain : optimizer});
    }
  }
  TRY(server::check_catalog(catalog));
  return catalog;
}

Result<server::Catalog> dense_catalog(const TrainSpec& train) {
  TRY_ASSIGN(const optim::OptimizerOptions optimizer, optimizer_of(train.optimizer));
  const ModelDesign design = model_design(train);
  TRY(validate(design, 1, "spec.train.model"));
  const ParameterArena arena = parameter_arena(design, whole_model(design));
  server::Catalog catalog;
  for (const Parameter& parameter : parameter_table(design)) {
    const ArenaEntry* entry = arena.find(parameter.id);
    CHECK(entry != nullptr && parameter.id == std::ssize(catalog.tensors));
    catalog.tensors.push_back({.name = parameter.name,
                               .count = static_cast<uint64_t>(entry->count),
                               .optimizer = optimizer});
    if (!parameter.weight_decay) catalog.tensors.back().optimizer.weight_decay = 0;
    if (parameter.is_statistic) catalog.tensors.back().optimizer = plain_descent();
  }
  TRY(server::check_catalog(catalog));
  return catalog;
}

Result<ServersRound> servers_round(const WorkerConfig& config) {
  const WorldAssignment& world = config.world;
  if (!has_servers(world) || !config.parameter_servers) {
    return invalid("[config] expected parameter servers and a world with them together",
                   Blame::kConfig);
  }
  ServersRound round;
  TRY_ASSIGN(round.self, identity_of(config));
  round.self.later_ranks = kServersInViewMax;
  round.workers = static_cast<uint32_t>(world.data * world.pipeline * world.tensor);
  for (uint32_t rank = round.workers; rank < round.self.size; ++rank) {
    const WorldMember& member = member_of(world, rank);
    const int64_t port = member.port + coordinates(world, rank).local_rank;
    round.servers.push_back(
        {.rank = rank, .address = {.host = member.host, .port = static_cast<int>(port)}});
  }
  const bool is_click_job = is_click_family(config.train.model.family);
  TRY_ASSIGN(round.catalog, is_click_job
                                ? click_catalog(config.train, config.parameter_servers->rows)
                                : dense_catalog(config.train));
  round.consistency = consistency_of(*config.parameter_servers);
  round.encodings = {
      .push = encoding_of(config.parameter_servers->pushPrecision),
      .pull = encoding_of(config.parameter_servers->pullPrecision),
      .push_threshold = static_cast<float>(config.parameter_servers->rows.pushThreshold)};
  TRY_ASSIGN(round.standing, servers_view_from_text(config.servers_view, round.servers.size()));
  const int64_t copies = config.parameter_servers->copies;
  TRY_ASSIGN(round.first, server::place(round.catalog,
                                        {.round = round.self.round,
                                         .workers = ranks_between(0, round.workers),
                                         .servers = ranks_between(round.workers, round.self.size)},
                                        {.copies = static_cast<uint32_t>(copies),
                                         .places = static_cast<uint32_t>(round.standing.places)}));
  round.servers = addresses_in(round.standing, std::move(round.servers));
  TRY_ASSIGN(round.view, view_of(round, round.standing));
  const bool follows_views = copies > 0 || round.standing.places > 0;
  if (follows_views && config.rounds_fd >= 0) round.view_patience = kViewPatience;
  return round;
}

// A server that awaits its next pod is at no address: nobody calls it. All listen on one port.
std::vector<rpc::Client::ServerAddress> addresses_in(
    const ServersView& standing, std::vector<rpc::Client::ServerAddress> servers) {
  while (servers.size() < standing.servers.size()) {
    servers.push_back(servers.front());
    servers.back().rank = servers.front().rank + static_cast<uint32_t>(servers.size()) - 1;
  }
  for (size_t i = 0; i < standing.servers.size(); ++i) {
    const std::optional<ServerMove>& move = standing.servers[i].move;
    if (move && !move->to.host.empty()) servers[i].address.host = move->to.host;
  }
  return servers;
}

Result<server::View> view_of(const ServersRound& round, const ServersView& standing) {
  return server::view_of(round.first, round.workers, standing);
}

}  // namespace lockstep::train
