// Checks that the installed cuDNN supports our graphs for GPUs this machine does not have. Since
// 9.8 the library accepts a description of a device (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION),
// and then chooses and compiles kernels as on that device. We fake the handle, the driver and the
// launch; the toolkit's stub driver refuses to load the compiled code.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/layout/convnet_config.h"
#include "kernels/ops/dnn/cudnn.h"
#include "tests/kernels/op_cases.h"

namespace lockstep::kernels::dnn {

namespace {

// As the driver describes these cards.
struct Gpu {
  const char* name;
  int capability;
  int multiprocessors;
  int64_t shared_bytes;  // maximum per block
};
constexpr Gpu kH100 = {"NVIDIA H100 80GB HBM3", 90, 132, 232448};
constexpr Gpu kA100 = {"NVIDIA A100-SXM4-80GB", 80, 108, 166912};

std::string json_of(const Gpu& gpu) {
  const auto field = [](const char* name, auto value) {
    return std::string("\"") + name + "\":" + std::to_string(value) + ",";
  };
  return "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64]," +
         field("regsPerBlock", 65536) + field("multiProcessorCount", gpu.multiprocessors) +
         field("warpSize", 32) + field("maxSharedMemoryPerBlock", 49152) +
         field("maxSharedMemoryPerBlockOptin", gpu.shared_bytes) +
         field("reservedSharedMemoryPerBlock", 1024) + field("maxRegistersPerSM", 65536) +
         field("maxCtasPerSM", 32) + field("maxThreadsPerBlock", 1024) +
         field("maxThreadsPerSM", 2048) + field("pciDeviceId", 0) + field("isTccDriver", 0) +
         field("supportCoopLaunch", 1) + field("totalGlobalMem", int64_t{80} << 30) +
         field("smClockRateKHz", 1980000) + field("memClockRateKHz", 2619000) +
         field("l2CacheSize", 50 << 20) + field("cudaDeviceId", 0) +
         field("deviceVer", 10 * gpu.capability) + field("driverVer", 13000) + "\"deviceName\":\"" +
         gpu.name + "\"}";
}

// The installed library as production code calls it, and what we recorded of the calls.
struct Told {
  const CudnnLibrary* real = nullptr;
  int capability = 0;
  cudnnBackendDescriptor_t device = nullptr;
  std::map<cudnnBackendDescriptor_t, cudnnBackendDescriptor_t> config_of;  // by plan
  int plans = 0;  // number of compiled plans
};
Told told;

cudnnStatus_t create(cudnnHandle_t* handle) {
  *handle = reinterpret_cast<cudnnHandle_t>(&told);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  const auto set_device = [&](cudnnBackendAttributeName_t attribute) {
    return told.real->set_attribute(descriptor, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                    &told.device);
  };
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) {
    return set_device(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  }
  if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) set_device(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) {
    told.config_of[descriptor] = *static_cast<const cudnnBackendDescriptor_t*>(values);
  }
  return told.real->set_attribute(descriptor, name, type, count, values);
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor) {
  const cudnnStatus_t status = told.real->finalize(descriptor);
  const bool is_plan = told.config_of.contains(descriptor);
  if (is_plan && status == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER) {
    ++told.plans;  // compiled; only loading it failed
    return CUDNN_STATUS_SUCCESS;
  }
  told.plans += is_plan && status == CUDNN_STATUS_SUCCESS ? 1 : 0;
  return status;
}

// The library may reuse the address for another descriptor that is not a plan.
cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t descriptor) {
  told.config_of.erase(descriptor);
  return told.real->destroy_descriptor(descriptor);
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count,
                            void* values) {
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    return told.real->get_attribute(told.config_of[descriptor], CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE,
                                    type, wanted, count, values);
  }
  return told.real->get_attribute(descriptor, name, type, wanted, count, values);
}

