#include "tests/kernels/op_cases.h"

#include <bit>
#include <cmath>
#include <limits>

#include "common/base/random.h"

namespace lockstep::kernels::op_cases {

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_values(const TensorSpec& spec, Random& random) {
  std::vector<float> values(static_cast<size_t>(spec.count));
  for (float& value : values) {
    value = spec.low + (spec.high - spec.low) * random.uniform();
    if (spec.bf16_exact) {
      value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000u);
    }
  }
  return values;
}

std::vector<OpCase> matmul_cases() {
  std::vector<OpCase> cases;
  for (const MatmulShape& shape :
       {MatmulShape{1, 1, 1}, MatmulShape{1, 17, 5}, MatmulShape{7, 1, 33}, MatmulShape{33, 48, 31},
        MatmulShape{64, 96, 32}, MatmulShape{130, 67, 129}, MatmulShape{257, 3, 65}}) {
    for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
      for (const bool gelu : {false, true}) {
        cases.push_back(
            matmul({.shape = shape, .bias = true, .gelu = gelu, .precision = precision}));
      }
    }
    cases.push_back(matmul({.shape = shape, .bias = false}));
  }
  return cases;
}

// One key/value head per query head, one for all, and one per group.
std::vector<AttentionShape> attention_shapes() {
  return {
      {.batch = 1, .sequence = 1, .heads = 1, .head_dim = 1, .kv_heads = 1},
      {.batch = 1, .sequence = 2, .heads = 1, .head_dim = 8, .kv_heads = 1},
      {.batch = 2, .sequence = 5, .heads = 3, .head_dim = 7, .kv_heads = 3},
      {.batch = 1, .sequence = 33, .heads = 2, .head_dim = 16, .kv_heads = 2},
      {.batch = 2, .sequence = 64, .heads = 1, .head_dim = 32, .kv_heads = 1},
      {.batch = 1, .sequence = 79, .heads = 1, .head_dim = 40, .kv_heads = 1},
      {.batch = 1, .sequence = 97, .heads = 2, .head_dim = 5, .kv_heads = 2},
      {.batch = 2, .sequence = 37, .heads = 4, .head_dim = 6, .kv_heads = 2},
      {.batch = 2, .sequence = 66, .heads = 3, .head_dim = 16, .kv_heads = 1},
      {.batch = 1, .sequence = 40, .heads = 6, .head_dim = 34, .kv_heads = 2},
  };
}

}  // namespace

