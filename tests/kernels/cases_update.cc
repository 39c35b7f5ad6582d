// The classifier, norms and elementwise operations.
#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/random.h"
#include "tests/kernels/op_cases.h"

namespace lockstep::kernels::op_cases {

namespace {

constexpr double kLossScale = 0.125;

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

// Every third row, from the second on, is ignored.
std::vector<int32_t> random_targets(const ClassifierSizes& s) {
  Random random(7);
  std::vector<int32_t> targets(index(s.rows));
  for (int64_t r = 0; r < s.rows; ++r) {
    const uint64_t target = random.below(static_cast<uint64_t>(s.vocabulary));
    targets[index(r)] = r % 3 == 1 ? -1 : static_cast<int32_t>(target);
  }
  return targets;
}

// Runs the three passes over shards of the columns, with the reductions that ranks would do.
class ShardedClassifier {
 public:
  ShardedClassifier(const OpTable& ops, Stream& stream, const ClassifierSizes& sizes, Tensors& t)
      : ops_(ops), stream_(stream), sizes_(sizes), tensors_(t) {
    for (int64_t shard = 0; shard < sizes.shards; ++shard) split(shard);
  }

  void run(bool gradient) {
    if (!tensors_.status().ok()) return;
    reduce(
        "maxima", -HUGE_VALF, [](float a, float b) { return std::max(a, b); },
        [&](const Shard& s) {
          ops_.classifier_max(stream_, {.logits = tensors_.at(s.name),
                                        .maxima = tensors_.at("part of maxima"),
                                        .shape = s.shape});
        });
    const auto plus = [](float a, float b) { return a + b; };
    std::vector<float> target_logits(index(sizes_.rows), 0.0f);
    reduce("sums", 0.0f, plus, [&](const Shard& s) {
      tensors_.put("target_logits", std::vector<float>(index(sizes_.rows)));
      ops_.classifier_sum(stream_, {.logits = tensors_.at(s.name),
                                    .targets = tensors_.ints_at("targets"),
                                    .maxima = tensors_.at("maxima"),
                                    .sums = tensors_.at("part of sums"),
                                    .target_logits = tensors_.at("target_logits"),
                                    .shape = s.shape});
      tensors_.keep(stream_.synchronize());
      std::ranges::transform(tensors_.get("target_logits"), target_logits, target_logits.begin(),
                             plus);
    });
    tensors_.put("target_logits", target_logits);
    for (const Shard& s : shards_) {
      if (!tensors_.status().ok()) return;
      ops_.classifier_finish(stream_, {.logits = tensors_.at(s.name),
                                       .targets = tensors_.ints_at("targets"),
                                       .sums = tensors_.at("sums"),
                                       .target_logits = tensors_.at("target_logits"),
                                       .losses = tensors_.at("losses"),
                                       .shape = s.shape,
                                       .gradient = gradient,
                                       .gradient_scale = static_cast<float>(kLossScale)});
    }
    tensors_.keep(stream_.synchronize());
  }

  void join(const std::string& to) {
    std::vector<float> joined(index(sizes_.rows * sizes_.columns));
    for (const Shard& s : shards_) {
      const std::vector<float>& part = tensors_.get(s.name);
      for (int64_t i = 0; i < sizes_.rows * s.shape.columns; ++i) {
        const int64_t row = i / s.shape.columns, column = i % s.shape.columns;
        joined[index(row * sizes_.columns + s.shape.column_begin + column)] = part[index(i)];
      }
    }
    tensors_.put(to, std::move(joined), tensors_.on().dtype == DType::kBf16);
  }

 private:
  struct Shard {
    ClassifierShape shape;
    std::string name;  // name of its logits
  };

  void split(int64_t shard) {
    const int64_t begin = sizes_.columns * shard / sizes_.shards;
    const int64_t end = sizes_.columns * (shard + 1) / sizes_.shards;
    Shard s{.shape = {.rows = sizes_.rows,
                      .columns = end - begin,
                      .vocabulary = sizes_.vocabulary,
                      .column_begin = begin},
            .name = "shard " + std::to_string(shard)};
    std::vector<float> part;
    const std::vector<float>& logits = tensors_.floats.at("logits");
    for (int64_t i = 0; i < sizes_.rows * (end - begin); ++i) {
      const int64_t row = i / (end - begin), column = begin + i % (end - begin);
      part.push_back(logits[index(row * sizes_.columns + column)]);
    }
    tensors_.put(s.name, std::move(part), tensors_.on().dtype == DType::kBf16);
    shards_.push_back(std::move(s));
  }

