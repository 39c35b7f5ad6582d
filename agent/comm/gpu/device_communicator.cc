#include "agent/comm/gpu/device_communicator.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "agent/comm/gpu/gpu_links.h"
#include "agent/comm/gpu/nccl_backend.h"
#include "agent/comm/gpu/staging.h"
#include "kernels/device/device_errors.h"

namespace lockstep::comm {
namespace {

class DeviceCommunicator final : public Communicator {
 public:
  struct Identity {
    kernels::Device device;
    std::string why;
    std::vector<std::string> paths;  // by rank
    bool is_sub_group = false;
  };
  DeviceCommunicator(std::unique_ptr<Communicator> host, std::unique_ptr<DeviceBackend> backend,
                     Identity identity)
      : host_(std::move(host)), backend_(std::move(backend)), self_(std::move(identity)) {}

  using Communicator::run;
  using Communicator::start;
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  Work start(std::span<const Call> calls) override;
  Status run(std::span<const Call> calls) override {
    return is_for_host(calls) ? host_->run(calls) : start(calls).wait();
  }
  Result<std::unique_ptr<Communicator>> sub_group(const std::vector<int>& ranks) override;
  std::unique_ptr<ActivityReport> make_report() override { return host_->make_report(); }
  void abort(const std::string& reason) override;
  void set_silence_limit(Duration limit) override {
    host_->set_silence_limit(limit);
    backend_->set_silence_limit(limit);
  }
  DeviceTraits device_traits() const override { return backend_->device_traits(); }
  Status health() const override { return host_->health(); }
  int suspect() const override { return host_->suspect(); }
  CollectiveCounts counts() const override;
  Traffic traffic() const override { return host_->traffic(); }
  const HostMap& hosts() const override { return host_->hosts(); }
  std::string path_to(int rank) const override {
    if (self_.paths.empty() || rank == this->rank()) return host_->path_to(rank);
    return self_.paths[static_cast<size_t>(rank)];
  }
  std::string describe() const override {
    return host_->describe() + "; " + name_of(self_.device) + ": " + backend_->name() + ", " +
           self_.why;
  }

 private:
  bool is_for_host(std::span<const Call> calls) const {
    return std::all_of(calls.begin(), calls.end(), [](const Call& call) {
      return call.buffer.device.type == kernels::DeviceType::kCpu;
    });
  }
  Result<DeviceCall> check(const Call& call) const;
  Result<std::vector<DeviceCall>> check_all(std::span<const Call> calls) const;

