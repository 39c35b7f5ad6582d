// Embedding, GELU and attention.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/random.h"
#include "tests/kernels/op_cases.h"

namespace lockstep::kernels::op_cases {

namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

std::string text(int64_t n) {
  return std::to_string(n);
}

void attention_row(const AttentionShape& s, int64_t b, int64_t h, int64_t t, Doubles& d) {
  const std::vector<double>& qkv = d["qkv"];
  const int64_t row = b * s.sequence + t, column = h * s.head_dim;
  const int64_t kv_column = s.width() + h / (s.heads / s.kv_heads) * s.head_dim;
  const auto at = [&](int64_t j, int64_t where) {
    return qkv[index((b * s.sequence + j) * s.qkv_width() + where)];
  };
  const int64_t keys = s.causal ? t + 1 : s.sequence;
  std::vector<double> p(index(keys));
  double sum = 0.0;
  for (int64_t j = 0; j < keys; ++j) {
    double score = 0.0;
    for (int64_t i = 0; i < s.head_dim; ++i) score += at(t, column + i) * at(j, kv_column + i);
    p[index(j)] = std::exp(score / std::sqrt(static_cast<double>(s.head_dim)));
    sum += p[index(j)];
  }
  for (int64_t i = 0; i < s.head_dim; ++i) {
    double out = 0.0;
    for (int64_t j = 0; j < keys; ++j) {
      out += p[index(j)] / sum * at(j, kv_column + s.kv_width() + i);
    }
    d["out"][index(row * s.width() + column + i)] = out;
  }
  d["lse"][index((b * s.heads + h) * s.sequence + t)] = std::log(sum);
}

}  // namespace

// kBytes imitates bytes of English text: every sixth is a space, and the rest become rarer.
std::vector<int32_t> tokens_of_batch(BatchTokens tokens, int64_t rows, int64_t below) {
  Random random(static_cast<uint64_t>(rows));
  std::vector<int32_t> result(index(rows), static_cast<int32_t>(below / 2));
  if (tokens == BatchTokens::kOne) return result;
  for (int32_t& token : result) {
    auto bound = static_cast<uint64_t>(below);
    if (tokens == BatchTokens::kBytes) {
      bound = random.below(6) == 0 ? 1 : 1 + random.below(1 + random.below(bound));
    }
    token = static_cast<int32_t>(random.below(bound));
  }
  return result;
}

OpCase embedding(const EmbeddingSizes& s) {
  const int64_t rows = s.batch * s.sequence;
  OpCase c;
  c.name = "embedding B=" + text(s.batch) + " T=" + text(s.sequence) + " C=" + text(s.width) +
           " V=" + text(s.vocabulary) + (s.vocabulary_begin > 0 ? " sharded" : "") +
           (s.tokens == BatchTokens::kOne     ? " one token"
            : s.tokens == BatchTokens::kBytes ? " bytes"
                                              : "") +
           (s.adds_row ? " and a row" : "");
  c.inputs = {{"table", s.vocabulary * s.width}, {"positions", s.sequence * s.width}};
  if (s.adds_row) c.inputs.push_back({"row", s.width});
  c.ints["tokens"] = tokens_of_batch(s.tokens, rows, s.vocabulary + 2 * s.vocabulary_begin);
  c.outputs = {{"out", rows * s.width}};
  c.activations = {"out"};
  c.loss_outputs = {"out"};
  c.gradients = {{"table", true}, {"positions", true}};
  c.workspace_bytes =
      embedding_backward_workspace({rows, s.vocabulary}, s.width, DeviceType::kCuda);
  if (s.adds_row) {
    c.gradients.push_back({"row", true});
    for (const DeviceType type : {DeviceType::kCpu, DeviceType::kCuda}) {
      c.workspace_bytes = std::max(
          c.workspace_bytes, matmul_backward_workspace({rows, s.width, 0}, Precision::kF32, type));
    }
  }
  c.forward = [s](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.embedding_forward(stream, {.tokens = t.ints_at("tokens"),
                                   .token_table = t.at("table"),
                                   .position_table = t.at("positions"),
                                   .row = s.adds_row ? ConstView(t.at("row")) : ConstView(),
                                   .out = t.at("out"),
                                   .batch = s.batch,
                                   .sequence = s.sequence,
                                   .width = s.width,
                                   .vocabulary = s.vocabulary,
                                   .vocabulary_begin = s.vocabulary_begin});
  };
  c.backward = [s](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.embedding_backward(stream, {.tokens = t.ints_at("tokens"),
                                    .dout = t.at("dout"),
                                    .dtoken_table = t.at("dtable"),
                                    .dposition_table = t.at("dpositions"),
                                    .batch = s.batch,
                                    .sequence = s.sequence,
                                    .width = s.width,
                                    .vocabulary = s.vocabulary,
                                    .vocabulary_begin = s.vocabulary_begin,
                                    .workspace = t.workspace.workspace()});
    if (!s.adds_row) return;
    ops.matmul_backward(stream, {.dy = t.at("dout"),
                                 .dbias = t.at("drow"),
                                 .m = s.batch * s.sequence,
                                 .n = s.width,
                                 .workspace = t.workspace.workspace()});
  };
  c.reference = [s](Doubles& d, const Ints& ints) {
    for (int64_t row = 0; row < s.batch * s.sequence; ++row) {
      const int64_t token = ints.at("tokens")[index(row)] - s.vocabulary_begin;
      for (int64_t i = 0; i < s.width; ++i) {
        double value = d["positions"][index(row % s.sequence * s.width + i)];
        if (s.adds_row) value += d["row"][index(i)];
        if (token >= 0 && token < s.vocabulary) value += d["table"][index(token * s.width + i)];
        d["out"][index(row * s.width + i)] = value;
      }
    }
  };
  return c;
}

