#include "agent/train/servers/round_plan.h"

#include <numeric>

#include "agent/comm/make_communicator.h"
#include "agent/server/placement.h"
#include "agent/train/forming.h"
#include "common/base/sha256.h"

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

std::vector<uint32_t> ranks_between(uint32_t begin, uint32_t end) {
  std::vector<uint32_t> ranks(end - begin);
  std::iota(ranks.begin(), ranks.end(), begin);
  return ranks;
}

}  // namespace

Result<server::Catalog> click_catalog(const TrainSpec& train) {
  const OptimizerSpec& from = train.optimizer;
  TRY_ASSIGN(const optim::OptimizerKind kind, optim::parse_optimizer(from.name));
  optim::OptimizerOptions optimizer{.kind = kind,
                                    .beta1 = from.beta1,
                                    .beta2 = from.beta2,
                                    .epsilon = from.epsilon,
                                    .momentum = from.momentum,
                                    .nesterov = from.nesterov,
                                    .weight_decay = from.weightDecay};
  server::Catalog catalog;
  catalog.tables.push_back({.name = "weights", .dim = 1, .optimizer = optimizer});
  if (const int64_t factors = click_factors(train.model); factors > 0) {
    catalog.tables.push_back({.name = "factors",
                              .dim = static_cast<uint32_t>(factors),
                              .deviation = kFactorDeviation,
                              .optimizer = optimizer});
  }
  optimizer.weight_decay = 0;
  catalog.tensors.push_back({.name = "bias", .count = 1, .optimizer = optimizer});
  TRY(server::check_catalog(catalog));
  return catalog;
}

Result<ServersRound> servers_round(const WorkerConfig& config) {
  const WorldAssignment& world = config.world;
  const bool is_click_job =
      has_servers(world) && config.parameter_servers && is_click_family(config.train.model.family);
  if (!is_click_job) {
    return invalid("[config] expected parameter servers and a click model together",
                   Blame::kConfig);
  }
  ServersRound round;
  TRY_ASSIGN(round.self, identity_of(config));
  round.workers = static_cast<uint32_t>(world.data * world.pipeline * world.tensor);
  for (uint32_t rank = round.workers; rank < round.self.size; ++rank) {
    const WorldMember& member = member_of(world, rank);
    const int64_t port = member.port + coordinates(world, rank).local_rank;
    round.servers.push_back(
        {.rank = rank, .address = {.host = member.host, .port = static_cast<int>(port)}});
  }
  TRY_ASSIGN(round.catalog, click_catalog(config.train));
  round.consistency = consistency_of(*config.parameter_servers);
  TRY_ASSIGN(round.view, server::place(round.catalog,
                                       {.round = round.self.round,
                                        .workers = ranks_between(0, round.workers),
                                        .servers = ranks_between(round.workers, round.self.size)},
                                       {}));
  return round;
}

}  // namespace lockstep::train
