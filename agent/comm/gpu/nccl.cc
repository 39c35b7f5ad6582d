#include <dlfcn.h>
#include <nccl.h>

#include <cstring>
#include <mutex>

#include "agent/comm/gpu/nccl_api.h"
#include "kernels/device/cuda/cuda_call.h"
#include "kernels/device/shared_library.h"

namespace lockstep::comm {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));

// The functions that we use, with their types from nccl.h. The library is loaded at run time, so
// programs and images that train on CPUs do not need its 200 MB.
struct Library {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
};

Result<Library> find_all(const kernels::SharedLibrary& shared) {
  Library library;
  TRY(kernels::find_function(shared, "ncclGetVersion", library.get_version));
  TRY(kernels::find_function(shared, "ncclGetUniqueId", library.get_unique_id));
  TRY(kernels::find_function(shared, "ncclCommInitRankConfig", library.init));
  TRY(kernels::find_function(shared, "ncclCommGetAsyncError", library.async_error));
  TRY(kernels::find_function(shared, "ncclCommFinalize", library.finalize));
  TRY(kernels::find_function(shared, "ncclCommDestroy", library.destroy));
  TRY(kernels::find_function(shared, "ncclCommAbort", library.abort));
  TRY(kernels::find_function(shared, "ncclGetErrorString", library.error_string));
  TRY(kernels::find_function(shared, "ncclGetLastError", library.last_error));
  TRY(kernels::find_function(shared, "ncclGroupStart", library.group_start));
  TRY(kernels::find_function(shared, "ncclGroupEnd", library.group_end));
  TRY(kernels::find_function(shared, "ncclAllReduce", library.all_reduce));
  TRY(kernels::find_function(shared, "ncclReduce", library.reduce));
  TRY(kernels::find_function(shared, "ncclBroadcast", library.broadcast));
  TRY(kernels::find_function(shared, "ncclAllGather", library.all_gather));
  TRY(kernels::find_function(shared, "ncclReduceScatter", library.reduce_scatter));
  TRY(kernels::find_function(shared, "ncclSend", library.send));
  TRY(kernels::find_function(shared, "ncclRecv", library.receive));
  return library;
}

constexpr bool numbers_agree() {
  return ncclUint8 == 1 && ncclInt32 == 2 && ncclInt64 == 4 && ncclFloat16 == 6 &&
         ncclFloat32 == 7 && ncclFloat64 == 8 && ncclBfloat16 == 9 && ncclSum == 0 &&
         ncclProd == 1 && ncclMax == 2 && ncclMin == 3;
}
static_assert(numbers_agree(), "nccl_type() and nccl_op() of nccl_plan.cc");

ncclComm_t comm_of(NcclApi::Comm comm) {
  return static_cast<ncclComm_t>(comm);
}

class LoadedNccl final : public NcclApi {
 public:
  LoadedNccl(const Library& library, int version) : nccl_(library), version_(version) {}

  int version() const override { return version_; }

  Result<NcclId> make_id() override {
    ncclUniqueId id;
    TRY(check("ncclGetUniqueId", nccl_.get_unique_id(&id), nullptr));
    NcclId bytes;
    std::memcpy(bytes.data(), &id, bytes.size());
    return bytes;
  }

  Result<Comm> init(const Init& init) override {
    TRY_CUDA(init.device, cudaSetDevice(init.device));
    ncclUniqueId id;
    std::memcpy(&id, init.id.data(), init.id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    TRY(check("ncclCommInitRankConfig", nccl_.init(&comm, init.size, id, init.rank, &config),
              comm));
    return static_cast<Comm>(comm);
  }

  Result<bool> in_progress(Comm comm) override {
    ncclResult_t state = ncclSuccess;
    TRY(check("ncclCommGetAsyncError", nccl_.async_error(comm_of(comm), &state), comm_of(comm)));
    TRY(check("asynchronous operation", state, comm_of(comm)));
    return state == ncclInProgress;
  }

  Status begin_group() override { return check("ncclGroupStart", nccl_.group_start(), nullptr); }
  Status end_group() override { return check("ncclGroupEnd", nccl_.group_end(), nullptr); }

  Status issue(Comm comm, const NcclCall& call) override {
    const NcclStep& step = call.step;
    const auto count = static_cast<size_t>(step.count);
    const auto type = static_cast<ncclDataType_t>(nccl_type(step.type));
    const auto op = static_cast<ncclRedOp_t>(nccl_op(step.op));
    auto* stream = static_cast<cudaStream_t>(call.stream);
    ncclComm_t on = comm_of(comm);
    switch (step.kind) {
      case NcclStep::Kind::kAllReduce:
        return check("ncclAllReduce",
                     nccl_.all_reduce(call.from, call.to, count, type, op, on, stream), on);
      case NcclStep::Kind::kReduce:
        return check("ncclReduce",
                     nccl_.reduce(call.from, call.to, count, type, op, step.peer, on, stream), on);
      case NcclStep::Kind::kBroadcast:
        return check("ncclBroadcast",
                     nccl_.broadcast(call.from, call.to, count, type, step.peer, on, stream), on);
      case NcclStep::Kind::kAllGather:
        return check("ncclAllGather", nccl_.all_gather(call.from, call.to, count, type, on, stream),
                     on);
      case NcclStep::Kind::kReduceScatter:
        return check("ncclReduceScatter",
                     nccl_.reduce_scatter(call.from, call.to, count, type, op, on, stream), on);
      case NcclStep::Kind::kSend:
        return check("ncclSend", nccl_.send(call.from, count, type, step.peer, on, stream), on);
      case NcclStep::Kind::kReceive:
        return check("ncclRecv", nccl_.receive(call.to, count, type, step.peer, on, stream), on);
    }
    return internal("[nccl] unknown step");
  }

  Status finalize(Comm comm) override {
    return check("ncclCommFinalize", nccl_.finalize(comm_of(comm)), comm_of(comm));
  }
  // Errors of a communicator that goes away do not matter any more.
  void destroy(Comm comm) override { static_cast<void>(nccl_.destroy(comm_of(comm))); }
  void abort(Comm comm) override { static_cast<void>(nccl_.abort(comm_of(comm))); }

 private:
  Status check(const char* call, ncclResult_t result, ncclComm_t comm) const {
    if (result == ncclSuccess || result == ncclInProgress) return {};
    const char* last = nccl_.last_error(comm);
    std::string words =
        std::string("[nccl] ") + call + ": success expected, got " + nccl_.error_string(result);
    if (last != nullptr && last[0] != '\0') words += std::string(" (") + last + ")";
    return unavailable(std::move(words), Blame::kPeer);
  }

  Library nccl_;
  int version_;
};

// Never unloads the library: its threads may outlive every communicator.
Result<std::shared_ptr<NcclApi>> load() {
  void* handle = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* words = ::dlerror();
    return unavailable(std::string("[nccl] cannot load libnccl.so.2: ") +
                       (words == nullptr ? "unknown error" : words));
  }
  TRY_ASSIGN(const Library library, find_all({.handle = handle, .name = "nccl"}));
  int version = 0;
  if (library.get_version(&version) != ncclSuccess) {
    return unavailable("[nccl] ncclGetVersion failed");
  }
  return std::shared_ptr<NcclApi>(std::make_shared<LoadedNccl>(library, version));
}

}  // namespace

Result<std::shared_ptr<NcclApi>> load_nccl() {
  static std::mutex mutex;
  static std::shared_ptr<NcclApi> loaded;
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) {
    TRY_ASSIGN(loaded, load());
  }
  return loaded;
}

}  // namespace lockstep::comm
