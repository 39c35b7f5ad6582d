#include "kernels/ops/dnn/cudnn_plan.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "kernels/device/device_errors.h"

namespace lockstep::kernels::dnn {

namespace {

// The heuristic offers tens of engines for a convolution, and those without tensor cores last.
constexpr int64_t kConfigsMax = 64;

// Returns the configurations that the library offers in this mode, best first.
Result<std::vector<Descriptor>> engine_configs(const CudnnCalls& calls, const DescribedGraph& graph,
                                               cudnnBackendHeurMode_t mode) {
  TRY_ASSIGN(const Descriptor heuristic, calls.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
  TRY(calls.set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                graph.graph.get()));
  TRY(calls.set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode));
  std::vector<Descriptor> configs;
  const CudnnLibrary& library = calls.library();
  const cudnnStatus_t status = library.finalize(heuristic.get());
  if (is_not_supported(status)) return configs;
  TRY(calls.check("cudnnBackendFinalize", status));

  std::vector<cudnnBackendDescriptor_t> places;
  for (int64_t i = 0; i < kConfigsMax; ++i) {
    TRY_ASSIGN(Descriptor config, calls.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    places.push_back(config.get());
    configs.push_back(std::move(config));
  }
  int64_t count = 0;
  TRY(calls.check(
      "cudnnBackendGetAttribute",
      library.get_attribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                            CUDNN_TYPE_BACKEND_DESCRIPTOR, kConfigsMax, &count, places.data())));
  configs.resize(static_cast<size_t>(std::clamp(count, int64_t{0}, kConfigsMax)));
  return configs;
}

Result<std::vector<cudnnBackendNumericalNote_t>> notes_of(const CudnnCalls& calls,
                                                          const Descriptor& config) {
  const CudnnLibrary& library = calls.library();
  TRY_ASSIGN(const Descriptor engine, calls.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  cudnnBackendDescriptor_t place = engine.get();
  int64_t count = 0;
  TRY(calls.check("cudnnBackendGetAttribute",
                  library.get_attribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &place)));
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  TRY(calls.check(
      "cudnnBackendGetAttribute",
      library.get_attribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                            CUDNN_TYPE_NUMERICAL_NOTE, std::ssize(notes), &count, notes.data())));
  notes.resize(static_cast<size_t>(std::clamp(count, int64_t{0}, std::ssize(notes))));
  return notes;
}

// Returns what kind of kernel a note rules out, or null.
const char* refused_by(cudnnBackendNumericalNote_t note, Engines engines) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      return "no deterministic kernel";
    case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
      return nullptr;
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      return engines == Engines::kExactFp32 ? "no kernel that multiplies in fp32" : nullptr;
    default:
      return engines != Engines::kDeterministic ? "no kernel without approximations" : nullptr;
  }
}

const char* refused_by(const std::vector<cudnnBackendNumericalNote_t>& notes, Engines engines) {
  for (const cudnnBackendNumericalNote_t note : notes) {
    if (const char* reason = refused_by(note, engines); reason != nullptr) return reason;
  }
  return nullptr;
}

// How far an engine got that makes no plan, in this order.
enum class Stop : uint8_t {
  kNotOffered,
  kNotes,        // its numerical notes rule it out
  kUnsupported,  // the library refuses it after all
  kWorkspace,    // needs too much
};
struct Refusal {
  Stop stop = Stop::kNotOffered;
  std::string reason = "no kernel";
};

// Makes a plan with one configuration after the other.
class Planner {
 public:
  Planner(const CudnnCalls& calls, cudnnHandle_t handle, const PlanRequest& request, Plan& made)
      : calls_(calls), handle_(handle), request_(request), made_(made) {}

  // Returns whether one of them made the plan.
  bool plan_with(std::span<Descriptor> configs) {
    return std::ranges::any_of(configs, [&](Descriptor& config) {
      Result<bool> done = plan_with(config);
      if (!done.ok()) failure_ = done.error();
      return done.ok() && *done;
    });
  }
  // Returns why the engine that got furthest makes no plan.
  const std::string& refusal() const { return refusal_.reason; }
  // Returns the error of the last call that failed, if one did.
  const std::optional<Error>& failure() const { return failure_; }