std::vector<OpCase> test_cases() {
  std::vector<OpCase> cases = matmul_cases();
  for (const EmbeddingSizes& sizes :
       {EmbeddingSizes{1, 1, 1, 1}, EmbeddingSizes{3, 5, 17, 7}, EmbeddingSizes{2, 65, 130, 11},
        EmbeddingSizes{2, 9, 16, 6, 4}, EmbeddingSizes{2, 75, 9, 40, 0, BatchTokens::kOne},
        EmbeddingSizes{2, 700, 3, 256, 0, BatchTokens::kBytes}}) {
    cases.push_back(embedding(sizes));
    EmbeddingSizes with_row = sizes;
    with_row.adds_row = true;
    cases.push_back(embedding(with_row));
  }
  for (const int64_t rows : {1, 3, 70}) {
    for (const int64_t width : {1, 7, 16, 129}) {
      for (const bool residual : {false, true}) {
        cases.push_back(layernorm({.rows = rows, .width = width, .residual = residual}));
        cases.push_back(rmsnorm({.rows = rows, .width = width, .residual = residual}));
      }
    }
  }
  for (const int64_t count : {1, 5, 16, 1001}) {
    cases.push_back(gelu(count));
    cases.push_back(gelu(count, GeluForm::kErf));
    cases.push_back(pointwise(Pointwise::kRelu, count));
    cases.push_back(pointwise(Pointwise::kTanh, count));
    cases.push_back(scale(count));
    cases.push_back(inverse_norm(count));
    cases.push_back(copy_rows(7, count));
    cases.push_back(dropout(count, 0.3));
    cases.push_back(add(count));
    cases.push_back(fill(count));
    cases.push_back(cast_through_bf16(count));
  }
  for (const SwigluSizes& sizes :
       {SwigluSizes{1, 1}, SwigluSizes{3, 7}, SwigluSizes{5, 64}, SwigluSizes{70, 301}}) {
    cases.push_back(swiglu(sizes));
  }
  for (const AttentionShape& shape : attention_shapes()) {
    cases.push_back(attention(shape));
    AttentionShape bidirectional = shape;
    bidirectional.causal = false;
    cases.push_back(attention(bidirectional));
    if (shape.head_dim % 2 == 0) cases.push_back(rotary(shape));
  }
  for (const int64_t shards : {0, 1, 3}) {
    cases.push_back(classifier({.rows = 1, .columns = 3, .vocabulary = 3, .shards = shards}));
    cases.push_back(classifier({.rows = 5, .columns = 48, .vocabulary = 41, .shards = shards}));
    cases.push_back(classifier({.rows = 70, .columns = 66, .vocabulary = 66, .shards = shards}));
    cases.push_back(classifier({.rows = 2, .columns = 60, .vocabulary = 19, .shards = shards}));
  }
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 1}, {5, 3}, {70, 10}, {9, 130}, {2, 2051}}) {
    cases.push_back(squared_error(rows, columns));
    cases.push_back(classifier_hits(rows, columns, 1));
    cases.push_back(classifier_hits(rows, columns, 5));
  }
  for (const UpdateSizes& sizes :
       {UpdateSizes{.counts = {1}}, UpdateSizes{.counts = {16, 33, 7, 40000}},
        UpdateSizes{.counts = std::vector<int64_t>(500, 5), .device_scale = true},
        UpdateSizes{.counts = {1001, 64}, .device_scale = true, .copies = true},
        UpdateSizes{.counts = {77, 2048}, .copies = true, .rounding_seed = 5},
        UpdateSizes{.counts = {2048, 16, 33, 40000}, .device_scale = true, .averages = true},
        UpdateSizes{.counts = {1001, 64}, .copies = true, .averages = true},
        UpdateSizes{.counts = {1001, 64}, .device_scale = true, .averages = true, .plain = true}}) {
    cases.push_back(adamw(sizes));
    cases.push_back(sgd(sizes, 0.0, false));
    cases.push_back(sgd(sizes, 0.9, false));
    cases.push_back(sgd(sizes, 0.9, true));
    cases.push_back(adagrad(sizes));
    cases.push_back(ftrl(sizes));
  }
  for (OpCase& c : convnet_cases()) cases.push_back(std::move(c));
  cases.push_back(squared_norm({1}));
  cases.push_back(squared_norm({70000, 3, 16384, 33}));
  cases.push_back(squared_norm(std::vector<int64_t>(1100, 3)));
  for (const double clip_norm : {0.0, 0.5, 100.0}) cases.push_back(clip_scale(clip_norm));
  for (const int64_t count : {1, 33, 5000}) cases.push_back(loss_sum(count));
  return cases;
}

