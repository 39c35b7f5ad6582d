#include "kernels/ops/dnn/cudnn.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "kernels/ops/dnn/sdpa_graph.h"

namespace lockstep::kernels::dnn {

namespace {

// From Blackwell on, the library's default kernels are not deterministic; the knobs that change
// this differ between versions.
constexpr int kCapabilityEnd = 100;

// Returns the bytes at the start of the workspace, before the library's own part. Forward writes
// the log-sum-exp there if the caller does not keep it, backward writes delta.
size_t row_bytes(const AttentionShape& shape) {
  return workspace_aligned(static_cast<size_t>(shape.batch * shape.heads * shape.sequence) *
                           sizeof(float));
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

// Requires the lock.
Result<Cudnn::Passes*> Cudnn::passes_of(const AttentionShape& shape) {
  const Key key{shape.batch, shape.sequence, shape.heads, shape.head_dim, shape.kv_heads};
  if (const auto at = passes_.find(key); at != passes_.end()) return at->second.get();
  auto made = std::make_unique<Passes>();
  const auto plan = [&](Graph graph) -> Result<Plan> {
    TRY_ASSIGN(PlanAnswer answer,
               make_plan(calls_, handle_, {.graph = std::move(graph), .what = "attention"}));
    if (!answer.plan) return unavailable(answer.refusal);
    return std::move(*answer.plan);
  };
  TRY_ASSIGN(made->forward, plan(forward_graph(shape)));
  TRY_ASSIGN(made->backward, plan(backward_graph(shape)));
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
  return run_plan(calls_, handle_, stream, passes->forward, bindings,
                  static_cast<char*>(op.workspace.data) + rows);
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
  return run_plan(calls_, handle_, stream, passes->backward, bindings,
                  static_cast<char*>(op.workspace.data) + rows);
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

Result<PreparedConv2d> prepare_conv2d(Device device, const Conv2dUse& use) {
  TRY_ASSIGN(Cudnn* const context, context_of(device.index));
  return context->prepare(use);
}

Status conv2d_forward(Stream& stream, const Conv2dForward& op) {
  TRY_ASSIGN(Cudnn* const context, context_of(stream.device().index));
  return context->forward(stream.handle(), op);
}

Status conv2d_inputs(Stream& stream, const Conv2dBackward& op) {
  TRY_ASSIGN(Cudnn* const context, context_of(stream.device().index));
  return context->input_gradient(stream.handle(), op);
}

Status conv2d_filters(Stream& stream, const Conv2dBackward& op) {
  TRY_ASSIGN(Cudnn* const context, context_of(stream.device().index));
  return context->filter_gradient(stream.handle(), op);
}

}  // namespace lockstep::kernels::dnn
