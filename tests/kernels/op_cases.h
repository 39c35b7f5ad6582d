#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

// A list of op cases, each with a double-precision reference. It drives the tests of the CPU, the
// emulated CUDA device and a GPU against the reference, the gradient checks against the reference's
// finite differences, the determinism tests and the benchmarks.
namespace lockstep::kernels::op_cases {

struct TensorSpec {
  std::string name;
  int64_t count = 0;
  float low = -1.0f;  // random inputs are uniform in [low, high)
  float high = 1.0f;
  bool bf16_exact = false;  // inputs are exact in bf16
};

using Doubles = std::map<std::string, std::vector<double>>;
using Ints = std::map<std::string, std::vector<int32_t>>;

// The device and the activations' dtype of a run. bf16 only on CUDA.
struct RunOn {
  Device device = {};
  DType dtype = DType::kF32;
};

// A tensor in device memory, passed as an op's argument: as a view of its own dtype, or as float*
// (CHECK).
class Argument {
 public:
  Argument(std::nullptr_t) {}
  explicit Argument(View view) : view_(view) {}
  operator View() const { return view_; }
  operator ConstView() const { return view_; }
  operator float*() const { return view_.f32(); }

 private:
  View view_;
};

// The memory of one run, by name: in fp32 on the host, and in the case's dtype on the device. Keeps
// the first device failure; after it, device operations do nothing and host values do not change.
class Tensors {
 public:
  Tensors() = default;
  explicit Tensors(RunOn on) : on_(on) {}

  std::map<std::string, std::vector<float>> floats;
  Buffer workspace;
  Ints ints;

  const RunOn& on() const { return on_; }
  // Returns the first failure.
  const Status& status() const { return status_; }
  // Records a failure of other operations on this memory.
  void keep(const Status& status);
  // Copies host values to the device, replacing the tensor of that name, and back.
  void put(const std::string& name, std::vector<float> values, bool as_bf16 = false);
  void put(const std::string& name, std::vector<int32_t> values);
  void put_doubles(const std::string& name, const std::vector<double>& values);
  const std::vector<float>& get(const std::string& name);
  void get_all();
  // Copies within the device.
  void copy(const std::string& from, const std::string& to);

  Argument at(const std::string& name) { return Argument(stored_.at(name).view()); }
  const int32_t* ints_at(const std::string& name) {
    return static_cast<const int32_t*>(stored_.at(name).buffer.data());
  }
  double* double_at(const std::string& name) {
    return static_cast<double*>(stored_.at(name).buffer.data());
  }

 private:
  enum class Kind : uint8_t { kF32, kBf16, kInt, kDouble };
  struct Stored {
    Buffer buffer;
    Kind kind = Kind::kF32;
    View view() const { return {buffer.data(), kind == Kind::kBf16 ? DType::kBf16 : DType::kF32}; }
  };

  void store(const std::string& name, Kind kind, const void* bytes, size_t count);
  Status try_store(const std::string& name, Kind kind, const void* bytes, size_t count);

  RunOn on_;
  Status status_;
  std::map<std::string, Stored> stored_;
};

struct GradientSpec {
  std::string input;           // backward writes "d" + input
  bool accumulated = false;    // added to instead of overwritten
  bool is_activation = false;  // has its type even if accumulated
};

struct OpCase {
  std::string name;  // "layernorm R=3 C=17"
  std::vector<TensorSpec> inputs;
  Ints ints;
  std::vector<TensorSpec> outputs;
  size_t workspace_bytes = 0;  // enough for the CPU and CUDA
  // Inputs and outputs that are bf16 in a bf16 run. Their gradients are bf16 as well, unless they
  // are accumulated.
  std::set<std::string> activations;
  std::set<std::string> double_outputs;
  // Reads the inputs, writes the outputs.
  std::function<void(const OpTable&, Stream&, Tensors&)> forward;
  std::function<void(Doubles&, const Ints&)> reference;

  // Backward reads "d" + output for every loss output (random values, or loss_weight everywhere)
  // and the results of forward. It writes "d" + input for every gradient. Without gradients there
  // is no backward.
  std::vector<std::string> loss_outputs;
  double loss_weight = 0.0;
  std::vector<GradientSpec> gradients;
  std::function<void(const OpTable&, Stream&, Tensors&)> backward;