class InstalledCudnn : public testing::Test {
 protected:
  void SetUp() override {
    const Result<const CudnnLibrary*> installed = load_cudnn();
    if (!installed.ok()) GTEST_SKIP() << installed.error().message;
    if ((*installed)->version() < 91600) GTEST_SKIP() << "cuDNN " << (*installed)->version();
    if (::dlopen("libcuda.so", RTLD_NOW) == nullptr) GTEST_SKIP() << ::dlerror();
    told = Told();
    told.real = *installed;
    library_ = **installed;
    library_.use_device = [](int) { return Status(); };
    library_.capability = [](int) { return Result<int>(told.capability); };
    library_.create = create;
    library_.destroy_descriptor = destroy_descriptor;
    library_.set_attribute = set_attribute;
    library_.finalize = finalize;
    library_.get_attribute = get_attribute;
  }
  // Makes the library plan for such a device as long as the result exists.
  static Result<Descriptor> describe_device(const Gpu& gpu) {
    const std::string json = json_of(gpu);
    told.capability = gpu.capability;
    const CudnnCalls calls(*told.real, 0);
    TRY_ASSIGN(Descriptor device, calls.make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR));
    TRY(calls.set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                  std::span<const char>(json.c_str(), json.size() + 1)));
    TRY(calls.finalize(device));
    told.device = device.get();
    return device;
  }
  // Returns what Cudnn::prepare() does on such a device.
  Result<size_t> prepare(const Gpu& gpu, const AttentionShape& shape) {
    TRY_ASSIGN(const Descriptor device, describe_device(gpu));
    TRY_ASSIGN(const std::unique_ptr<Cudnn> context, Cudnn::create(library_, 0));
    return context->prepare(shape);
  }

  CudnnLibrary library_;
};

AttentionShape shape(int64_t batch, int64_t sequence, int64_t heads, int64_t kv_heads,
                     int64_t head_dim) {
  return {.batch = batch,
          .sequence = sequence,
          .heads = heads,
          .head_dim = head_dim,
          .kv_heads = kv_heads};
}

// The workspace must hold the gradients of the scores, which the deterministic graph needs: 2 bytes
// for each query and key of each head.
size_t score_bytes(const AttentionShape& s) {
  return static_cast<size_t>(2 * s.batch * s.heads * s.sequence * s.sequence);
}

struct Case {
  const char* name;
  Gpu gpu;
  AttentionShape shape;
};

TEST_F(InstalledCudnn, CompilesBothPassesForHopperAndAmpere) {
  for (const Case& c : {Case{"GPT-2 124M", kH100, shape(64, 1024, 12, 12, 64)},
                        Case{"a Llama", kH100, shape(2, 2048, 32, 8, 128)},
                        Case{"no full tile", kH100, shape(3, 200, 4, 2, 64)},
                        Case{"two tokens", kH100, shape(1, 2, 1, 1, 64)},
                        Case{"GPT-2 124M", kA100, shape(4, 1024, 12, 12, 64)},
                        Case{"a Llama", kA100, shape(1, 512, 8, 2, 128)}}) {
    told.plans = 0;
    const Result<size_t> bytes = prepare(c.gpu, c.shape);
    ASSERT_TRUE(bytes.ok()) << c.name << ", " << c.gpu.name << ": " << bytes.error().message;
    EXPECT_EQ(told.plans, 2) << c.name << ", " << c.gpu.name;
    EXPECT_GE(*bytes, score_bytes(c.shape)) << c.name << ", " << c.gpu.name;
  }
}

Conv2dShape shape_of(const ConvUnit& unit) {
  return {.batch = 32,
          .height = unit.height,
          .width = unit.width,
          .channels = unit.channels,
          .filters = unit.filters,
          .filter_height = unit.filter_height,
          .filter_width = unit.filter_width,
          .stride = unit.stride,
          .padding = unit.padding};
}