  const std::unique_ptr<Communicator> host_;
  const std::unique_ptr<DeviceBackend> backend_;  // uses host_
  const Identity self_;
  std::mutex mutex_;  // gives numbers in the order in which the backend gets the calls
  uint64_t collectives_ = 0;
};

Result<DeviceCall> DeviceCommunicator::check(const Call& call) const {
  if (call.buffer.device != self_.device) {
    return invalid(std::string("[comm] ") + name_of(call.kind) + ": buffer is on " +
                   kernels::name_of(call.buffer.device) + ", but this rank uses " +
                   kernels::name_of(self_.device));
  }
  TRY_ASSIGN(const CallMemory memory, check_call(call, rank(), size()));
  return DeviceCall{.call = call, .memory = memory};
}

Result<std::vector<DeviceCall>> DeviceCommunicator::check_all(std::span<const Call> calls) const {
  std::vector<DeviceCall> checked;
  for (const Call& call : calls) {
    TRY_ASSIGN(const DeviceCall one, check(call));
    checked.push_back(one);
  }
  return checked;
}

Work DeviceCommunicator::start(std::span<const Call> calls) {
  if (is_for_host(calls)) return host_->start(calls);
  auto checked = check_all(calls);
  if (!checked.ok()) {
    auto refused = std::make_unique<Operation>();
    refused->finish(checked.error());
    return Work(std::move(refused));
  }
  std::unique_ptr<Operation> first;
  for (auto call = checked->rbegin(); call != checked->rend(); ++call) {
    auto operation = std::make_unique<Operation>();
    operation->header.kind = call->call.kind;
    operation->header.group = self_.is_sub_group ? 1 : 0;
    operation->next = std::move(first);
    first = std::move(operation);
    call->operation = first.get();
  }
  Work work(std::move(first));
  const std::lock_guard lock(mutex_);
  for (const DeviceCall& call : *checked) {
    if (!traits(call.call.kind).is_message) call.operation->header.sequence = ++collectives_;
  }
  backend_->start(std::move(checked).value());
  return work;
}

Result<std::unique_ptr<Communicator>> DeviceCommunicator::sub_group(const std::vector<int>& ranks) {
  TRY_ASSIGN(std::unique_ptr<Communicator> host, host_->sub_group(ranks));
  TRY_ASSIGN(std::unique_ptr<DeviceBackend> backend, backend_->sub_group(*host));
  Identity identity{.device = self_.device, .why = self_.why, .paths = {}, .is_sub_group = true};
  for (const int rank : ranks) {
    if (!self_.paths.empty()) identity.paths.push_back(self_.paths[static_cast<size_t>(rank)]);
  }
  return std::unique_ptr<Communicator>(
      new DeviceCommunicator(std::move(host), std::move(backend), std::move(identity)));
}

void DeviceCommunicator::abort(const std::string& reason) {
  host_->abort(reason);
  if (const Status status = host_->health(); !status.ok()) backend_->fail(status.error());
}

CollectiveCounts DeviceCommunicator::counts() const {
  const CollectiveCounts host = host_->counts();
  const CollectiveCounts device = backend_->counts();
  return {.entered = host.entered + device.entered, .completed = host.completed + device.completed};
}

std::vector<std::string> paths_of(const Communicator& host, const BackendChoice& choice,
                                  const std::vector<RankDevice>& ranks) {
  std::vector<std::string> paths;
  const GpusSeen gpus = look_at_gpus();
  const auto own = static_cast<size_t>(host.rank());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const bool is_one_host = host.hosts().host[rank] == host.hosts().host[own];
    paths.push_back(choice.kind == DeviceBackendKind::kNccl
                        ? nccl_path(gpus, {.from = ranks[own].bus.data(),
                                           .to = ranks[rank].bus.data(),
                                           .is_one_host = is_one_host})
                        : host.path_to(static_cast<int>(rank)) + " via host memory");
  }
  return paths;
}

}  // namespace

Result<std::unique_ptr<Communicator>> make_device_communicator(std::unique_ptr<Communicator> host,
                                                               const DeviceOptions& options,
                                                               const DeviceParts& parts) {
  std::unique_ptr<DeviceBackend> backend;
  if (parts.nccl != nullptr) {
    TRY_ASSIGN(backend, NcclBackend::create({.host = host.get(),
                                             .device = parts.device,
                                             .nccl = parts.nccl,
                                             .limit = options.limit,
                                             .clock = options.clock,
                                             .check_mismatches = options.check_mismatches}));
  } else {
    TRY_ASSIGN(backend, StagingBackend::create({.host = host.get(),
                                                .device = parts.device,
                                                .chunk_bytes = parts.staging_bytes}));
  }
  return std::unique_ptr<Communicator>(
      new DeviceCommunicator(std::move(host), std::move(backend),
                             {.device = options.device, .why = parts.why, .paths = parts.paths}));
}

Result<std::unique_ptr<Communicator>> make_device_communicator(std::unique_ptr<Communicator> host,
                                                               const DeviceOptions& options) {
  const auto nccl = load_nccl();
  RankDevice mine{.nccl_version = nccl.ok() ? (*nccl)->version() : 0};
  // Sent even without a GPU, so that no rank waits.
  const auto info =
      options.device.type == kernels::DeviceType::kCuda
          ? describe(options.device)
          : Result<kernels::DeviceInfo>(invalid("[comm] expected a GPU, got the CPU"));
  if (info.ok()) {
    mine.has_gpu = 1;
    mine.uuid = info->uuid;
    std::strncpy(mine.name.data(), info->name.c_str(), mine.name.size() - 1);
    std::strncpy(mine.bus.data(), info->bus.c_str(), mine.bus.size() - 1);
  }
  TRY_ASSIGN(const std::vector<RankDevice> ranks, host->all_gather_value(mine));
  TRY_ASSIGN(const BackendChoice choice, choose_backend(ranks, options.backend));
  const DeviceParts parts{.device = make_comm_device(options.device),
                          .nccl = choice.kind == DeviceBackendKind::kNccl ? *nccl : nullptr,
                          .why = choice.why,
                          .paths = paths_of(*host, choice, ranks)};
  return make_device_communicator(std::move(host), options, parts);
}

}  // namespace lockstep::comm
