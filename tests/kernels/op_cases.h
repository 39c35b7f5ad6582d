#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

// One list of cases of the operations, with a double-precision reference each. It drives: CPU
// against reference, gradients against finite differences of the reference, determinism, and the
// benchmarks.
namespace lockstep::op_cases {

struct TensorSpec {
  std::string name;
  int64_t count = 0;
  float low = -1.0f;  // random inputs are uniform in [low, high)
  float high = 1.0f;
  bool bf16_exact = false;  // inputs that bf16 holds exactly
};

// The memory of one run, by name.
struct Tensors {
  std::map<std::string, std::vector<float>> floats;
  std::map<std::string, std::vector<int32_t>> ints;
  std::vector<AdamWTensor> adamw;
  Buffer workspace;

  float* at(const std::string& name) { return floats.at(name).data(); }
};

using Doubles = std::map<std::string, std::vector<double>>;
using Ints = std::map<std::string, std::vector<int32_t>>;

struct GradientSpec {
  std::string input;         // "d" + input is what backward writes
  bool accumulated = false;  // added to, not overwritten
};

struct OpCase {
  std::string name;  // "layernorm R=3 C=17"
  std::vector<TensorSpec> inputs;
  Ints ints;
  std::vector<TensorSpec> outputs;
  size_t workspace_bytes = 0;
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
  // The same bits for any number of threads; the library's products promise it for one number only.
  bool any_threads = true;
  // For benchmarks: operations and bytes of memory that must move.
  double forward_flops = 0.0;
  double backward_flops = 0.0;
  double forward_bytes = 0.0;
  double backward_bytes = 0.0;
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
struct EmbeddingSizes {
  int64_t batch = 0, sequence = 0, width = 0, vocabulary = 0;
  int64_t vocabulary_begin = 0;
};

OpCase embedding(const EmbeddingSizes& sizes);
OpCase layernorm(const LayerNormSizes& sizes);
OpCase rmsnorm(const LayerNormSizes& sizes);
OpCase gelu(int64_t count);
OpCase swiglu(const SwigluSizes& sizes);
OpCase rotary(const AttentionShape& shape);
OpCase attention(const AttentionShape& shape);
OpCase matmul(const MatmulSizes& sizes);
OpCase classifier(const ClassifierSizes& sizes);
OpCase adamw(const std::vector<int64_t>& counts);
OpCase squared_norm(const std::vector<int64_t>& counts);
OpCase scale(int64_t count);
OpCase add(int64_t count);
OpCase fill(int64_t count);
OpCase cast_through_bf16(int64_t count);

// Small ones, with awkward sizes, for the tests.
std::vector<OpCase> test_cases();

// Fills inputs and ints from the seed; outputs are NaN, so that what is not written shows.
Tensors make_tensors(const OpCase& op_case, uint64_t seed);
// Adds "d" + output (random) and "d" + input (0.5 where accumulated, else NaN) for backward.
void add_gradients(const OpCase& op_case, uint64_t seed, Tensors& tensors);

}  // namespace lockstep::op_cases