 private:
  bool refuse(Stop stop, std::string reason) {
    if (stop >= refusal_.stop) refusal_ = {stop, std::move(reason)};
    return false;
  }
  Result<bool> plan_with(Descriptor& config) {
    const CudnnLibrary& library = calls_.library();
    TRY_ASSIGN(const std::vector<cudnnBackendNumericalNote_t> notes, notes_of(calls_, config));
    if (const char* reason = refused_by(notes, request_.engines); reason != nullptr) {
      return refuse(Stop::kNotes, reason);
    }
    TRY_ASSIGN(Descriptor plan, calls_.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
    TRY(calls_.set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_));
    TRY(calls_.set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                   config.get()));
    const cudnnStatus_t status = library.finalize(plan.get());
    if (is_not_supported(status)) {
      return refuse(Stop::kUnsupported, "no kernel that the library supports");
    }
    TRY(calls_.check("cudnnBackendFinalize", status));
    int64_t count = 0, bytes = 0;
    TRY(calls_.check("cudnnBackendGetAttribute",
                     library.get_attribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                           CUDNN_TYPE_INT64, 1, &count, &bytes)));
    made_.workspace_bytes = static_cast<size_t>(std::max(bytes, int64_t{0}));
    if (made_.workspace_bytes > request_.workspace_bytes_max) {
      return refuse(Stop::kWorkspace, "no kernel with a workspace of at most " +
                                          bytes_text(request_.workspace_bytes_max));
    }
    made_.config = std::move(config);
    made_.plan = std::move(plan);
    return true;
  }

  const CudnnCalls& calls_;
  cudnnHandle_t handle_;
  const PlanRequest& request_;
  Plan& made_;
  Refusal refusal_;
  std::optional<Error> failure_;
};

}  // namespace

Result<PlanAnswer> make_plan(const CudnnCalls& calls, cudnnHandle_t handle, PlanRequest request) {
  constexpr std::array kModes{CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
  Plan made;
  made.graph = std::move(request.graph);
  TRY_ASSIGN(made.described, describe(calls, handle, made.graph));
  Planner planner(calls, handle, request, made);
  for (const cudnnBackendHeurMode_t mode :
       std::span(kModes).first(request.takes_fallback ? kModes.size() : 1)) {
    TRY_ASSIGN(std::vector<Descriptor> configs, engine_configs(calls, made.described, mode));
    if (planner.plan_with(configs)) return PlanAnswer{.plan = std::move(made)};
  }
  if (planner.failure()) return *planner.failure();
  return PlanAnswer{.refusal = std::string("[cudnn] ") + request.what + ": " + planner.refusal() +
                               " for this shape"};
}

// Creates a variant pack for each call, because addresses may differ from layer to layer.
Status run_plan(const CudnnCalls& calls, cudnnHandle_t handle, void* stream, const Plan& plan,
                const Bindings& bindings, void* workspace) {
  std::vector<int64_t> ids;
  std::vector<void*> data;
  for (size_t i = 0; i < plan.graph.tensors.size(); ++i) {
    const Port port = plan.graph.tensors[i].port;
    if (port == Port::kInner) continue;
    void* const address = bindings[static_cast<size_t>(port)];
    CHECK(address != nullptr);
    CHECK(is_host_value(port) || is_aligned(address, kTensorAlignment));
    ids.push_back(unique_id(i));
    data.push_back(address);
  }
  TRY_ASSIGN(const Descriptor pack, calls.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  TRY(calls.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                std::span<const int64_t>(ids)));
  TRY(calls.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                std::span<void* const>(data)));
  TRY(calls.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace));
  TRY(calls.finalize(pack));
  const CudnnLibrary& library = calls.library();
  TRY(calls.check("cudnnSetStream", library.set_stream(handle, static_cast<cudaStream_t>(stream))));
  return calls.check("cudnnBackendExecute", library.execute(handle, plan.plan.get(), pack.get()));
}

}  // namespace lockstep::kernels::dnn
