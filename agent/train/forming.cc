#include "agent/train/forming.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "agent/comm/gpu/device_communicator.h"
#include "agent/comm/make_communicator.h"
#include "agent/train/checkpoint/exchange.h"
#include "common/api/hang_limit.h"
#include "common/base/log.h"
#include "common/base/sha256.h"
#include "common/layout/pipeline_schedule.h"
#include "kernels/ops/op_table.h"

namespace lockstep::train {
namespace {

constexpr size_t kTokenBytesMax = 4096;

Result<std::string> read_token(const std::string& path) {
  if (path.empty()) return invalid("[config] tokenFile: missing, expected a path", Blame::kConfig);
  std::ifstream in(path, std::ios::binary);
  std::string token(kTokenBytesMax + 1, '\0');
  in.read(token.data(), static_cast<std::streamsize>(token.size()));
  token.resize(static_cast<size_t>(in.gcount()));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.empty() || token.size() > kTokenBytesMax) {
    return invalid("[config] " + path + ": expected the job's token", Blame::kConfig);
  }
  return token;
}

std::vector<comm::PeerAddress> peers_of(const WorldAssignment& world) {
  std::vector<comm::PeerAddress> peers;
  for (int64_t rank = 0; rank < world.world_size(); ++rank) {
    const RankCoordinates at = coordinates(world, rank);
    const WorldMember& member = member_of(world, rank);
    peers.push_back(
        {member.host, static_cast<int>(member.port + at.local_rank), static_cast<int>(at.place)});
  }
  return peers;
}

Error bad_batch(const std::string& field, const std::string& what) {
  return invalid("spec.train.batch." + field + ": " + what, Blame::kConfig);
}

// The micro-batches of an interleaved pipeline take turns in groups of one a stage.
Status check_turns(const BatchSpec& spec, const Mesh& mesh) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const int64_t turn = mesh.pipeline;
  if (spec.global % (mesh.data * turn) != 0) {
    return bad_batch("global", number(spec.global) + " is not a multiple of the " + number(turn) +
                                   " stages x " + number(mesh.data) +
                                   " data-parallel ranks of an interleaved pipeline");
  }
  const int64_t share = spec.global / mesh.data;
  if (spec.micro == 0) return {};
  if (share % spec.micro != 0) {
    return bad_batch("micro", number(spec.micro) +
                                  " does not divide a rank's share of spec.train.batch.global: " +
                                  number(share));
  }
  if (share / spec.micro % turn == 0) return {};
  return bad_batch("micro", number(spec.micro) + " gives " + number(share / spec.micro) +
                                " micro-batches, but an interleaved pipeline's are " +
                                "a multiple of its " + number(turn) + " stages");
}

int64_t divide_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace

Status check_world(const WorldAssignment& world) {
  if (!has_servers(world)) return {};
  return invalid("[config] world.nodes: a server: not in this version, expected workers alone",
                 Blame::kConfig);
}

Result<comm::Identity> identity_of(const WorkerConfig& config) {
  const auto round = static_cast<uint64_t>(config.world.round);
  TRY_ASSIGN(const std::string token, read_token(config.token_file));
  return comm::Identity{.rank = static_cast<uint32_t>(config.rank),
                        .size = static_cast<uint32_t>(config.world.world_size()),
                        .round = round,
                        .job = sha256(config.world.job_uid),
                        .world = sha256(config.hash),
                        .key = comm::transport_key(token, round, config.hash),
                        .encrypts = config.world.is_encrypted};
}

Result<std::unique_ptr<comm::Communicator>> form_world(const WorkerConfig& config,
                                                       CollectiveBoard* board) {
  const auto round = static_cast<uint64_t>(config.world.round);
  TRY_ASSIGN(const std::string token, read_token(config.token_file));
  comm::CommOptions options{
      .rank = static_cast<int>(config.rank),
      .peers = peers_of(config.world),
      .shm_fd = static_cast<int>(config.shm_fd),
      .cores = static_cast<int>(config.cpus),
      .job_uid = config.world.job_uid,
      .round = round,
      .world_hash = config.hash,
      .key = comm::transport_key(token, round, config.hash),
      .encrypt = config.world.is_encrypted,
      .board = board,
      .forming_limit = std::chrono::seconds(config.rendezvous_timeout_seconds),
      .operation_limit = kSilenceLimit,
  };
  const comm::PeerAddress& self = options.peers[static_cast<size_t>(config.rank)];
  TRY_ASSIGN(options.listen_fd, comm::listen_on(self.host, self.port));
  return comm::make_communicator(options);
}

