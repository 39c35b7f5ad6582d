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

// One list of cases of the operations, with a double-precision reference each. It drives: CPU, the
// emulated CUDA device and a GPU against the reference, gradients against its finite differences,
// determinism, and the benchmarks.
namespace lockstep::op_cases {

struct TensorSpec {
  std::string name;
  int64_t count = 0;
  float low = -1.0f;  // random inputs are uniform in [low, high)
  float high = 1.0f;
  bool bf16_exact = false;  // inputs that bf16 holds exactly
};

using Doubles = std::map<std::string, std::vector<double>>;
using Ints = std::map<std::string, std::vector<int32_t>>;

// Where a case runs, and what its activations are there. bf16 on CUDA alone.
struct RunOn {
  Device device = {};
  DType dtype = DType::kF32;
};

// A tensor in the device's memory, as the arguments of an op take it: as a view of what it is, or
// as float* (CHECK).
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

// The memory of one run, by name: on the host as fp32, and on the device as the case has it. What
// fails on the device is kept: from then on nothing more is done there, and what is on the host
// stays as it is.
class Tensors {
 public:
  Tensors() = default;
  explicit Tensors(RunOn on) : on_(on) {}

  std::map<std::string, std::vector<float>> floats;
  Buffer workspace;
  Ints ints;

  const RunOn& on() const { return on_; }
  // The first failure.
  const Status& status() const { return status_; }
  // Of what others do with this memory.
  void keep(const Status& status);
  // Copies host values to the device (under that name, anew) and back.
  void put(const std::string& name, std::vector<float> values, bool as_bf16 = false);
  void put(const std::string& name, std::vector<int32_t> values);
  void put_doubles(const std::string& name, const std::vector<double>& values);
  const std::vector<float>& get(const std::string& name);
  void get_all();
  // On the device.
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
  std::string input;         // "d" + input is what backward writes
  bool accumulated = false;  // added to, not overwritten
};

struct OpCase {
  std::string name;  // "layernorm R=3 C=17"
  std::vector<TensorSpec> inputs;
  Ints ints;
  std::vector<TensorSpec> outputs;
  size_t workspace_bytes = 0;  // enough for both devices
  // Inputs and outputs that a run in bf16 has in bf16, and with them gradients that are not
  // accumulated.
  std::set<std::string> activations;
  std::set<std::string> double_outputs;
  // Reads the inputs, writes the outputs.
  std::function<void(const OpTable&, Stream&, Tensors&)> forward;
  std::function<void(Doubles&, const Ints&)> reference;

  // Backward: given "d" + output for every loss output (random, or loss_weight everywhere), and
  // what forward left, writes "d" + input for every gradient. Without gradients there is no
  // backward.
  std::vector<std::string> loss_outputs;
  double loss_weight = 0.0;
  std::vector<GradientSpec> gradients;
  std::function<void(const OpTable&, Stream&, Tensors&)> backward;

  // Largest difference from the reference, relative to the largest magnitude in the tensor.
  double tolerance = 2e-6;
  double gradient_tolerance = 1e-5;
  // The same in bf16, for results that are rounded once, and their gradients.
  double bf16_tolerance = 1.0 / 256.0;
  double bf16_gradient_tolerance = 1.0 / 128.0;
  // The same bits for any number of threads; the library's products promise it for one number only.
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
  bool gelu = false;  // y = gelu(...) and, in backward, x = gelu(x_pre)
  Precision precision = Precision::kF32;
};
struct ClassifierSizes {
  int64_t rows = 0, columns = 0, vocabulary = 0;
  int64_t shards = 0;  // 0: the fused form; else columns are split and the three passes run
};
// Which tokens a batch has: any, one alone, or as a text has bytes, most of them few of 256.
enum class BatchTokens : uint8_t { kAny, kOne, kBytes };
struct EmbeddingSizes {
  int64_t batch = 0, sequence = 0, width = 0, vocabulary = 0;
  int64_t vocabulary_begin = 0;
  BatchTokens tokens = BatchTokens::kAny;
};
std::vector<int32_t> tokens_of_batch(BatchTokens tokens, int64_t rows, int64_t below);

struct AdamWSizes {
  std::vector<int64_t> counts;  // of the tensors
  bool device_scale = false;
  bool copies = false;  // in the dtype of the run
  uint64_t rounding_seed = 0;
};

OpCase embedding(const EmbeddingSizes& sizes);
OpCase layernorm(const LayerNormSizes& sizes);
OpCase rmsnorm(const LayerNormSizes& sizes);
OpCase gelu(int64_t count);
OpCase swiglu(const SwigluSizes& sizes);
OpCase rotary(const AttentionShape& shape);
OpCase attention(const AttentionShape& shape, AttentionBy by = AttentionBy::kOwn);
OpCase matmul(const MatmulSizes& sizes);
OpCase classifier(const ClassifierSizes& sizes);
OpCase adamw(const AdamWSizes& sizes);
OpCase squared_norm(const std::vector<int64_t>& counts);
OpCase clip_scale(int64_t count, double clip_norm);
OpCase loss_sum(int64_t count);
OpCase scale(int64_t count);
OpCase add(int64_t count);
OpCase fill(int64_t count);
OpCase cast_through_bf16(int64_t count);

// Small ones, with awkward sizes, for the tests.
std::vector<OpCase> test_cases();
// Those for CUDA: most of them, and larger ones, rows that are whole packs, heads that the tensor
// cores take.
std::vector<OpCase> cuda_cases();

// What fails is in the tensors' status().
// Fills inputs and ints from the seed; outputs are NaN, so that what is not written shows. In a run
// in bf16 the activations among the inputs are values that bf16 holds.
Tensors make_tensors(const OpCase& op_case, uint64_t seed, RunOn on = {});
// Adds "d" + output (random) and "d" + input (0.5 where accumulated, else NaN) for backward.
void add_gradients(const OpCase& op_case, uint64_t seed, Tensors& tensors);

}  // namespace lockstep::op_cases
