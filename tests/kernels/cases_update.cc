// The classifier, the optimizer and elementwise operations.
#include <algorithm>
#include <cmath>

#include "common/base/random.h"
#include "tests/kernels/op_cases.h"

namespace lockstep::op_cases {

namespace {

constexpr double kLossScale = 0.125;

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

// Every third row is not counted, from the second on.
std::vector<int32_t> random_targets(const ClassifierSizes& s) {
  Random random(7);
  std::vector<int32_t> targets(index(s.rows));
  for (int64_t r = 0; r < s.rows; ++r) {
    const uint64_t target = random.below(static_cast<uint64_t>(s.vocabulary));
    targets[index(r)] = r % 3 == 1 ? -1 : static_cast<int32_t>(target);
  }
  return targets;
}

// The three passes over shards of the columns, with the reductions that ranks would do.
class ShardedClassifier {
 public:
  ShardedClassifier(const OpTable& ops, Stream& stream, const ClassifierSizes& sizes, Tensors& t)
      : ops_(ops), stream_(stream), sizes_(sizes), tensors_(t) {
    for (int64_t shard = 0; shard < sizes.shards; ++shard) split(shard);
  }

  void run(bool gradient) {
    std::vector<float> maxima = reduce(
        -HUGE_VALF,
        [&](Shard& s, std::vector<float>& out) {
          ops_.classifier_max(stream_,
                              {.logits = s.logits.data(), .maxima = out.data(), .shape = s.shape});
        },
        [](float a, float b) { return std::max(a, b); });
    std::vector<std::vector<float>> targets;
    const int32_t* tokens = tensors_.ints.at("targets").data();
    const auto plus = [](float a, float b) { return a + b; };
    std::vector<float> target_logits(index(sizes_.rows), 0.0f);
    std::vector<float> sums = reduce(
        0.0f,
        [&](Shard& s, std::vector<float>& out) {
          std::vector<float> target(index(sizes_.rows));
          ops_.classifier_sum(stream_, {.logits = s.logits.data(),
                                        .targets = tokens,
                                        .maxima = maxima.data(),
                                        .sums = out.data(),
                                        .target_logits = target.data(),
                                        .shape = s.shape});
          std::ranges::transform(target, target_logits, target_logits.begin(), plus);
        },
        plus);
    for (Shard& s : shards_) {
      ops_.classifier_finish(stream_, {.logits = s.logits.data(),
                                       .targets = tokens,
                                       .sums = sums.data(),
                                       .target_logits = target_logits.data(),
                                       .losses = tensors_.at("losses"),
                                       .shape = s.shape,
                                       .gradient = gradient,
                                       .gradient_scale = static_cast<float>(kLossScale)});
    }
  }

  void join(float* to) const {
    for (const Shard& s : shards_) {
      for (int64_t i = 0; i < sizes_.rows * s.shape.columns; ++i) {
        const int64_t row = i / s.shape.columns, column = i % s.shape.columns;
        to[row * sizes_.columns + s.shape.column_begin + column] = s.logits[index(i)];
      }
    }
  }

 private:
  struct Shard {
    ClassifierShape shape;
    std::vector<float> logits;
  };

  void split(int64_t shard) {
    const int64_t begin = sizes_.columns * shard / sizes_.shards;
    const int64_t end = sizes_.columns * (shard + 1) / sizes_.shards;
    Shard s{.shape = {.rows = sizes_.rows,
                      .columns = end - begin,
                      .vocabulary = sizes_.vocabulary,
                      .column_begin = begin},
            .logits = {}};
    for (int64_t i = 0; i < sizes_.rows * (end - begin); ++i) {
      const int64_t row = i / (end - begin), column = begin + i % (end - begin);
      s.logits.push_back(tensors_.at("logits")[row * sizes_.columns + column]);
    }
    shards_.push_back(std::move(s));
  }

  template <class Pass, class Combine>
  std::vector<float> reduce(float start, Pass pass, Combine combine) {
    std::vector<float> total(index(sizes_.rows), start);
    for (Shard& s : shards_) {
      std::vector<float> part(index(sizes_.rows));
      pass(s, part);
      std::ranges::transform(part, total, total.begin(), combine);
    }
    return total;
  }