Result<std::unique_ptr<comm::Communicator>> serve_device(std::unique_ptr<comm::Communicator> world,
                                                         kernels::Device device,
                                                         const WorldAssignment& assignment) {
  if (device.type == kernels::DeviceType::kCpu) return world;
  comm::DeviceOptions options{.device = device, .limit = kSilenceLimit};
  if (assignment.is_encrypted && assignment.members.size() > 1) {
    options.backend = comm::DeviceBackendKind::kHostMemory;
    if (world->rank() == 0) {
      log_warning(
          "NCCL is not used: it does not encrypt, but spec.security.encryption is required");
    }
  }
  return comm::make_device_communicator(std::move(world), options);
}

RankTraits traits_of_this_machine(const WorkerConfig& config, const kernels::DeviceInfo& gpu) {
  const kernels::MatmulSupport support = kernels::cpu_matmul_support();
  const bool is_cpu = gpu.name.empty();
  const Digest digest = sha256(
      is_cpu ? support.library + "/" + support.isa + "/" + kernels::cpu_ops_isa() : gpu.name);
  RankTraits traits{.native_bf16 = !is_cpu || support.native_bf16,
                    .threads = std::max<int64_t>(config.threads, 1)};
  std::memcpy(&traits.instructions, digest.data(), sizeof(traits.instructions));
  return traits;
}

Result<Agreement> agree(comm::Communicator& world, const RankTraits& mine, bool want_bf16) {
  TRY_ASSIGN(const std::vector<RankTraits> all, world.all_gather_value(mine));
  Agreement agreement{.precision = want_bf16 ? kernels::Precision::kBf16 : kernels::Precision::kF32,
                      .threads = static_cast<int>(mine.threads)};
  bool alike = true;
  int64_t without_bf16 = 0;
  for (const RankTraits& traits : all) {
    if (traits.native_bf16 == 0) {
      agreement.precision = kernels::Precision::kF32;
      ++without_bf16;
    }
    agreement.threads = std::min(agreement.threads, static_cast<int>(traits.threads));
    alike = alike && traits.instructions == all[0].instructions && traits.threads == all[0].threads;
  }
  if (world.rank() != 0) return agreement;
  if (want_bf16 && agreement.precision == kernels::Precision::kF32) {
    log_warning("computing in fp32, not in bf16: some ranks can't multiply bf16",
                {{"ranks", without_bf16}, {"worldSize", world.size()}});
  }
  if (!alike) {
    log_warning(
        "ranks differ in threads, instruction sets or GPUs; using the smallest number of threads",
        {{"threads", agreement.threads}});
  }
  return agreement;
}

Result<LossRules> agree_on_losses(comm::Communicator& world, const LossRules& mine) {
  const std::string lines =
      mine.not_finite + "\n" + mine.spike + "\n" + std::to_string(mine.deviations);
  TRY_ASSIGN(const std::string text, share_text(world, lines));
  std::istringstream in(text);
  LossRules rules;
  std::string deviations;
  std::getline(in, rules.not_finite);
  std::getline(in, rules.spike);
  std::getline(in, deviations);
  rules.deviations = std::strtoll(deviations.c_str(), nullptr, 10);
  if (rules != mine) {
    log_info("rank 0's rules about losses apply, which are not this rank's",
             {{"notFinite", rules.not_finite}, {"spike", rules.spike}});
  }
  return rules;
}

Result<BatchShape> batch_shape(const BatchSpec& spec, const Mesh& mesh) {
  const int64_t ranks = mesh.data;
  if (spec.global < ranks) {
    return bad_batch("global", std::to_string(spec.global) + " is less than the " +
                                   std::to_string(ranks) + " data-parallel ranks");
  }
  const bool takes_turns = mesh.virtual_stages > 1;
  if (takes_turns) TRY(check_turns(spec, mesh));
  const int64_t micro = spec.micro > 0
                            ? spec.micro
                            : automatic_micro_batch(divide_up(spec.global, ranks), mesh.pipeline,
                                                    takes_turns ? mesh.pipeline : 1);
  const int64_t micro_batches =
      std::min(divide_up(spec.global, micro * ranks), spec.global / ranks);
  const int64_t most = divide_up(divide_up(spec.global, micro_batches), ranks);
  BatchShape shape{.micro = most, .accumulation = micro_batches, .data_size = ranks};
  if (shape.global() != spec.global) shape.samples = spec.global;
  return shape;
}

Mesh mesh_of(const WorldAssignment& world) {
  return {.pipeline = world.pipeline,
          .data = world.data,
          .tensor = world.tensor,
          .virtual_stages = world.layout.virtualStages,
          .part_layers = world.layout.stages};
}

}  // namespace lockstep::train
