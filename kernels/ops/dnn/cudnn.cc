#include "kernels/ops/dnn/cudnn.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace lockstep::kernels::dnn {

namespace {

// From Blackwell on, the library's default kernels are not deterministic; the knobs that change
// this differ between versions.
constexpr int kCapabilityEnd = 100;
constexpr uintptr_t kTensorAlignment = 16;
constexpr uintptr_t kWorkspaceAlignment = 256;
constexpr int64_t kConfigsMax = 16;

size_t aligned(size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// Returns the bytes at the start of the workspace, before the library's own part. Forward writes
// the log-sum-exp there if the caller does not keep it, backward writes delta.
size_t row_bytes(const AttentionShape& shape) {
  return aligned(static_cast<size_t>(shape.batch * shape.heads * shape.sequence) * sizeof(float));
}

bool is_aligned(const void* data, uintptr_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

// The three tensors of a packed row.
struct Packed {
  void* q;
  void* k;
  void* v;
};
Packed packed(const void* data, const AttentionShape& shape) {
  auto* q = static_cast<Bf16*>(const_cast<void*>(data));
  return {q, q + shape.width(), q + shape.width() + shape.kv_width()};
}

void bind(Bindings& bindings, Port port, const void* data) {
  bindings[static_cast<size_t>(port)] = const_cast<void*>(data);
}

// The library reads values that are bound by value when the graph is issued.
struct HostValues {
  float scale;
  float masked = -std::numeric_limits<float>::infinity();
  float one = 1.0f;

  explicit HostValues(const AttentionShape& shape)
      : scale(1.0f / std::sqrt(static_cast<float>(shape.head_dim))) {}
  void bind_to(Bindings& bindings) const {
    bind(bindings, Port::kScale, &scale);
    bind(bindings, Port::kMasked, &masked);
    bind(bindings, Port::kOne, &one);
  }
};

void check_call(const AttentionShape& shape, ConstView first, const Workspace& workspace,
                size_t bytes) {
  CHECK(has_graph(shape));
  CHECK(first.dtype == DType::kBf16);
  CHECK(workspace.bytes >= bytes);
  CHECK(is_aligned(workspace.data, kWorkspaceAlignment));
}

}  // namespace

Result<std::unique_ptr<Cudnn>> Cudnn::create(const CudnnLibrary& library, int index) {
  if (const size_t version = library.version(); version < kCudnnVersionMin) {
    return unavailable("[cudnn] expected version " + std::to_string(kCudnnVersionMin) +
                       " or later, got " + std::to_string(version));
  }
  TRY_ASSIGN(const int capability, library.capability(index));
  if (capability >= kCapabilityEnd) {
    return unavailable("[cudnn] expected a device of compute capability 8 or 9, got " +
                       std::to_string(capability / 10) + "." + std::to_string(capability % 10));
  }
  std::unique_ptr<Cudnn> context(new Cudnn(library, index));
  TRY(library.use_device(index));
  TRY(context->calls_.check("cudnnCreate", library.create(&context->handle_)));
  return context;
}

Result<std::vector<Descriptor>> Cudnn::engine_configs(const DescribedGraph& graph) const {
  TRY_ASSIGN(const Descriptor heuristic, calls_.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
  TRY(calls_.set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 graph.graph.get()));
  TRY(calls_.set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A));
  std::vector<Descriptor> configs;
  const CudnnLibrary& library = calls_.library();
  const cudnnStatus_t status = library.finalize(heuristic.get());
  if (is_not_supported(status)) return configs;
  TRY(calls_.check("cudnnBackendFinalize", status));

  std::vector<cudnnBackendDescriptor_t> places;
  for (int64_t i = 0; i < kConfigsMax; ++i) {
    TRY_ASSIGN(Descriptor config, calls_.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    places.push_back(config.get());
    configs.push_back(std::move(config));
  }
  int64_t count = 0;
  TRY(calls_.check(
      "cudnnBackendGetAttribute",
      library.get_attribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                            CUDNN_TYPE_BACKEND_DESCRIPTOR, kConfigsMax, &count, places.data())));
  configs.resize(static_cast<size_t>(std::clamp(count, int64_t{0}, kConfigsMax)));
  return configs;
}

Result<bool> Cudnn::is_deterministic(const Descriptor& config) const {
  const CudnnLibrary& library = calls_.library();
  TRY_ASSIGN(const Descriptor engine, calls_.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  cudnnBackendDescriptor_t place = engine.get();
  int64_t count = 0;
  TRY(calls_.check("cudnnBackendGetAttribute",
                   library.get_attribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &place)));
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes = {};
  TRY(calls_.check("cudnnBackendGetAttribute",
                   library.get_attribute(
                       engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                       static_cast<int64_t>(notes.size()), &count, notes.data())));
  const auto end =
      notes.begin() + std::clamp(count, int64_t{0}, static_cast<int64_t>(notes.size()));
  return std::find(notes.begin(), end, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == end;
}

// Returns false if the library turns out not to support the configuration.
Result<bool> Cudnn::plan_with(const Descriptor& config, SdpaPlan& made) const {
  const CudnnLibrary& library = calls_.library();
  TRY_ASSIGN(made.plan, calls_.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
  TRY(calls_.set(made.plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_));
  TRY(calls_.set(made.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 config.get()));
  const cudnnStatus_t status = library.finalize(made.plan.get());
  if (is_not_supported(status)) return false;
  TRY(calls_.check("cudnnBackendFinalize", status));
  int64_t count = 0, bytes = 0;
  TRY(calls_.check("cudnnBackendGetAttribute",
                   library.get_attribute(made.plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                         CUDNN_TYPE_INT64, 1, &count, &bytes)));
  made.workspace_bytes = static_cast<size_t>(std::max(bytes, int64_t{0}));
  return true;
}

Result<SdpaPlan> Cudnn::make_plan(Graph graph) const {
  SdpaPlan made;
  made.graph = std::move(graph);
  TRY_ASSIGN(made.described, describe(calls_, handle_, made.graph));
  TRY_ASSIGN(std::vector<Descriptor> configs, engine_configs(made.described));
  std::string reason = "no kernel for this shape";
  for (Descriptor& config : configs) {
    TRY_ASSIGN(const bool deterministic, is_deterministic(config));
    if (!deterministic) {
      reason = "no deterministic kernel for this shape";
      continue;
    }
    TRY_ASSIGN(const bool taken, plan_with(config, made));
    if (!taken) continue;
    made.config = std::move(config);
    return made;
  }
  return unavailable("[cudnn] attention: " + reason);
}

// Requires the lock.
Result<Cudnn::Passes*> Cudnn::passes_of(const AttentionShape& shape) {
  const Key key{shape.batch, shape.sequence, shape.heads, shape.head_dim, shape.kv_heads};
  if (const auto at = passes_.find(key); at != passes_.end()) return at->second.get();
  auto made = std::make_unique<Passes>();
  TRY_ASSIGN(made->forward, make_plan(forward_graph(shape)));
  TRY_ASSIGN(made->backward, make_plan(backward_graph(shape)));
  return passes_.emplace(key, std::move(made)).first->second.get();
}

Result<size_t> Cudnn::prepare(const AttentionShape& shape) {
  if (!shape.causal) {
    return unavailable("[cudnn] attention to all keys of a sequence is not in this version");
  }
  if (!has_graph(shape)) {
    return unavailable(
        "[cudnn] expected a head_dim of 64 or 128 and at least 2 tokens, got "
        "head_dim " +
        std::to_string(shape.head_dim) + " and " + std::to_string(shape.sequence) + " tokens");
  }
  TRY(calls_.library().use_device(calls_.index()));
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(const Passes* const passes, passes_of(shape));
  return row_bytes(shape) +
         std::max(passes->forward.workspace_bytes, passes->backward.workspace_bytes);
}

// Requires the lock. Creates a variant pack for each call, because addresses may differ from layer
// to layer.
Status Cudnn::run(void* stream, const SdpaPlan& plan, const Bindings& bindings,
                  void* workspace) const {
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
  TRY_ASSIGN(const Descriptor pack, calls_.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  TRY(calls_.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                 std::span<const int64_t>(ids)));
  TRY(calls_.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                 std::span<void* const>(data)));
  TRY(calls_.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace));
  TRY(calls_.finalize(pack));
  const CudnnLibrary& library = calls_.library();
  TRY(calls_.check("cudnnSetStream",
                   library.set_stream(handle_, static_cast<cudaStream_t>(stream))));
  return calls_.check("cudnnBackendExecute", library.execute(handle_, plan.plan.get(), pack.get()));
}

Status Cudnn::forward(void* stream, const AttentionForward& op) {
  TRY(calls_.library().use_device(calls_.index()));
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(const Passes* const passes, passes_of(op.shape));
  const size_t rows = row_bytes(op.shape);
  check_call(op.shape, op.qkv, op.workspace, rows + passes->forward.workspace_bytes);
  CHECK(op.out.dtype == DType::kBf16);
  const Packed qkv = packed(op.qkv.data, op.shape);
  const HostValues values(op.shape);
  Bindings bindings = {};
  values.bind_to(bindings);
  bind(bindings, Port::kQ, qkv.q);
  bind(bindings, Port::kK, qkv.k);
  bind(bindings, Port::kV, qkv.v);
  bind(bindings, Port::kOut, op.out.data);
  bind(bindings, Port::kLse, op.lse != nullptr ? op.lse : op.workspace.data);
  return run(stream, passes->forward, bindings, static_cast<char*>(op.workspace.data) + rows);
}

Status Cudnn::backward(void* stream, const AttentionBackward& op) {
  TRY(calls_.library().use_device(calls_.index()));
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(const Passes* const passes, passes_of(op.shape));
  const size_t rows = row_bytes(op.shape);
  check_call(op.shape, op.qkv, op.workspace, rows + passes->backward.workspace_bytes);
  CHECK(op.out.dtype == DType::kBf16 && op.dout.dtype == DType::kBf16);
  CHECK(op.dqkv.dtype == DType::kBf16);
  const Packed qkv = packed(op.qkv.data, op.shape), dqkv = packed(op.dqkv.data, op.shape);
  const HostValues values(op.shape);
  Bindings bindings = {};
  values.bind_to(bindings);
  bind(bindings, Port::kQ, qkv.q);
  bind(bindings, Port::kK, qkv.k);
  bind(bindings, Port::kV, qkv.v);
  bind(bindings, Port::kOut, op.out.data);
  bind(bindings, Port::kLse, op.lse);
  bind(bindings, Port::kDout, op.dout.data);
  bind(bindings, Port::kDq, dqkv.q);
  bind(bindings, Port::kDk, dqkv.k);
  bind(bindings, Port::kDv, dqkv.v);
  bind(bindings, Port::kDelta, op.workspace.data);
  return run(stream, passes->backward, bindings, static_cast<char*>(op.workspace.data) + rows);
}

namespace {

// Returns the device's context, created on first use. Contexts are never destroyed: a plan contains
// code loaded by the driver, which may already be gone at process exit.
Result<Cudnn*> context_of(int index) {
  static std::mutex mutex;
  static auto& contexts = *new std::map<int, std::unique_ptr<Cudnn>>();
  const std::lock_guard lock(mutex);
  std::unique_ptr<Cudnn>& context = contexts[index];
  if (context == nullptr) {
    TRY_ASSIGN(const CudnnLibrary* library, load_cudnn());
    TRY_ASSIGN(context, Cudnn::create(*library, index));
  }
  return context.get();
}

}  // namespace

Status available() {
  TRY(load_cudnn());
  return {};
}

Result<size_t> prepare_attention(Device device, const AttentionShape& shape) {
  TRY_ASSIGN(Cudnn* const context, context_of(device.index));
  return context->prepare(shape);
}

Status attention_forward(Stream& stream, const AttentionForward& op) {
  TRY_ASSIGN(Cudnn* const context, context_of(stream.device().index));
  return context->forward(stream.handle(), op);
}

Status attention_backward(Stream& stream, const AttentionBackward& op) {
  TRY_ASSIGN(Cudnn* const context, context_of(stream.device().index));
  return context->backward(stream.handle(), op);
}

}  // namespace lockstep::kernels::dnn