std::vector<OpCase> cuda_cases() {
  std::vector<OpCase> cases = test_cases();
  // On CUDA the dtype of a run determines the precision of products. Attention has its own list,
  // because the plain kernels' loop over single keys is slow on the emulated device;
  // emulated_attention_test has more cases.
  std::erase_if(cases, [](const OpCase& c) {
    return c.name.starts_with("matmul bf16") || c.name.starts_with("attention");
  });
  for (const AttentionShape& shape :
       {AttentionShape{.batch = 1, .sequence = 1, .heads = 1, .head_dim = 1, .kv_heads = 1},
        AttentionShape{.batch = 2, .sequence = 5, .heads = 3, .head_dim = 7, .kv_heads = 3},
        AttentionShape{.batch = 1, .sequence = 33, .heads = 2, .head_dim = 40, .kv_heads = 1},
        AttentionShape{.batch = 1, .sequence = 67, .heads = 2, .head_dim = 64, .kv_heads = 1},
        AttentionShape{.batch = 1, .sequence = 67, .heads = 1, .head_dim = 128, .kv_heads = 1}}) {
    cases.push_back(attention(shape));
    AttentionShape bidirectional = shape;
    bidirectional.causal = false;
    cases.push_back(attention(bidirectional));
  }
  for (const bool residual : {false, true}) {
    cases.push_back(layernorm({.rows = 130, .width = 272, .residual = residual}));
    cases.push_back(rmsnorm({.rows = 130, .width = 272, .residual = residual}));
  }
  // Rows that are too wide for one pass.
  cases.push_back(layernorm({.rows = 3, .width = 4112, .residual = true}));
  cases.push_back(rmsnorm({.rows = 3, .width = 4112, .residual = true}));
  cases.push_back(embedding({3, 40, 272, 300}));
  cases.push_back(embedding({2, 67, 264, 700, 0, BatchTokens::kBytes}));
  cases.push_back(embedding({2, 67, 264, 40, 0, BatchTokens::kOne}));
  cases.push_back(classifier({.rows = 3, .columns = 2064, .vocabulary = 2050}));
  // A row that does not fit into shared memory, in fp32 or at all.
  cases.push_back(classifier({.rows = 2, .columns = 26000, .vocabulary = 25990}));
  cases.push_back(classifier({.rows = 2, .columns = 51200, .vocabulary = 51190}));
  cases.push_back(swiglu({3, 1040}));
  cases.push_back(rotary({.batch = 2, .sequence = 5, .heads = 4, .head_dim = 64, .kv_heads = 2}));
  return cases;
}

Tensors make_tensors(const OpCase& op_case, uint64_t seed, RunOn on) {
  Tensors tensors(on);
  Random random(seed);
  const auto is_bf16 = [&](const std::string& name) {
    return on.dtype == DType::kBf16 && op_case.activations.contains(name);
  };
  for (TensorSpec spec : op_case.inputs) {
    spec.bf16_exact = spec.bf16_exact || is_bf16(spec.name);
    tensors.put(spec.name, random_values(spec, random), is_bf16(spec.name));
  }
  for (const TensorSpec& spec : op_case.outputs) {
    if (op_case.double_outputs.contains(spec.name)) {
      tensors.put_doubles(spec.name,
                          std::vector<double>(static_cast<size_t>(spec.count), std::nan("")));
    } else {
      tensors.put(spec.name, std::vector<float>(static_cast<size_t>(spec.count), kNan),
                  is_bf16(spec.name));
    }
  }
  for (const auto& [name, values] : op_case.ints) tensors.put(name, values);
  Result<Buffer> workspace = Buffer::allocate(on.device, op_case.workspace_bytes);
  if (workspace.ok()) {
    tensors.workspace = std::move(workspace).value();
  } else {
    tensors.keep(workspace.error());
  }
  return tensors;
}

void add_gradients(const OpCase& op_case, uint64_t seed, Tensors& tensors) {
  Random random(seed, 1);
  const auto is_bf16 = [&](const std::string& name) {
    return tensors.on().dtype == DType::kBf16 && op_case.activations.contains(name);
  };
  for (const std::string& output : op_case.loss_outputs) {
    TensorSpec spec{.name = "d" + output,
                    .count = static_cast<int64_t>(tensors.floats.at(output).size()),
                    .bf16_exact = true};
    std::vector<float> values = random_values(spec, random);
    if (op_case.loss_weight != 0.0) {
      values.assign(values.size(), static_cast<float>(op_case.loss_weight));
    }
    tensors.put(spec.name, std::move(values), is_bf16(output));
  }
  for (const GradientSpec& gradient : op_case.gradients) {
    tensors.put("d" + gradient.input,
                std::vector<float>(tensors.floats.at(gradient.input).size(),
                                   gradient.accumulated ? 0.5f : kNan),
                is_bf16(gradient.input) && (gradient.is_activation || !gradient.accumulated));
  }
}

}  // namespace lockstep::kernels::op_cases