OpCase gelu(int64_t count, GeluForm form) {
  OpCase c;
  c.name = (form == GeluForm::kErf ? "gelu by erf n=" : "gelu n=") + text(count);
  c.inputs = {{"x", count, -12.0f, 12.0f}};
  c.outputs = {{"y", count}};
  c.activations = {"x", "y"};
  c.loss_outputs = {"y"};
  c.gradients = {{"x"}};
  c.forward = [count, form](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.gelu_forward(stream, {.x = t.at("x"), .y = t.at("y"), .count = count, .form = form});
  };
  c.backward = [count, form](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.gelu_backward(
        stream, {.x = t.at("x"), .dy = t.at("dy"), .dx = t.at("dx"), .count = count, .form = form});
  };
  c.reference = [form](Doubles& d, const Ints&) {
    std::ranges::transform(d["x"], d["y"].begin(), [form](double x) {
      if (form == GeluForm::kErf) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
      const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(u));
    });
  };
  return c;
}

OpCase attention(const AttentionShape& s, AttentionBy by) {
  const int64_t rows = s.batch * s.sequence, width = s.width();
  OpCase c;
  c.name = std::string("attention ") + (by == AttentionBy::kCudnn ? "by cuDNN " : "") +
           "B=" + text(s.batch) + " T=" + text(s.sequence) + " NH=" + text(s.heads) +
           " KVH=" + text(s.kv_heads) + " HD=" + text(s.head_dim) +
           (s.causal ? "" : " bidirectional");
  c.inputs = {{"qkv", rows * s.qkv_width(), -2.0f, 2.0f}};
  c.outputs = {{"out", rows * width}, {"lse", s.batch * s.heads * s.sequence}};
  c.loss_outputs = {"out"};
  c.gradients = {{"qkv"}};
  c.tolerance = 5e-6;
  // Probabilities and their gradients are rounded as well.
  c.activations = {"qkv", "out"};
  c.bf16_tolerance = 1.0 / 64.0;
  c.bf16_gradient_tolerance = 1.0 / 32.0;
  c.workspace_bytes = std::max(2 * static_cast<size_t>(attention_scratch_floats(s)) * sizeof(float),
                               attention_workspace(s, DeviceType::kCuda));
  c.forward = [s, by](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.attention_forward(stream, {.qkv = t.at("qkv"),
                                   .out = t.at("out"),
                                   .lse = t.at("lse"),
                                   .shape = s,
                                   .workspace = t.workspace.workspace(),
                                   .by = by});
  };
  c.backward = [s, by](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.attention_backward(stream, {.dout = t.at("dout"),
                                    .qkv = t.at("qkv"),
                                    .out = t.at("out"),
                                    .lse = t.at("lse"),
                                    .dqkv = t.at("dqkv"),
                                    .shape = s,
                                    .workspace = t.workspace.workspace(),
                                    .by = by});
  };
  c.reference = [s](Doubles& d, const Ints&) {
    for (int64_t i = 0; i < s.batch * s.heads * s.sequence; ++i) {
      attention_row(s, i / s.sequence / s.heads, i / s.sequence % s.heads, i % s.sequence, d);
    }
  };
  return c;
}

}  // namespace lockstep::kernels::op_cases
