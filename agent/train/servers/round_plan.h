#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "agent/comm/handshake.h"
#include "agent/rpc/client.h"
#include "agent/server/catalog.h"
#include "agent/server/encoding.h"
#include "agent/server/unit_clock.h"
#include "agent/server/view.h"
#include "common/api/servers_view.h"
#include "common/api/worker_config.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

// The index of each parameter of a click model in its catalog.
inline constexpr uint32_t kBiasTensor = 0;
inline constexpr uint32_t kFirstLayerTensor = 1;  // of a model with hidden layers
inline constexpr uint32_t kWeightsTable = 0;
inline constexpr uint32_t kFactorsTable = 1;  // of a model with factors
inline constexpr float kFactorDeviation = 0.01f;

// Longer than another controller takes to go on for one that is gone.
inline constexpr Duration kViewPatience = std::chrono::seconds(120);

// A round with parameter servers. All of its ranks derive the same from their configurations.
struct ServersRound {
  comm::Identity self;
  uint32_t workers = 0;                             // ranks below are workers, the others servers
  std::vector<rpc::Client::ServerAddress> servers;  // in the view in which this process begins
  server::Catalog catalog;
  server::View first;    // the first view
  ServersView standing;  // in which this process begins
  server::View view;     // likewise
  server::Consistency consistency;
  server::Encodings encodings;
  // How long a call whose server is gone waits for a later view, in which the round goes on; 0: it
  // fails, and the round ends.
  Duration view_patience{};

  bool is_server() const { return self.rank >= workers; }
};

// kInvalid, blaming the configuration, for a world without servers or a model that cannot be
// built; errors of the job's token.
Result<ServersRound> servers_round(const WorkerConfig& config);
// Returns the addresses of the servers in that view, given those in the first or any earlier view
// of the round.
std::vector<rpc::Client::ServerAddress> addresses_in(
    const ServersView& standing, std::vector<rpc::Client::ServerAddress> servers);
// Returns the process's view of ranges and slots. Errors as server::view_of().
Result<server::View> view_of(const ServersRound& round, const ServersView& standing);

// The parameters of a click model, with the job's optimizer and the life of its rows.
Result<server::Catalog> click_catalog(const TrainSpec& train, const ServerRowsSpec& rows);
// Those of any other model: the tensors of its parameter table, in their order.
Result<server::Catalog> dense_catalog(const TrainSpec& train);

}  // namespace lockstep::train
