// The operations that update parameters.
#include <cmath>
#include <functional>
#include <span>

#include "tests/kernels/op_cases.h"

namespace lockstep::kernels::op_cases {

namespace {

constexpr float kRate = 0.01f;
constexpr float kScale = 0.5f;
constexpr float kDecay = 0.1f;
constexpr int64_t kStep = 3;
constexpr float kAverageRate = 0.25f;
constexpr float kPlainRate = 0.125f;

// An optimizer's op, and what it computes.
struct Rule {
  std::string name;
  std::vector<std::string> states;
  std::function<void(const OpTable&, Stream&, std::span<const UpdatedTensor>, const float*)> run;
  // Computes element i from its scaled gradient: "new_p" and the new states.
  std::function<void(Doubles&, size_t, double)> reference;
};

std::vector<UpdatedTensor> tensors_of(const UpdateSizes& s, const Rule& rule, Tensors& t) {
  const View copies = s.copies ? View(t.at("copy")) : View();
  std::vector<UpdatedTensor> tensors;
  int64_t at = 0;
  for (const int64_t count : s.counts) {
    UpdatedTensor tensor{.parameter = t.at("new_p") + at,
                         .gradient = t.at("g") + at,
                         .copy = copies,
                         .count = count,
                         .weight_decay = kDecay,
                         .index = {.first = at},
                         .plain_rate = s.plain ? kPlainRate : 0.0f};
    for (size_t k = 0; k < rule.states.size(); ++k) {
      tensor.states[k] = t.at("new_" + rule.states[k]) + at;
    }
    void*& copy = tensor.copy.data;
    if (copy) {
      copy = static_cast<char*>(copy) + static_cast<size_t>(at) * dtype_bytes(copies.dtype);
    }
    tensors.push_back(tensor);
    at += count;
  }
  return tensors;
}

// Adds the moving average to the op's arguments, which come after the states of its formula.
template <class Args>
void add_average(const UpdateSizes& s, int own_states, Args& args) {
  if (!s.averages) return;
  args.average_state = own_states;
  args.average_rate = kAverageRate;
}

OpCase update(const UpdateSizes& s, Rule rule) {
  if (s.averages) rule.states.emplace_back("average");
  int64_t total = 0;
  OpCase c;
  c.name = rule.name;
  for (const int64_t count : s.counts) total += count;
  c.name += " n=" + std::to_string(total) + " of " + std::to_string(s.counts.size());
  c.name += std::string(s.device_scale ? " device scale" : "") + (s.copies ? " copies" : "") +
            (s.rounding_seed ? " rounded stochastically" : "") + (s.averages ? " averages" : "") +
            (s.plain ? " plain" : "");
  c.inputs = {{"p", total}, {"g", total}};
  c.outputs = {{"new_p", total}};
  for (const std::string& state : rule.states) {
    c.inputs.push_back({state, total, 0.01f, 1.0f});
    c.outputs.push_back({"new_" + state, total});
  }
  const float device_scale = s.device_scale ? 0.25f : 1.0f;
  if (s.device_scale) c.inputs.push_back({"scale", 1, device_scale, device_scale});
  if (s.copies) c.outputs.push_back({"copy", total});
  c.activations = {"copy"};
  // For the copy: stochastic rounding may pick the next value instead of the nearest one.
  c.bf16_tolerance = s.copies ? (s.rounding_seed ? 1.0 / 128.0 : 1.0 / 256.0) : 0.0;
  c.forward = [s, rule](const OpTable& ops, Stream& stream, Tensors& t) {
    t.copy("p", "new_p");
    for (const std::string& state : rule.states) t.copy(state, "new_" + state);
    const std::vector<UpdatedTensor> tensors = tensors_of(s, rule, t);
    rule.run(ops, stream, tensors, s.device_scale ? t.at("scale") : nullptr);
  };
  c.reference = [s, rule, device_scale](Doubles& d, const Ints&) {
    for (size_t i = 0; i < d["p"].size(); ++i) {
      if (s.plain) {
        d["new_p"][i] = d["p"][i] - kPlainRate * d["g"][i];
        for (const std::string& state : rule.states) d["new_" + state][i] = d[state][i];
      } else {
        rule.reference(d, i, d["g"][i] * static_cast<double>(kScale * device_scale));
      }
      if (!d.contains("average")) continue;
      const double average = d["average"][i];
      d["new_average"][i] = average + kAverageRate * (d["new_p"][i] - average);
    }
    if (d.contains("copy")) d["copy"] = d["new_p"];
  };
  return c;
}

}  // namespace

OpCase adamw(const UpdateSizes& s) {
  const AdamW settings{.learning_rate = kRate,
                       .beta1 = 0.9f,
                       .beta2 = 0.95f,
                       .epsilon = 1e-8f,
                       .gradient_scale = kScale,
                       .step = kStep,
                       .rounding_seed = s.rounding_seed};
  Rule rule{.name = "adamw", .states = {"m", "v"}, .run = {}, .reference = {}};
  rule.run = [s, settings](const OpTable& ops, Stream& stream,
                           std::span<const UpdatedTensor> tensors, const float* device_scale) {
    AdamW args = settings;
    args.tensors = tensors;
    args.device_scale = device_scale;
    add_average(s, 2, args);
    ops.adamw(stream, args);
  };
  rule.reference = [settings](Doubles& d, size_t i, double g) {
    const double b1 = settings.beta1, b2 = settings.beta2, lr = settings.learning_rate;
    const double m = b1 * d["m"][i] + (1.0 - b1) * g, v = b2 * d["v"][i] + (1.0 - b2) * g * g;
    const double step =
        m / (1.0 - std::pow(b1, 3)) / (std::sqrt(v / (1.0 - std::pow(b2, 3))) + 1e-8);
    d["new_m"][i] = m;
    d["new_v"][i] = v;
    d["new_p"][i] = d["p"][i] - lr * (step + 0.1 * d["p"][i]);
  };
  return update(s, rule);
}

OpCase sgd(const UpdateSizes& s, double momentum, bool nesterov) {
  const Sgd settings{.learning_rate = kRate,
                     .momentum = static_cast<float>(momentum),
                     .nesterov = nesterov,
                     .gradient_scale = kScale,
                     .step = kStep,
                     .rounding_seed = s.rounding_seed};
  Rule rule{.name = "sgd", .states = {}, .run = {}, .reference = {}};
  rule.name += momentum > 0 ? (nesterov ? " nesterov" : " momentum") : "";
  if (momentum > 0) rule.states = {"b"};
  rule.run = [s, settings](const OpTable& ops, Stream& stream,
                           std::span<const UpdatedTensor> tensors, const float* device_scale) {
    Sgd args = settings;
    args.tensors = tensors;
    args.device_scale = device_scale;
    add_average(s, args.momentum > 0 ? 1 : 0, args);
    ops.sgd(stream, args);
  };
  rule.reference = [momentum, nesterov](Doubles& d, size_t i, double g) {
    g += 0.1 * d["p"][i];
    double direction = g;
    if (momentum > 0) {
      const double b = momentum * d["b"][i] + g;
      d["new_b"][i] = b;
      direction = nesterov ? g + momentum * b : b;
    }
    d["new_p"][i] = d["p"][i] - 0.01 * direction;
  };
  return update(s, rule);
}

OpCase adagrad(const UpdateSizes& s) {
  const Adagrad settings{.learning_rate = kRate,
                         .gradient_scale = kScale,
                         .step = kStep,
                         .rounding_seed = s.rounding_seed};
  Rule rule{.name = "adagrad", .states = {"s"}, .run = {}, .reference = {}};
  rule.run = [s, settings](const OpTable& ops, Stream& stream,
                           std::span<const UpdatedTensor> tensors, const float* device_scale) {
    Adagrad args = settings;
    args.tensors = tensors;
    args.device_scale = device_scale;
    add_average(s, 1, args);
    ops.adagrad(stream, args);
  };
  rule.reference = [](Doubles& d, size_t i, double g) {
    g += 0.1 * d["p"][i];
    const double sum = d["s"][i] + g * g;
    d["new_s"][i] = sum;
    d["new_p"][i] = d["p"][i] - 0.01 * g / (std::sqrt(sum) + 1e-10);
  };
  return update(s, rule);
}

OpCase ftrl(const UpdateSizes& s) {
  const Ftrl settings{.learning_rate = 0.1f,
                      .beta = 0.5f,
                      .l1 = 0.3f,
                      .gradient_scale = kScale,
                      .step = kStep,
                      .rounding_seed = s.rounding_seed};
  Rule rule{.name = "ftrl", .states = {"z", "n"}, .run = {}, .reference = {}};
  rule.run = [s, settings](const OpTable& ops, Stream& stream,
                           std::span<const UpdatedTensor> tensors, const float* device_scale) {
    Ftrl args = settings;
    args.tensors = tensors;
    args.device_scale = device_scale;
    add_average(s, 2, args);
    ops.ftrl(stream, args);
  };
  rule.reference = [settings](Doubles& d, size_t i, double g) {
    const double rate = settings.learning_rate, l1 = settings.l1, n = d["n"][i];
    const double sigma = (std::sqrt(n + g * g) - std::sqrt(n)) / rate;
    const double z = d["z"][i] + g - sigma * d["p"][i];
    d["new_z"][i] = z;
    d["new_n"][i] = n + g * g;
    const double strength = (0.5 + std::sqrt(n + g * g)) / rate + static_cast<double>(kDecay);
    const double pulled = z - std::copysign(l1, z);
    d["new_p"][i] = std::abs(z) <= l1 ? 0.0 : -pulled / strength;
  };
  return update(s, rule);
}

}  // namespace lockstep::kernels::op_cases
