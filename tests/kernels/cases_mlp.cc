// Ops that an MLP needs and a transformer does not: ReLU and tanh, squared error, right answers.
#include <algorithm>
#include <cmath>

#include "common/base/random.h"
#include "tests/kernels/op_cases.h"

namespace lockstep::kernels::op_cases {

namespace {

constexpr double kLossScale = 0.125;

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

std::string sizes_text(int64_t rows, int64_t columns) {
  return " R=" + std::to_string(rows) + " C=" + std::to_string(columns);
}

double value_of(Pointwise function, double x) {
  return function == Pointwise::kTanh ? std::tanh(x) : std::max(x, 0.0);
}

// Right, wrong and uncounted answers; logits are bf16-exact, so that ties are ties in both dtypes.
std::vector<int32_t> some_targets(int64_t rows, int64_t columns) {
  Random random(11);
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < rows; ++r) {
    const bool counts = r % 7 != 3;
    targets.push_back(counts ? static_cast<int32_t>(random.below(static_cast<uint64_t>(columns)))
                             : -1);
  }
  return targets;
}

// The first of several equal logits counts as larger.
double hit_of(const std::vector<double>& row, int64_t target, int64_t top) {
  if (target < 0) return 0;
  int64_t larger = 0;
  for (int64_t v = 0; v < std::ssize(row); ++v) {
    const double difference = row[index(v)] - row[index(target)];
    larger += difference > 0 || (difference == 0 && v < target) ? 1 : 0;
  }
  return larger < top ? 1 : 0;
}

}  // namespace

OpCase pointwise(Pointwise function, int64_t count) {
  OpCase c;
  c.name = std::string("pointwise ") + (function == Pointwise::kTanh ? "tanh" : "relu") +
           " n=" + std::to_string(count);
  c.inputs = {{"x", count, -12.0f, 12.0f}};
  if (function == Pointwise::kTanh) c.inputs = {{"x", count, -3.0f, 3.0f}};
  c.outputs = {{"y", count}};
  c.activations = {"x", "y"};
  c.loss_outputs = {"y"};
  c.gradients = {{"x"}};
  c.forward = [=](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.pointwise_forward(stream,
                          {.x = t.at("x"), .y = t.at("y"), .count = count, .function = function});
  };
  c.backward = [=](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.pointwise_backward(
        stream,
        {.y = t.at("y"), .dy = t.at("dy"), .dx = t.at("dx"), .count = count, .function = function});
  };
  c.reference = [=](Doubles& d, const Ints&) {
    std::ranges::transform(d["x"], d["y"].begin(), [=](double x) { return value_of(function, x); });
  };
  return c;
}

OpCase squared_error(int64_t rows, int64_t columns) {
  OpCase c;
  c.name = "squared_error" + sizes_text(rows, columns);
  c.inputs = {{"outputs", rows * columns}, {"values", rows * columns}};
  c.outputs = {{"losses", rows}};
  c.activations = {"outputs"};
  c.loss_outputs = {"losses"};
  c.loss_weight = kLossScale;
  c.gradients = {{"outputs"}};
  const auto run = [=](const OpTable& ops, Stream& stream, Tensors& t, const std::string& outputs,
                       bool gradient) {
    ops.squared_error(stream, {.outputs = t.at(outputs),
                               .values = t.at("values"),
                               .losses = t.at("losses"),
                               .rows = rows,
                               .columns = columns,
                               .gradient = gradient,
                               .gradient_scale = static_cast<float>(kLossScale)});
  };
  c.forward = [run](const OpTable& ops, Stream& stream, Tensors& t) {
    run(ops, stream, t, "outputs", false);
  };
  c.backward = [run](const OpTable& ops, Stream& stream, Tensors& t) {
    t.copy("outputs", "doutputs");
    run(ops, stream, t, "doutputs", true);
  };
  c.reference = [=](Doubles& d, const Ints&) {
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (int64_t i = r * columns; i < (r + 1) * columns; ++i) {
        const double difference = d["outputs"][index(i)] - d["values"][index(i)];
        sum += difference * difference;
      }
      d["losses"][index(r)] = sum;
    }
  };
  return c;
}

OpCase classifier_hits(int64_t rows, int64_t columns, int64_t top) {
  OpCase c;
  c.name = "classifier_hits" + sizes_text(rows, columns) + " top " + std::to_string(top);
  c.inputs = {{"logits", rows * columns, -3.0f, 3.0f, true}};
  c.ints["targets"] = some_targets(rows, columns);
  c.outputs = {{"hits", rows}};
  c.activations = {"logits"};
  c.tolerance = 0;
  c.bf16_tolerance = 0;
  c.forward = [=](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.classifier_hits(stream, {.logits = t.at("logits"),
                                 .targets = t.ints_at("targets"),
                                 .hits = t.at("hits"),
                                 .shape = {.rows = rows, .columns = columns, .vocabulary = columns},
                                 .top = top});
  };
  c.reference = [=](Doubles& d, const Ints& ints) {
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = d["logits"].begin() + r * columns;
      d["hits"][index(r)] = hit_of({row, row + columns}, ints.at("targets")[index(r)], top);
    }
  };
  return c;
}

}  // namespace lockstep::kernels::op_cases