  // Maximum difference from the reference, relative to the largest magnitude in the tensor.
  double tolerance = 2e-6;
  double gradient_tolerance = 1e-5;
  // The same for bf16: for results that are rounded once, and for their gradients.
  double bf16_tolerance = 1.0 / 256.0;
  double bf16_gradient_tolerance = 1.0 / 128.0;
  // Whether results are bitwise the same for any number of threads. The library's products
  // guarantee it only for a fixed number.
  bool any_threads = true;
};

struct LayerNormSizes {
  int64_t rows = 0, width = 0;
  bool residual = false;
};
struct SwigluSizes {
  int64_t rows = 0, width = 0;
};
struct MatmulSizes {
  MatmulShape shape;
  bool bias = true;
  bool gelu = false;  // y = gelu(...), and in backward x = gelu(x_pre)
  Precision precision = Precision::kF32;
};
struct ClassifierSizes {
  int64_t rows = 0, columns = 0, vocabulary = 0;
  int64_t shards = 0;  // 0: the fused op; otherwise columns are split and the three passes run
};
// The tokens of a batch: arbitrary, all the same, or distributed like the bytes of a text (256
// values, few of which make up most of it).
enum class BatchTokens : uint8_t { kAny, kOne, kBytes };
struct EmbeddingSizes {
  int64_t batch = 0, sequence = 0, width = 0, vocabulary = 0;
  int64_t vocabulary_begin = 0;
  BatchTokens tokens = BatchTokens::kAny;
  bool adds_row = false;
};
std::vector<int32_t> tokens_of_batch(BatchTokens tokens, int64_t rows, int64_t below);

struct UpdateSizes {
  std::vector<int64_t> counts;  // element counts of the tensors
  bool device_scale = false;
  bool copies = false;  // in the run's dtype
  uint64_t rounding_seed = 0;
  bool averages = false;
  bool plain = false;  // UpdatedTensor::plain_rate
};

OpCase embedding(const EmbeddingSizes& sizes);
OpCase layernorm(const LayerNormSizes& sizes);
OpCase rmsnorm(const LayerNormSizes& sizes);
OpCase gelu(int64_t count, GeluForm form = GeluForm::kTanh);
OpCase pointwise(Pointwise function, int64_t count);
OpCase swiglu(const SwigluSizes& sizes);
OpCase rotary(const AttentionShape& shape);
OpCase attention(const AttentionShape& shape, AttentionBy by = AttentionBy::kOwn);
OpCase matmul(const MatmulSizes& sizes);
OpCase classifier(const ClassifierSizes& sizes);
struct BatchNormSizes {
  int64_t rows = 0, channels = 0;
  bool residual = false, relu = false;
  bool adds = false;  // to the gradient of the residual

  int64_t count() const { return rows * channels; }
};
std::vector<Conv2dShape> conv2d_shapes();
// Returns one of the size that networks have, for which check_gradients() takes minutes.
Conv2dShape large_conv2d_shape();
// `is_split`: gradients of x and of the filters in calls of their own. By cuDNN's kernels the
// caller prepares the shape, and raises workspace_bytes.
OpCase conv2d(const Conv2dShape& shape, bool adds_dx, bool is_split, const Conv2dKernels& by = {});
OpCase batchnorm(const BatchNormSizes& sizes);
OpCase batchnorm_running(int64_t channels);
OpCase pool(const PoolShape& shape, Pooling kind);
std::vector<OpCase> convnet_cases();  // part of test_cases()
OpCase classifier_hits(int64_t rows, int64_t columns, int64_t top);
OpCase squared_error(int64_t rows, int64_t columns);
OpCase adamw(const UpdateSizes& sizes);
OpCase sgd(const UpdateSizes& sizes, double momentum, bool nesterov);
OpCase adagrad(const UpdateSizes& sizes);
OpCase ftrl(const UpdateSizes& sizes);
OpCase squared_norm(const std::vector<int64_t>& counts);
OpCase clip_scale(double clip_norm);
OpCase loss_sum(int64_t count);
OpCase scale(int64_t count);
OpCase inverse_norm(int64_t count);
OpCase copy_rows(int64_t rows, int64_t width);
OpCase dropout(int64_t count, double probability);
OpCase add(int64_t count);
OpCase fill(int64_t count);
OpCase cast_through_bf16(int64_t count);

// Returns small cases with awkward sizes.
std::vector<OpCase> test_cases();
// Returns the cases for CUDA: most of test_cases(), plus larger ones with rows of whole packs and
// head sizes for tensor cores.
std::vector<OpCase> cuda_cases();

// Failures are recorded in the tensors' status().
// Fills inputs and ints from the seed. Outputs are NaN, so that elements that are not written show.
// In a bf16 run, activations among the inputs are exact in bf16.
Tensors make_tensors(const OpCase& op_case, uint64_t seed, RunOn on = {});
// Adds "d" + output (random) and "d" + input (0.5 if accumulated, else NaN) for backward.
void add_gradients(const OpCase& op_case, uint64_t seed, Tensors& tensors);

}  // namespace lockstep::kernels::op_cases
