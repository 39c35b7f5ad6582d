#include "agent/comm/make_communicator.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "agent/comm/control_wire.h"
#include "agent/comm/core.h"
#include "agent/comm/former.h"
#include "agent/comm/group_communicator.h"
#include "agent/comm/loan_benchmark.h"
#include "agent/comm/sealed_link.h"
#include "agent/comm/tcp_link.h"
#include "common/base/nonce.h"
#include "common/base/sha256.h"
#include "common/crypto/aead.h"

namespace lockstep::comm {
namespace {

constexpr size_t kRanksMax = 65536;

Status check_options(const CommOptions& options) {
  const size_t size = options.peers.size();
  if (size < 1 || size > kRanksMax || options.rank < 0 ||
      static_cast<size_t>(options.rank) >= size) {
    return invalid("[comm] invalid rank " + std::to_string(options.rank) + " of " +
                   std::to_string(size) + " ranks");
  }
  if (size > 1 && options.key.empty()) return invalid("[comm] the shared secret is empty");
  if (options.operation_limit <= Duration::zero() || options.forming_limit <= Duration::zero() ||
      options.handshake_limit <= Duration::zero()) {
    return invalid("[comm] time limits must be positive");
  }
  if (options.encrypt) TRY(can_encrypt());
  if (!are_valid(options.limits)) {
    return invalid("[comm] invalid limits, a window of " +
                   std::to_string(options.limits.window_bytes) + " bytes and frames of " +
                   std::to_string(options.limits.frame_bytes_max) +
                   ": expected multiples of 64, a window at least as large as a frame, and at "
                   "least one buffered window");
  }
  return {};
}

const PeerAddress& peer_of(const CommOptions& options, int rank) {
  return options.peers[static_cast<size_t>(rank)];
}

// Returns the ranks of this rank's node in order, if they share memory.
std::vector<int> local_ranks(const CommOptions& options) {
  std::vector<int> local;
  if (options.shm_fd < 0) return local;
  for (int rank = 0; rank < static_cast<int>(options.peers.size()); ++rank) {
    if (peer_of(options, rank).node == peer_of(options, options.rank).node) local.push_back(rank);
  }
  if (local.size() < 2) local.clear();
  return local;
}

int place_of(const std::vector<int>& ranks, int rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

uint64_t region_tag(const CommOptions& options) {
  const Digest digest =
      sha256(options.job_uid + "/" + std::to_string(options.round) + "/" + options.world_hash);
  uint64_t tag = 0;
  std::memcpy(&tag, digest.data(), sizeof tag);
  return tag | 1;
}

Result<Connections> connect_all(const CommOptions& options, const std::vector<int>& local,
                                UniqueFd listener, TimePoint deadline) {
  const auto& own = peer_of(options, options.rank);
  if (listener) {
    TRY(adopt_listener(listener.get()));
  } else {
    TRY_ASSIGN(listener, listen_socket({.host = own.host, .port = own.port}));
  }
  FormOptions form{.self = {.rank = static_cast<uint32_t>(options.rank),
                            .size = static_cast<uint32_t>(options.peers.size()),
                            .round = options.round,
                            .job = sha256(options.job_uid),
                            .world = sha256(options.world_hash),
                            .key = options.key,
                            .encrypts = options.encrypt},
                   .addresses = {},
                   .wants_data = {},
                   .listener = std::move(listener),
                   .deadline = deadline,
                   .handshake_limit = options.handshake_limit,
                   .clock = options.clock,
                   .nonce = random_nonce};
  for (int rank = 0; rank < static_cast<int>(options.peers.size()); ++rank) {
    form.addresses.push_back({peer_of(options, rank).host, peer_of(options, rank).port});
    form.wants_data.push_back(rank != options.rank && place_of(local, rank) < 0);
  }
  return form_connections(std::move(form));
}

// The links need the core for their bells, and the core needs the links.
struct Bells {
  Core* core = nullptr;
};

Core::Options core_options(const CommOptions& options, std::shared_ptr<ShmRegion> region,
                           const std::vector<int>& local, std::shared_ptr<Bells> bells) {
  Core::Options core{.rank = options.rank,
                     .round = options.round,
                     .operation_limit = options.operation_limit,
                     .links = {},
                     .controls = {},
                     .nodes = {},
                     .region = region,
                     .local_rank = std::max(0, place_of(local, options.rank)),
                     .cores = options.cores,
                     .limits = options.limits,
                     .board = options.board,
                     .clock = options.clock};
  core.links.resize(options.peers.size());
  for (const PeerAddress& peer : options.peers) core.nodes.push_back(peer.node);
  for (const int peer : local) {
    if (peer == options.rank) continue;
    core.links[static_cast<size_t>(peer)] = std::make_unique<ShmLink>(
        region, ShmLink::Options{.peer = peer,
                                 .local_rank = core.local_rank,
                                 .local_peer = place_of(local, peer),
                                 .bell = [bells, peer] { bells->core->ring(peer); }});
  }
  return core;
}

std::unique_ptr<Link> make_link(bool encrypt, int peer, Connection connection) {
  if (!encrypt) return std::make_unique<TcpLink>(peer, std::move(connection.fd));
  return std::make_unique<SealedLink>(peer, std::move(connection.fd), connection.secrets);
}

// This is the only place that knows both kinds of connections.
void use_connections(bool encrypt, Connections connections, Core::Options& core) {
  core.control_wires.resize(core.links.size());
  for (size_t peer = 0; peer < core.links.size(); ++peer) {
    Connection& data = connections.data[peer];
    if (data) core.links[peer] = make_link(encrypt, static_cast<int>(peer), std::move(data));
    Connection& control = connections.control[peer];
    if (control && encrypt) {
      core.control_wires[peer] = make_sealed_wire(control.fd.get(), control.secrets);
    }
    core.controls[peer] = std::move(control.fd);
  }
}

// Every rank of the host has published its process. The result takes effect once all have formed.
void set_up_loans(const Core::Options& core, const std::vector<int>& local) {
  ShmRegion& region = *core.region;
  const double cost_max = core.limits.loan_cost_max;
  if (cost_max <= 0 || std::ssize(local) > core.limits.loan_ranks_max) {
    return region.veto_loans(ShmRegion::LoanVeto::kDisabled);
  }
  for (const int peer : local) {
    if (peer == core.rank) continue;
    Result<PeerMemory> memory = region.find(place_of(local, peer));
    if (!memory.ok()) return region.veto_loans(ShmRegion::LoanVeto::kForbidden);
    core.links[static_cast<size_t>(peer)]->loans()->attach_peer(*memory);
  }
  if (core.local_rank == 0 && std::isfinite(cost_max) && measure_loan_cost() > cost_max) {
    region.veto_loans(ShmRegion::LoanVeto::kSlow);
  }
}

void enable_loans(const Core& core, const ShmRegion& region) {
  if (region.loan_veto() != ShmRegion::LoanVeto::kNone) return;
  for (int rank = 0; rank < core.world_size(); ++rank) {
    Loans* loans = rank == core.rank() ? nullptr : core.link(rank).loans();
    if (loans != nullptr) loans->enable();
  }
}

Result<std::shared_ptr<Core>> make_core(Core::Options options,
                                        const std::shared_ptr<Bells>& bells) {
  TRY_ASSIGN(std::shared_ptr<Core> core, Core::create(std::move(options)));
  bells->core = core.get();
  return core;
}

}  // namespace

std::string transport_key(std::string_view job_token, uint64_t round, std::string_view world_hash) {
  return hex(
      hmac_sha256(job_token, "comm/" + std::to_string(round) + "/" + std::string(world_hash)));
}

Result<std::unique_ptr<Communicator>> make_communicator(const CommOptions& options) {
  UniqueFd listener(options.listen_fd);
  TRY(check_options(options));
  const TimePoint deadline = options.clock->now() + options.forming_limit;
  const std::vector<int> local = local_ranks(options);
  std::shared_ptr<ShmRegion> region;
  if (!local.empty()) {
    TRY_ASSIGN(region, ShmRegion::attach({.fd = options.shm_fd,
                                          .ranks = static_cast<int>(local.size()),
                                          .tag = region_tag(options)}));
  }
  auto bells = std::make_shared<Bells>();
  Core::Options core = core_options(options, region, local, bells);
  if (region != nullptr) region->publish_process(core.local_rank);
  core.controls.resize(options.peers.size());
  if (options.peers.size() > 1) {
    TRY_ASSIGN(Connections connections, connect_all(options, local, std::move(listener), deadline));
    use_connections(options.encrypt, std::move(connections), core);
  }
  if (region != nullptr) set_up_loans(core, local);
  TRY_ASSIGN(std::shared_ptr<Core> shared, make_core(std::move(core), bells));
  auto world = std::make_unique<GroupCommunicator>(shared, shared->world());
  const Duration rest = deadline - options.clock->now();
  TRY(world->form(std::max<Duration>(rest, std::chrono::milliseconds(1))));
  if (region != nullptr) enable_loans(*shared, *region);
  return std::unique_ptr<Communicator>(std::move(world));
}

Result<std::vector<std::unique_ptr<Communicator>>> make_thread_world(int size,
                                                                     Duration operation_limit,
                                                                     const std::vector<int>& nodes,
                                                                     const CommLimits& limits) {
  if (size < 1 || size > 4096)
    return invalid("[comm] threads: expected 1 to 4096 ranks, got " + std::to_string(size));
  if (!nodes.empty() && nodes.size() != static_cast<size_t>(size)) {
    return invalid("[comm] threads: expected " + std::to_string(size) +
                   " nodes, one per rank, got " + std::to_string(nodes.size()));
  }
  TRY_ASSIGN(const std::shared_ptr<ShmRegion> region, ShmRegion::anonymous(size));
  std::vector<int> local(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) local[static_cast<size_t>(rank)] = rank;
  CommOptions options;
  options.peers.resize(local.size());
  for (size_t rank = 0; rank < nodes.size(); ++rank) options.peers[rank].node = nodes[rank];
  options.operation_limit = operation_limit;
  options.limits = limits;
  std::vector<Core::Options> cores;
  std::vector<std::shared_ptr<Bells>> bells;
  for (options.rank = 0; options.rank < size; ++options.rank) {
    bells.push_back(std::make_shared<Bells>());
    cores.push_back(core_options(options, region, local, bells.back()));
    cores.back().controls.resize(local.size());
  }
  for (size_t a = 0; a < local.size(); ++a) {
    for (size_t b = a + 1; b < local.size(); ++b) {
      int pair[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        return errno_error("[comm] connecting threads", errno);
      }
      cores[a].controls[b] = UniqueFd(pair[0]);
      cores[b].controls[a] = UniqueFd(pair[1]);
    }
  }
  for (const int rank : local) region->publish_process(rank);
  for (const Core::Options& core : cores) set_up_loans(core, local);
  std::vector<std::unique_ptr<Communicator>> world;
  for (size_t rank = 0; rank < local.size(); ++rank) {
    TRY_ASSIGN(std::shared_ptr<Core> core, make_core(std::move(cores[rank]), bells[rank]));
    enable_loans(*core, *region);
    world.push_back(std::make_unique<GroupCommunicator>(core, core->world()));
  }
  return world;
}

}  // namespace lockstep::comm