// Returns the convolutions of all presets, and those that kernels_gpu_test runs by cuDNN.
std::vector<Conv2dShape> convolutions() {
  std::vector<Conv2dShape> shapes = op_cases::conv2d_shapes();
  shapes.push_back(op_cases::large_conv2d_shape());
  for (const ConvnetPreset& preset : convnet_presets()) {
    for (const ConvUnit& unit : convnet_units(preset.config)) {
      const Conv2dShape shape = shape_of(unit);
      if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(shape);
    }
  }
  return shapes;
}

TEST_F(InstalledCudnn, HasKernelsForAllPassesOfConvolutions) {
  constexpr Conv2dKernels kAll{Conv2dBy::kCudnn, Conv2dBy::kCudnn, Conv2dBy::kCudnn};
  const std::vector<Conv2dShape> shapes = convolutions();
  ASSERT_GT(shapes.size(), 50u);
  for (const Gpu& gpu : {kH100, kA100}) {
    const Result<Descriptor> device = describe_device(gpu);
    ASSERT_TRUE(device.ok()) << device.error().message;
    const std::unique_ptr<Cudnn> context = Cudnn::create(library_, 0).value();
    for (const Conv2dShape& shape : shapes) {
      for (const DType dtype : {DType::kF32, DType::kBf16}) {
        for (const bool adds : {false, true}) {
          const Result<PreparedConv2d> made =
              context->prepare(Conv2dUse{.shape = shape, .dtype = dtype, .adds_dx = adds});
          ASSERT_TRUE(made.ok()) << made.error().message;
          EXPECT_EQ(made->kernels(), kAll)
              << gpu.name << ", " << shape.height << "x" << shape.width << "x" << shape.channels
              << " to " << shape.filters << ", " << shape.filter_height << "x" << shape.filter_width
              << (dtype == DType::kF32 ? " f32: " : " bf16: ") << made->refusals();
        }
      }
    }
  }
}

// Gives the fallback list where production code asks for the heuristic's.
TEST_F(InstalledCudnn, HasFallbackKernelsForConvolutions) {
  library_.set_attribute = [](cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, int64_t count, const void* values) {
    const cudnnBackendHeurMode_t fallback = CUDNN_HEUR_MODE_FALLBACK;
    const bool is_mode = name == CUDNN_ATTR_ENGINEHEUR_MODE;
    return set_attribute(descriptor, name, type, count, is_mode ? &fallback : values);
  };
  const Result<Descriptor> device = describe_device(kH100);
  ASSERT_TRUE(device.ok()) << device.error().message;
  const std::unique_ptr<Cudnn> context = Cudnn::create(library_, 0).value();
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const Result<PreparedConv2d> made =
        context->prepare(Conv2dUse{.shape = op_cases::large_conv2d_shape(), .dtype = dtype});
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(made->forward.by, Conv2dBy::kCudnn) << made->refusals();
  }
}

// Shows that compiling proves something: the library rejects a graph that is not attention.
TEST_F(InstalledCudnn, DoesNotCompileAnotherGraph) {
  ASSERT_TRUE(prepare(kH100, shape(2, 128, 2, 2, 64)).ok());
  library_.set_attribute = [](cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, int64_t count, const void* values) {
    const cudnnPointwiseMode_t other = CUDNN_POINTWISE_SQRT;
    const bool is_exp = name == CUDNN_ATTR_POINTWISE_MODE &&
                        *static_cast<const cudnnPointwiseMode_t*>(values) == CUDNN_POINTWISE_EXP;
    return set_attribute(descriptor, name, type, count, is_exp ? &other : values);
  };
  const Result<size_t> bytes = prepare(kH100, shape(2, 128, 2, 2, 64));
  ASSERT_FALSE(bytes.ok());
  EXPECT_NE(bytes.error().message.find("no kernel"), std::string::npos) << bytes.error().message;
}

}  // namespace

}  // namespace lockstep::kernels::dnn