  const OpTable& ops_;
  Stream& stream_;
  const ClassifierSizes& sizes_;
  Tensors& tensors_;
  std::vector<Shard> shards_;
};

void classifier_reference(const ClassifierSizes& s, Doubles& d, const Ints& ints) {
  const std::vector<double>& logits = d["logits"];
  for (int64_t r = 0; r < s.rows; ++r) {
    const int32_t target = ints.at("targets")[index(r)];
    double sum = 0.0;
    for (int64_t v = 0; v < s.vocabulary; ++v) sum += std::exp(logits[index(r * s.columns + v)]);
    d["losses"][index(r)] =
        target < 0 ? 0.0 : std::log(sum) - logits[index(r * s.columns + target)];
  }
}

std::string joined(const std::vector<int64_t>& counts) {
  std::string result;
  for (const int64_t count : counts) result += " " + std::to_string(count);
  return result;
}

OpCase elementwise(const std::string& name, int64_t count) {
  OpCase c;
  c.name = name + " n=" + std::to_string(count);
  c.inputs = {{"x", count}};
  c.outputs = {{"out", count}};
  c.tolerance = 1e-6;
  return c;
}

}  // namespace

OpCase classifier(const ClassifierSizes& s) {
  OpCase c;
  c.name = "classifier R=" + std::to_string(s.rows) + " columns=" + std::to_string(s.columns) +
           " V=" + std::to_string(s.vocabulary) + " shards=" + std::to_string(s.shards);
  c.inputs = {{"logits", s.rows * s.columns, -6.0f, 6.0f}};
  c.ints["targets"] = random_targets(s);
  c.outputs = {{"losses", s.rows}};
  c.loss_outputs = {"losses"};
  c.loss_weight = kLossScale;
  c.gradients = {{"logits"}};
  c.forward_bytes = 4.0 * static_cast<double>(s.rows * s.columns);
  c.backward_bytes = 2.0 * c.forward_bytes;
  const auto run = [s](const OpTable& ops, Stream& stream, Tensors& t, float* logits,
                       bool gradient) {
    if (s.shards > 0) {
      ShardedClassifier sharded(ops, stream, s, t);
      sharded.run(gradient);
      if (gradient) sharded.join(logits);
      return;
    }
    ops.classifier(stream,
                   {.logits = logits,
                    .targets = t.ints.at("targets").data(),
                    .losses = t.at("losses"),
                    .shape = {.rows = s.rows, .columns = s.columns, .vocabulary = s.vocabulary},
                    .gradient = gradient,
                    .gradient_scale = static_cast<float>(kLossScale)});
  };
  c.forward = [run](const OpTable& ops, Stream& stream, Tensors& t) {
    run(ops, stream, t, t.at("logits"), false);
  };
  c.backward = [run](const OpTable& ops, Stream& stream, Tensors& t) {
    std::ranges::copy(t.floats.at("logits"), t.at("dlogits"));
    run(ops, stream, t, t.at("dlogits"), true);
  };
  c.reference = [s](Doubles& d, const Ints& ints) { classifier_reference(s, d, ints); };
  return c;
}

OpCase adamw(const std::vector<int64_t>& counts) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  OpCase c;
  c.name = "adamw" + joined(counts);
  c.inputs = {{"p", total}, {"g", total}, {"m", total}, {"v", total, 0.01f, 1.0f}};
  c.outputs = {{"new_p", total}, {"new_m", total}, {"new_v", total}};
  c.forward_bytes = 28.0 * static_cast<double>(total);
  const AdamW settings{.learning_rate = 0.01f,
                       .beta1 = 0.9f,
                       .beta2 = 0.95f,
                       .epsilon = 1e-8f,
                       .gradient_scale = 0.5f,
                       .step = 3};
  c.forward = [settings, counts](const OpTable& ops, Stream& stream, Tensors& t) {
    for (const char* name : {"p", "m", "v"}) {
      std::ranges::copy(t.floats.at(name), t.at(std::string("new_") + name));
    }
    t.adamw.clear();
    int64_t at = 0;
    for (const int64_t count : counts) {
      t.adamw.push_back({.parameter = t.at("new_p") + at,
                         .gradient = t.at("g") + at,
                         .m = t.at("new_m") + at,
                         .v = t.at("new_v") + at,
                         .copy = nullptr,
                         .count = count,
                         .weight_decay = 0.1f});
      at += count;
    }
    AdamW args = settings;
    args.tensors = t.adamw;
    ops.adamw(stream, args);
  };
  c.reference = [settings](Doubles& d, const Ints&) {
    const double b1 = settings.beta1, b2 = settings.beta2, lr = settings.learning_rate;
    for (size_t i = 0; i < d["p"].size(); ++i) {
      const double g = d["g"][i] * static_cast<double>(settings.gradient_scale);
      const double m = b1 * d["m"][i] + (1.0 - b1) * g, v = b2 * d["v"][i] + (1.0 - b2) * g * g;
      const double step =
          m / (1.0 - std::pow(b1, 3)) / (std::sqrt(v / (1.0 - std::pow(b2, 3))) + 1e-8);
      d["new_m"][i] = m;
      d["new_v"][i] = v;
      d["new_p"][i] = d["p"][i] - lr * (step + 0.1 * d["p"][i]);
    }
  };
  return c;
}

