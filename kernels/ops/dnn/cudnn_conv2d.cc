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
const PlanAnswer* Cudnn::find_convolution(const ConvolutionKey& key) const {
  const auto at =
      std::ranges::find_if(convolutions_, [&](const auto& made) { return made->key == key; });
  return at == convolutions_.end() ? nullptr : &(*at)->answer;
}

// Requires the lock. Keeps plans and refusals; a later call tries again after an error.
Result<const PlanAnswer*> Cudnn::plan_convolution(const ConvolutionKey& key) {
  if (const PlanAnswer* answer = find_convolution(key); answer != nullptr) return answer;
  TRY_ASSIGN(PlanAnswer answer,
             make_plan(calls_, handle_,
                       {.graph = conv2d_graph(key.shape, key.dtype, key.pass, key.adds),
                        .engines = key.dtype == DType::kF32 ? Engines::kExactFp32 : Engines::kExact,
                        .takes_fallback = true,
                        .workspace_bytes_max = kConv2dWorkspaceMax,
                        .what = name_of(key.pass)}));
  convolutions_.push_back(
      std::make_unique<ConvolutionPlan>(ConvolutionPlan{key, std::move(answer)}));
  return &convolutions_.back()->answer;
}

Result<PreparedConv2d> Cudnn::prepare(const Conv2dUse& use) {
  TRY(calls_.library().use_device(calls_.index()));
  const std::lock_guard lock(mutex_);
  PreparedConv2d prepared;
  const auto prepare_pass = [&](Conv2dPass pass, bool adds) -> Result<PreparedConv2dPass> {
    TRY_ASSIGN(const PlanAnswer* const answer,
               plan_convolution({use.shape, use.dtype, pass, adds}));
    if (!answer->plan) return PreparedConv2dPass{.refusal = answer->refusal};
    return PreparedConv2dPass{.by = Conv2dBy::kCudnn,
                              .workspace_bytes = gradient_bytes(use.shape, use.dtype, pass) +
                                                 answer->plan->workspace_bytes};
  };
  TRY_ASSIGN(prepared.forward, prepare_pass(Conv2dPass::kForward, false));
  if (use.has_dx) {
    TRY_ASSIGN(prepared.inputs, prepare_pass(Conv2dPass::kInputs, use.adds_dx));
  }
  TRY_ASSIGN(prepared.filters, prepare_pass(Conv2dPass::kFilters, adds_filters(use.dtype)));
  return prepared;
}

// Requires the lock.
Status Cudnn::run(void* stream, const ConvolutionKey& key, const Bindings& bindings,
                  const Workspace& workspace) {
  const PlanAnswer* const answer = find_convolution(key);
  CHECK(answer != nullptr && answer->plan.has_value());
  const size_t first_byte = gradient_bytes(key.shape, key.dtype, key.pass);
  CHECK(workspace.bytes >= first_byte + answer->plan->workspace_bytes);
  CHECK(is_aligned(workspace.data, kWorkspaceAlignment));
  return run_plan(calls_, handle_, stream, *answer->plan, bindings,
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

Status Cudnn::input_gradient(void* stream, const Conv2dBackward& op) {
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

Status Cudnn::filter_gradient(void* stream, const Conv2dBackward& op) {
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