  // Combines into the tensor of that name what `pass` writes to "part of" it for each shard.
  template <class Combine, class Pass>
  void reduce(const std::string& name, float start, Combine combine, Pass pass) {
    std::vector<float> total(index(sizes_.rows), start);
    for (const Shard& s : shards_) {
      tensors_.put("part of " + name, std::vector<float>(index(sizes_.rows)));
      if (!tensors_.status().ok()) return;
      pass(s);
      tensors_.keep(stream_.synchronize());
      std::ranges::transform(tensors_.get("part of " + name), total, total.begin(), combine);
    }
    tensors_.put(name, std::move(total));
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
  if (counts.size() > 8) {
    return " " + std::to_string(counts.front()) + " x " + std::to_string(counts.size());
  }
  std::string result;
  for (const int64_t count : counts) result += " " + std::to_string(count);
  return result;
}

// The norm of tensors x0, x1, ... and its factor.
OpCase norm_of(const std::vector<int64_t>& counts, double clip_norm) {
  OpCase c;
  for (size_t i = 0; i < counts.size(); ++i)
    c.inputs.push_back({"x" + std::to_string(i), counts[i]});
  c.outputs = {{"scale", 1}, {"norm", 1}};
  c.tolerance = 1e-6;
  c.workspace_bytes = sizeof(SquareSum);
  c.forward = [counts, clip_norm](const OpTable& ops, Stream& stream, Tensors& t) {
    auto* sum = static_cast<SquareSum*>(t.workspace.data());
    ops.fill(stream, {.out = View(t.workspace.f32()), .count = 2 * kSquareWords});
    std::vector<FlatTensor> tensors;
    for (size_t i = 0; i < counts.size(); ++i) {
      tensors.push_back({.data = t.at("x" + std::to_string(i)), .count = counts[i]});
    }
    ops.squared_norm(stream, {.tensors = tensors, .sum = sum});
    ops.clip_scale(
        stream,
        {.squares = sum, .scale = t.at("scale"), .norm = t.at("norm"), .clip_norm = clip_norm});
  };
  c.reference = [count = counts.size(), clip_norm](Doubles& d, const Ints&) {
    double sum = 0.0;
    for (size_t i = 0; i < count; ++i) {
      for (const double x : d["x" + std::to_string(i)]) sum += x * x;
    }
    const double norm = std::sqrt(sum);
    d["norm"][0] = norm;
    d["scale"][0] = clip_norm > 0.0 && norm > clip_norm ? clip_norm / (norm + 1e-6) : 1.0;
  };
  return c;
}

OpCase elementwise(const std::string& name, int64_t count) {
  OpCase c;
  c.name = name + " n=" + std::to_string(count);
  c.inputs = {{"x", count}};
  c.outputs = {{"out", count}};
  c.activations = {"x", "y", "out"};
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
  c.activations = {"logits"};
  c.loss_outputs = {"losses"};
  c.loss_weight = kLossScale;
  c.gradients = {{"logits"}};
  const auto run = [s](const OpTable& ops, Stream& stream, Tensors& t, const std::string& logits,
                       bool gradient) {
    if (s.shards > 0) {
      ShardedClassifier sharded(ops, stream, s, t);
      sharded.run(gradient);
      if (gradient) sharded.join(logits);
      return;
    }
    ops.classifier(stream,
                   {.logits = t.at(logits),
                    .targets = t.ints_at("targets"),
                    .losses = t.at("losses"),
                    .shape = {.rows = s.rows, .columns = s.columns, .vocabulary = s.vocabulary},
                    .gradient = gradient,
                    .gradient_scale = static_cast<float>(kLossScale)});
  };
  c.forward = [run](const OpTable& ops, Stream& stream, Tensors& t) {
    run(ops, stream, t, "logits", false);
  };
  c.backward = [run](const OpTable& ops, Stream& stream, Tensors& t) {
    t.copy("logits", "dlogits");
    run(ops, stream, t, "dlogits", true);
  };
  c.reference = [s](Doubles& d, const Ints& ints) { classifier_reference(s, d, ints); };
  return c;
}

OpCase clip_scale(double clip_norm) {
  OpCase c = norm_of({100}, clip_norm);
  c.name = "clip_scale at " + std::to_string(clip_norm);
  return c;
}

OpCase loss_sum(int64_t count) {
  OpCase c;
  c.name = "loss_sum n=" + std::to_string(count);
  c.inputs = {{"losses", count, 0.0f, 12.0f}};
  c.outputs = {{"sum", 1}};
  c.double_outputs = {"sum"};
  c.tolerance = 1e-7;
  // Runs twice, because the op adds.
  c.forward = [count](const OpTable& ops, Stream& stream, Tensors& t) {
    t.put_doubles("sum", {0.5});
    for (int i = 0; i < 2; ++i) {
      ops.loss_sum(stream, {.losses = t.at("losses"), .count = count, .sum = t.double_at("sum")});
    }
  };
  c.reference = [](Doubles& d, const Ints&) {
    double sum = 0.5;
    for (const double loss : d["losses"]) sum += 2.0 * loss;
    d["sum"][0] = sum;
  };
  return c;
}

OpCase squared_norm(const std::vector<int64_t>& counts) {
  OpCase c = norm_of(counts, 1.0);
  c.name = "squared_norm" + joined(counts);
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

OpCase inverse_norm(int64_t count) {
  OpCase c = elementwise("inverse_norm", count);
  c.activations = {};  // the norm is that of fp32
  c.outputs.push_back({"factor", 1});
  c.workspace_bytes = sizeof(SquareSum);
  c.forward = [count](const OpTable& ops, Stream& stream, Tensors& t) {
    auto* sum = static_cast<SquareSum*>(t.workspace.data());
    ops.fill(stream, {.out = View(t.workspace.f32()), .count = 2 * kSquareWords});
    const FlatTensor tensor{.data = t.at("x"), .count = count};
    ops.squared_norm(stream, {.tensors = {&tensor, 1}, .sum = sum});
    ops.inverse_norm(stream, {.squares = sum, .factor = t.at("factor"), .epsilon = 0.01});
    ops.scale(stream, {.x = t.at("x"),
                       .out = t.at("out"),
                       .count = count,
                       .factor = 3.0f,
                       .device_factor = t.at("factor")});
  };
  c.reference = [](Doubles& d, const Ints&) {
    double sum = 0.0;
    for (const double x : d["x"]) sum += x * x;
    const double factor = 1 / (std::sqrt(sum) + 0.01);
    d["factor"][0] = factor;
    std::ranges::transform(d["x"], d["out"].begin(), [=](double x) { return x * 3 * factor; });
  };
  return c;
}

// From a matrix that is two columns wider to one that is three wider.
OpCase copy_rows(int64_t rows, int64_t width) {
  OpCase c;
  c.name = "copy_rows " + std::to_string(rows) + " x " + std::to_string(width);
  const int64_t from_stride = width + 2, to_stride = width + 3;
  c.inputs = {{"x", rows * from_stride}};
  c.outputs = {{"out", rows * to_stride}};
  c.tolerance = 1e-12;
  c.forward = [=](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.copy_rows(stream, {.from = static_cast<float*>(t.at("x")) + 1,
                           .to = static_cast<float*>(t.at("out")) + 2,
                           .rows = rows,
                           .width = width,
                           .from_stride = from_stride,
                           .to_stride = to_stride});
  };
  c.reference = [=](Doubles& d, const Ints&) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width; ++i) {
        d["out"][static_cast<size_t>(r * to_stride + 2 + i)] =
            d["x"][static_cast<size_t>(r * from_stride + 1 + i)];
      }
    }
  };
  return c;
}

OpCase dropout(int64_t count, double probability) {
  constexpr int64_t kFirst = 1000;
  constexpr uint64_t kKey = dropout_key(7, 3);
  OpCase c = elementwise("dropout", count);
  c.name += " p=" + std::to_string(probability);
  c.forward = [=](const OpTable& ops, Stream& stream, Tensors& t) {
    ops.dropout(stream, {.x = t.at("x"),
                         .out = t.at("out"),
                         .count = count,
                         .first = kFirst,
                         .probability = probability,
                         .key = kKey});
  };
  c.reference = [=](Doubles& d, const Ints&) {
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      const bool kept = is_kept(kKey, kFirst + i, dropout_threshold(probability));
      d["out"][at] = kept ? d["x"][at] / (1 - probability) : 0;
    }
  };
  return c;
}

OpCase add(int64_t count) {
  OpCase c = elementwise("add", count);
  c.inputs.push_back({"y", count});
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
  c.activations = {};
  c.tolerance = 1.0 / 256.0;  // half a unit in the last of 8 bits
  c.workspace_bytes = static_cast<size_t>(count) * sizeof(Bf16);
  c.forward = [count](const OpTable& ops, Stream& stream, Tensors& t) {
    const View half(t.workspace.data(), DType::kBf16);
    ops.cast(stream, {.x = t.at("x"), .out = half, .count = count});
    ops.cast(stream, {.x = half, .out = t.at("out"), .count = count});
  };
  c.reference = [](Doubles& d, const Ints&) { d["out"] = d["x"]; };
  return c;
}

}  // namespace lockstep::kernels::op_cases