OpCase squared_norm(const std::vector<int64_t>& counts) {
  OpCase c;
  c.name = "squared_norm" + joined(counts);
  int64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    c.inputs.push_back({"x" + std::to_string(i), counts[i]});
    total += counts[i];
  }
  c.outputs = {{"sum", 1}};
  c.tolerance = 1e-7;
  c.workspace_bytes = kSquaredNormWorkspace;
  c.forward_bytes = 4.0 * static_cast<double>(total);
  c.forward = [counts](const OpTable& ops, Stream& stream, Tensors& t) {
    std::vector<FlatTensor> tensors;
    for (size_t i = 0; i < counts.size(); ++i) {
      tensors.push_back({.data = t.at("x" + std::to_string(i)), .count = counts[i]});
    }
    double sum = 0.0;
    ops.squared_norm(stream,
                     {.tensors = tensors, .sum = &sum, .workspace = t.workspace.workspace()});
    *t.at("sum") = static_cast<float>(sum);
  };
  c.reference = [count = counts.size()](Doubles& d, const Ints&) {
    double sum = 0.0;
    for (size_t i = 0; i < count; ++i) {
      for (const double x : d["x" + std::to_string(i)]) sum += x * x;
    }
    d["sum"][0] = sum;
  };
  return c;
}

OpCase scale(int64_t count) {
  OpCase c = elementwise("scale", count);
  c.forward = [count](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.scale(stream, {.x = t.at("x"), .out = t.at("out"), .count = count, .factor = 0.3f});
  };
  c.reference = [](Doubles& d, const Ints&) {
    std::ranges::transform(d["x"], d["out"].begin(), [](double x) { return x * 0.3; });
  };
  return c;
}

OpCase add(int64_t count) {
  OpCase c = elementwise("add", count);
  c.inputs.push_back({"y", count});
  c.forward_bytes = 12.0 * static_cast<double>(count);
  c.forward = [count](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.add(stream, {.a = t.at("x"), .b = t.at("y"), .out = t.at("out"), .count = count});
  };
  c.reference = [](Doubles& d, const Ints&) {
    std::ranges::transform(d["x"], d["y"], d["out"].begin(),
                           [](double a, double b) { return a + b; });
  };
  return c;
}

OpCase fill(int64_t count) {
  OpCase c = elementwise("fill", count);
  c.forward = [count](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.fill(stream, {.out = t.at("out"), .count = count, .value = -2.5f});
  };
  c.reference = [](Doubles& d, const Ints&) { std::ranges::fill(d["out"], -2.5); };
  return c;
}

OpCase cast_through_bf16(int64_t count) {
  OpCase c = elementwise("cast to bf16 and back", count);
  c.tolerance = 1.0 / 256.0;  // half of the last of 8 bits
  c.workspace_bytes = static_cast<size_t>(count) * sizeof(Bf16);
  c.forward = [count](const OpTable& ops, Stream& stream, Tensors& t) {
    const View half(t.workspace.data(), DType::kBf16);
    ops.cast(stream, {.x = t.at("x"), .out = half, .count = count});
    ops.cast(stream, {.x = half, .out = t.at("out"), .count = count});
  };
  c.reference = [](Doubles& d, const Ints&) { d["out"] = d["x"]; };
  return c;
}

}  // namespace lockstep::op_cases
