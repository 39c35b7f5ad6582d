#include "tests/support/emulated_cuda/fake_cudnn.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "tests/support/emulated_cuda/devices.h"
#include "tests/support/emulated_cuda/fake_cudnn_object.h"
#include "tests/support/emulated_cuda/one_at_a_time.h"

namespace lockstep::test {

namespace {

std::set<const FakeDescriptor*>& living() {
  static std::set<const FakeDescriptor*> all;
  return all;
}

FakeDescriptor& real(cudnnBackendDescriptor_t opaque) {
  return *static_cast<FakeDescriptor*>(opaque);
}

// The state of a handle. Handles are never destroyed: the library's table has no function for it.
struct Handle {
  cudaStream_t stream = nullptr;
};
std::deque<Handle>& handles() {
  static std::deque<Handle> all;
  return all;
}

Handle& real(cudnnHandle_t opaque) {
  return *reinterpret_cast<Handle*>(opaque);
}

// Counts a call; returns false if it must fail.
bool begins(const char* name) {
  FakeCudnn& fake = fake_cudnn();
  if (fake.calls++ != fake.fail_at) return true;
  fake.failed = name;
  return false;
}

cudnnStatus_t create(cudnnHandle_t* handle) {
  if (!begins("cudnnCreate")) return CUDNN_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cudnnHandle_t>(&handles().emplace_back());
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
  if (!begins("cudnnSetStream")) return CUDNN_STATUS_BAD_PARAM;
  real(handle).stream = fake_cudnn().last_stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made) {
  if (!begins("cudnnBackendCreateDescriptor")) return CUDNN_STATUS_ALLOC_FAILED;
  auto* descriptor = new FakeDescriptor;
  descriptor->type = type;
  living().insert(descriptor);
  ++fake_cudnn().alive;
  *made = descriptor;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t opaque) {
  if (living().erase(&real(opaque)) == 0) return CUDNN_STATUS_BAD_PARAM;
  delete &real(opaque);
  --fake_cudnn().alive;
  return CUDNN_STATUS_SUCCESS;
}

bool is_usable(const FakeDescriptor* descriptor) {
  return living().contains(descriptor) && descriptor->finalized;
}

cudnnStatus_t set_attribute(cudnnBackendDescriptor_t opaque, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  if (!begins("cudnnBackendSetAttribute")) return CUDNN_STATUS_BAD_PARAM;
  FakeDescriptor& descriptor = real(opaque);
  if (descriptor.finalized) return CUDNN_STATUS_BAD_PARAM;
  const FakeRule* rule = find_rule(descriptor.type, name);
  if (rule == nullptr) return CUDNN_STATUS_NOT_SUPPORTED;
  if (rule->type != type) return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
  if (count < 1 || count > rule->count_max || values == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const auto* bytes = static_cast<const std::byte*>(values);
  const size_t size = static_cast<size_t>(count) * element_bytes(type);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (int64_t i = 0; i < count; ++i) {
      const auto* part = static_cast<const FakeDescriptor* const*>(values)[i];
      if (!is_usable(part)) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    }
  }
  descriptor.attributes[name] = {count, {bytes, bytes + size}};
  return CUDNN_STATUS_SUCCESS;
}

bool has_operation(const FakeDescriptor& graph, std::optional<cudnnBackendDescriptorType_t> type) {
  const auto operations = graph.all<const FakeDescriptor*>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  return std::ranges::any_of(
      operations, [&](const FakeDescriptor* operation) { return operation->type == type; });
}

cudnnStatus_t finalize_plan(FakeDescriptor& plan) {
  const FakeCudnn& fake = fake_cudnn();
  const FakeDescriptor* config = plan.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const bool refused = config->engine >= fake.nondeterministic &&
                       config->engine < fake.nondeterministic + fake.refused;
  if (refused) return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
  const bool is_wide =
      config->engine < fake.wide || has_operation(*config->graph, fake.wide_operation);
  plan.workspace_bytes = is_wide ? fake.wide_bytes : fake.workspace_bytes;
  return CUDNN_STATUS_SUCCESS;
}

// The indices [begin, end) of engines that a mode offers.
struct Offer {
  int64_t begin = 0;
  int64_t end = 0;
};
Offer offer_of(const FakeDescriptor& heuristic) {
  const FakeCudnn& fake = fake_cudnn();
  const FakeDescriptor* graph = heuristic.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  if (has_operation(*graph, fake.unsupported)) return {};
  const auto mode = heuristic.get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
  if (mode != CUDNN_HEUR_MODE_FALLBACK) return {0, fake.engines};
  return {fake.engines, fake.engines + fake.fallback_engines};
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t opaque) {
  if (!begins("cudnnBackendFinalize")) return CUDNN_STATUS_INTERNAL_ERROR;
  FakeDescriptor& descriptor = real(opaque);
  if (descriptor.finalized || !has_required(descriptor)) return CUDNN_STATUS_BAD_PARAM;
  if (const cudnnStatus_t status = check_shapes(descriptor); status != CUDNN_STATUS_SUCCESS) {
    return status;
  }
  if (descriptor.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    ++fake_cudnn().heuristics;
    const Offer offer = offer_of(descriptor);
    if (offer.begin == offer.end) return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
  }
  if (descriptor.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    if (const cudnnStatus_t status = finalize_plan(descriptor); status != CUDNN_STATUS_SUCCESS) {
      return status;
    }
  }
  descriptor.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

void give_configs(const FakeDescriptor& heuristic, int64_t wanted, int64_t* count, void* values) {
  const Offer offer = offer_of(heuristic);
  *count = std::min(wanted, offer.end - offer.begin);
  for (int64_t i = 0; i < *count; ++i) {
    FakeDescriptor& config = *static_cast<FakeDescriptor**>(values)[i];
    config.engine = offer.begin + i;
    config.graph = heuristic.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    config.finalized = true;
  }
}

void give_notes(const FakeDescriptor& engine, int64_t wanted, int64_t* count,
                cudnnBackendNumericalNote_t* notes) {
  const FakeCudnn& fake = fake_cudnn();
  *count = 0;
  const auto add = [&](bool has, cudnnBackendNumericalNote_t note) {
    if (has && *count < wanted) notes[(*count)++] = note;
  };
  add(engine.engine < fake.on_tensor_cores, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  add(engine.engine < fake.transforming, CUDNN_NUMERICAL_NOTE_WINOGRAD);
  add(engine.engine < fake.nondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  add(true, CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP);
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t opaque, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count,
                            void* values) {
  if (!begins("cudnnBackendGetAttribute")) return CUDNN_STATUS_BAD_PARAM;
  const FakeDescriptor& descriptor = real(opaque);
  if (!descriptor.finalized) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  const auto is = [&](cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t of) {
    return name == attribute && type == of && wanted > 0;
  };
  if (is(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR)) {
    give_configs(descriptor, wanted, count, values);
  } else if (is(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR)) {
    FakeDescriptor& engine = **static_cast<FakeDescriptor**>(values);
    engine.engine = descriptor.engine;
    engine.finalized = true;
    *count = 1;
  } else if (is(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE)) {
    give_notes(descriptor, wanted, count, static_cast<cudnnBackendNumericalNote_t*>(values));
  } else if (is(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64)) {
    *static_cast<int64_t*>(values) = descriptor.workspace_bytes;
    *count = 1;
  } else {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  return CUDNN_STATUS_SUCCESS;
}

// Runs the work in stream order on an emulated device, where an error breaks the device. Without
// one, when the test's tensors are in host memory, runs it immediately.
cudnnStatus_t issue(cudaStream_t stream, const std::function<cudnnStatus_t()>& work) {
  const Status issued = emulated_cuda::issue(stream, [work](uint64_t) -> Status {
    if (work() == CUDNN_STATUS_SUCCESS) return {};
    return internal("[fake cudnn] cannot compute this graph");
  });
  return issued.ok() ? CUDNN_STATUS_SUCCESS : work();
}

using Addresses = std::map<int64_t, void*>;

// The library reads values bound by value when the graph is issued, so this replaces them with
// copies. All are fp32.
std::shared_ptr<const void> keep_values(const FakeDescriptor& graph, Addresses& addresses) {
  auto values = std::make_shared<std::map<int64_t, float>>();
  for (const auto* operation : graph.all<const FakeDescriptor*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    const FakeOperands o = operands_of(*operation);
    for (const FakeDescriptor* tensor : {o.x, o.b, o.t}) {
      if (tensor == nullptr || !is_by_value(*tensor)) continue;
      const auto at = addresses.find(tensor->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
      if (at == addresses.end() || at->second == nullptr || values->contains(at->first)) continue;
      at->second = &(values->emplace(at->first, *static_cast<float*>(at->second)).first->second);
    }
  }
  return values;
}

cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                      cudnnBackendDescriptor_t pack) {
  if (!begins("cudnnBackendExecute")) return CUDNN_STATUS_EXECUTION_FAILED;
  if (!is_usable(&real(plan)) || !is_usable(&real(pack))) {
    return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  }
  const FakeDescriptor* config = real(plan).part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (!is_usable(config) || !is_usable(config->graph)) return CUDNN_STATUS_BAD_PARAM;
  const auto ids = real(pack).all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto data = real(pack).all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  auto* workspace = real(pack).get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (ids.size() != data.size() || workspace == nullptr) return CUDNN_STATUS_BAD_PARAM;
  Addresses addresses;
  for (size_t i = 0; i < ids.size(); ++i) addresses[ids[i]] = data[i];
  ++fake_cudnn().executions;
  fake_cudnn().last_engine = config->engine;
  auto values = keep_values(*config->graph, addresses);
  return issue(real(handle).stream, [workspace, bytes = real(plan).workspace_bytes, addresses,
                                     graph = config->graph, values = std::move(values)] {
    std::memset(workspace, 0xFF, static_cast<size_t>(bytes));
    return compute(*graph, addresses);
  });
}

const char* error_string(cudnnStatus_t status) {
  return status == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED"
                                                 : "CUDNN_STATUS of the fake";
}

void last_error_string(char* words, size_t size) {
  std::strncpy(words, "the fake library's last error", size);
}

}  // namespace

void FakeCudnn::reset() {
  const int64_t still = alive;
  *this = FakeCudnn();
  alive = still;
}

FakeCudnn& fake_cudnn() {
  static FakeCudnn fake;
  return fake;
}

const kernels::dnn::CudnnLibrary& fake_cudnn_library() {
  static const kernels::dnn::CudnnLibrary library = {
      .use_device = [](int) { return Status(); },
      .capability = [](int) { return Result<int>(fake_cudnn().capability); },
      .version = [] { return fake_cudnn().version; },
      .error_string = error_string,
      .last_error_string = last_error_string,
      .create = one_at_a_time<create>,
      .set_stream = one_at_a_time<set_stream>,
      .create_descriptor = one_at_a_time<create_descriptor>,
      .destroy_descriptor = one_at_a_time<destroy_descriptor>,
      .set_attribute = one_at_a_time<set_attribute>,
      .get_attribute = one_at_a_time<get_attribute>,
      .finalize = one_at_a_time<finalize>,
      .execute = one_at_a_time<execute>,
  };
  return library;
}

}  // namespace lockstep::test

namespace lockstep::kernels::dnn {

Result<const CudnnLibrary*> load_cudnn() {
  return &test::fake_cudnn_library();
}

}  // namespace lockstep::kernels::dnn
