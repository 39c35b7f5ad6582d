// The convolutions of Cudnn.
#include <algorithm>
#include <array>

#include "kernels/ops/dnn/cudnn.h"

namespace lockstep::kernels::dnn {

namespace {

// With bf16 the library cannot write the fp32 gradient of filters, nor add to it.
bool adds_filters(DType dtype) {
  return dtype == DType::kF32;
}

// Returns the bytes at the start of the workspace, before the library's own part: the gradient of
// the filters that is not added yet.
size_t gradient_bytes(const Conv2dShape& shape, DType dtype, Conv2dPass pass) {
  if (pass != Conv2dPass::kFilters || adds_filters(dtype)) return 0;
  return workspace_aligned(static_cast<size_t>(shape.weight_count()) * sizeof(Bf16));
}

const char* name_of(Conv2dPass pass) {
  switch (pass) {
    case Conv2dPass::kForward:
      return "convolution";
    case Conv2dPass::kInputs:
      return "gradient of a convolution's inputs";
    case Conv2dPass::kFilters:
      return "gradient of a convolution's filters";
  }
  return "";
}

}  // namespace

// Requires the lock. Returns null if it was not prepared.
const Cudnn::ConvolutionPlan* Cudnn::found(const ConvolutionKey& key) const {
  const auto at =
      std::ranges::find_if(convolutions_, [&](const auto& made) { return made->key == key; });
  return at == convolutions_.end() ? nullptr : at->get();
}

// Requires the lock.
const Cudnn::ConvolutionPlan& Cudnn::planned(const ConvolutionKey& key) {
  if (const ConvolutionPlan* made = found(key); made != nullptr) return *made;
  Result<Plan> plan =
      make_plan(calls_, handle_,
                {.graph = conv2d_graph(key.shape, key.dtype, key.pass, key.adds),
                 .engines = key.dtype == DType::kF32 ? Engines::kExactFp32 : Engines::kExact,
                 .what = name_of(key.pass)});
  convolutions_.push_back(std::make_unique<ConvolutionPlan>(ConvolutionPlan{key, std::move(plan)}));
  return *convolutions_.back();
}

Result<PreparedConv2d> Cudnn::prepare(const Conv2dUse& use) {
  TRY(calls_.library().use_device(calls_.index()));
  const std::lock_guard lock(mutex_);
  PreparedConv2d prepared;
  const auto add = [&](Conv2dPass pass, bool adds, Conv2dBy& by) {
    const Result<Plan>& plan = planned({use.shape, use.dtype, pass, adds}).plan;
    if (!plan.ok()) {
      prepared.refusals += (prepared.refusals.empty() ? "" : "; ") + plan.error().message;
      return;
    }
    by = Conv2dBy::kCudnn;
    prepared.workspace_bytes =
        std::max(prepared.workspace_bytes,
                 gradient_bytes(use.shape, use.dtype, pass) + plan->workspace_bytes);
  };
  add(Conv2dPass::kForward, false, prepared.kernels.forward);
  if (use.has_dx) add(Conv2dPass::kInputs, use.adds_dx, prepared.kernels.inputs);
  add(Conv2dPass::kFilters, adds_filters(use.dtype), prepared.kernels.filters);
  return prepared;
}

// Requires the lock.
Status Cudnn::run(void* stream, const ConvolutionKey& key, const Bindings& bindings,
                  const Workspace& workspace) {
  const ConvolutionPlan* const made = found(key);
  CHECK(made != nullptr && made->plan.ok());
  const size_t first_byte = gradient_bytes(key.shape, key.dtype, key.pass);
  CHECK(workspace.bytes >= first_byte + made->plan->workspace_bytes);
  CHECK(is_aligned(workspace.data, kWorkspaceAlignment));
  return run_plan(calls_, handle_, stream, made->plan.value(), bindings,
                  static_cast<char*>(workspace.data) + first_byte);
}

Status Cudnn::forward(void* stream, const Conv2dForward& op) {
  TRY(calls_.library().use_device(calls_.index()));
  CHECK(op.x.dtype == op.y.dtype && op.weight.dtype == op.y.dtype);
  Bindings bindings = {};
  bind(bindings, Port::kImages, op.x.data);
  bind(bindings, Port::kFilters, op.weight.data);
  bind(bindings, Port::kPixels, op.y.data);
  const std::lock_guard lock(mutex_);
  return run(stream, {op.shape, op.y.dtype, Conv2dPass::kForward, false}, bindings, op.workspace);
}

Status Cudnn::inputs(void* stream, const Conv2dBackward& op) {
  TRY(calls_.library().use_device(calls_.index()));
  CHECK(op.weight.dtype == op.dy.dtype && op.dx.dtype == op.dy.dtype);
  Bindings bindings = {};
  bind(bindings, Port::kImages, op.dx.data);
  bind(bindings, Port::kFilters, op.weight.data);
  bind(bindings, Port::kPixels, op.dy.data);
  const std::lock_guard lock(mutex_);
  return run(stream, {op.shape, op.dy.dtype, Conv2dPass::kInputs, op.adds_dx}, bindings,
             op.workspace);
}

Status Cudnn::filters(void* stream, const Conv2dBackward& op) {
  TRY(calls_.library().use_device(calls_.index()));
  CHECK(op.x.dtype == op.dy.dtype);
  const bool adds = adds_filters(op.dy.dtype);
  Bindings bindings = {};
  bind(bindings, Port::kImages, op.x.data);
  bind(bindings, Port::kFilters, adds ? op.dweight : op.workspace.data);
  bind(bindings, Port::kPixels, op.dy.data);
  const std::lock_guard lock(mutex_);
  return run(stream, {op.shape, op.dy.dtype, Conv2dPass::kFilters, adds}, bindings, op.workspace);
}

}  // namespace lockstep::kernels::dnn
