#include "tests/kernels/op_checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lockstep::kernels::op_cases {

namespace {

constexpr uint64_t kSeed = 20250;
constexpr size_t kGradientsPerTensor = 24;  // finite differences are expensive

Doubles to_doubles(const Tensors& tensors) {
  Doubles doubles;
  for (const auto& [name, values] : tensors.floats) {
    doubles[name].assign(values.begin(), values.end());
  }
  return doubles;
}

double largest(const std::vector<double>& values) {
  double result = 0.0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

struct Compared {
  std::string name;  // the element's name
  double got = 0.0;
  double want = 0.0;
  double limit = 0.0;
};

// kInternal if the difference exceeds the limit, or one of them is NaN.
Status near(const OpCase& c, const Compared& compared) {
  if (std::abs(compared.got - compared.want) <= compared.limit) return {};
  return internal(c.name + ": " + compared.name + " is " + std::to_string(compared.got) + ", not " +
                  std::to_string(compared.want) + " within " + std::to_string(compared.limit));
}

std::string element(const std::string& tensor, size_t i) {
  return tensor + "[" + std::to_string(i) + "]";
}

double tolerance_of(const OpCase& c, const RunOn& on) {
  return on.dtype == DType::kBf16 ? std::max(c.tolerance, c.bf16_tolerance) : c.tolerance;
}

double gradient_tolerance_of(const OpCase& c, const RunOn& on) {
  return on.dtype == DType::kBf16 ? std::max(c.gradient_tolerance, c.bf16_gradient_tolerance)
                                  : c.gradient_tolerance;
}

// Returns the loss for finite differences: the sum of the outputs times their given gradients.
double loss_of(const OpCase& c, Doubles& doubles, const Ints& ints) {
  c.reference(doubles, ints);
  double loss = 0.0;
  for (const std::string& output : c.loss_outputs) {
    const std::vector<double>& weights = doubles["d" + output];
    for (size_t i = 0; i < weights.size(); ++i) loss += doubles[output][i] * weights[i];
  }
  return loss;
}

size_t gradient_stride(size_t count) {
  return std::max<size_t>(1, count / kGradientsPerTensor);
}

double finite_difference(const OpCase& c, Doubles& doubles, const Ints& ints, double& element) {
  constexpr double kStep = 1e-4;
  const double kept = element;
  element = kept + kStep;
  const double above = loss_of(c, doubles, ints);
  element = kept - kStep;
  const double below = loss_of(c, doubles, ints);
  element = kept;
  return (above - below) / (2.0 * kStep);
}

// Returns finite differences by gradient, for about kGradientsPerTensor elements of each tensor.
// Computed once per case and dtype, because they depend only on the reference.
const Doubles& differences_of(const OpCase& c, const Tensors& tensors) {
  static std::map<std::pair<std::string, DType>, Doubles> made;
  const auto [at, fresh] = made.try_emplace({c.name, tensors.on().dtype});
  if (!fresh) return at->second;
  Doubles doubles = to_doubles(tensors);
  for (const GradientSpec& gradient : c.gradients) {
    std::vector<double>& input = doubles[gradient.input];
    for (size_t i = 0; i < input.size(); i += gradient_stride(input.size())) {
      at->second[gradient.input].push_back(finite_difference(c, doubles, tensors.ints, input[i]));
    }
  }
  return at->second;
}

}  // namespace

Result<Tensors> run_case(const OpCase& c, const OpTable& ops, RunOn on) {
  TRY_ASSIGN(Stream stream, Stream::create(on.device));
  Tensors tensors = make_tensors(c, kSeed, on);
  TRY(tensors.status());
  c.forward(ops, stream, tensors);
  TRY(stream.synchronize());
  TRY(tensors.status());
  if (c.backward) {
    add_gradients(c, kSeed, tensors);
    TRY(tensors.status());
    c.backward(ops, stream, tensors);
    TRY(stream.synchronize());
  }
  tensors.get_all();
  TRY(tensors.status());
  return tensors;
}

Status check_forward(const OpCase& c, const Tensors& tensors) {
  const Doubles doubles = to_doubles(tensors);
  Doubles expected = doubles;
  for (const TensorSpec& spec : c.outputs) {
    std::ranges::fill(expected[spec.name], std::nan(""));
  }
  c.reference(expected, tensors.ints);
  for (const TensorSpec& spec : c.outputs) {
    const std::vector<double>& want = expected[spec.name];
    if (std::ranges::any_of(want, [](double x) { return std::isnan(x); })) continue;  // internal
    const double limit = tolerance_of(c, tensors.on()) * std::max(0.1, largest(want));
    for (size_t i = 0; i < want.size(); ++i) {
      TRY(near(c, {element(spec.name, i), doubles.at(spec.name)[i], want[i], limit}));
    }
  }
  return {};
}

Status check_gradients(const OpCase& c, const Tensors& tensors) {
  const Doubles doubles = to_doubles(tensors);
  for (const GradientSpec& gradient : c.gradients) {
    const std::vector<double>& got = doubles.at("d" + gradient.input);
    const std::vector<double>& want = differences_of(c, tensors).at(gradient.input);
    const double before = gradient.accumulated ? 0.5 : 0.0;
    const double limit = gradient_tolerance_of(c, tensors.on()) * std::max(1e-2, largest(got));
    for (size_t i = 0; i < want.size(); ++i) {
      const size_t at = i * gradient_stride(got.size());
      TRY(near(c, {element("d" + gradient.input, at), got[at], want[i] + before, limit}));
    }
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isfinite(got[i])) continue;
      return internal(c.name + ": " + element("d" + gradient.input, i) + " is not finite");
    }
  }
  return {};
}

Status check_same_bits(const OpCase& c, const Tensors& a, const Tensors& b) {
  for (const auto& [name, values] : a.floats) {
    const std::vector<float>& others = b.floats.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::memcmp(&values[i], &others[i], sizeof(float)) == 0) continue;
      return internal(c.name + ": " + element(name, i) + " is " + std::to_string(values[i]) +
                      " and then " + std::to_string(others[i]));
    }
  }
  return {};
}

Status check_close(const OpCase& c, const Tensors& a, const Tensors& b) {
  const Doubles left = to_doubles(a), right = to_doubles(b);
  for (const auto& [name, values] : left) {
    const double limit = gradient_tolerance_of(c, a.on()) * std::max(1e-2, largest(values));
    for (size_t i = 0; i < values.size(); ++i) {
      TRY(near(c, {element(name, i), values[i], right.at(name)[i], limit}));
    }
  }
  return {};
}

}  // namespace lockstep::kernels::op_cases
