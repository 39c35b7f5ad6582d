#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "kernels/device/parallel.h"
#include "kernels/ops/isa_table.h"
#include "tests/kernels/op_cases.h"

namespace lockstep::op_cases {

namespace {

constexpr uint64_t kSeed = 20250;
constexpr size_t kGradientsPerTensor = 24;  // finite differences are dear: so many elements each

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

// Sets the number of threads for a scope.
class WithThreads {
 public:
  explicit WithThreads(int count) { set_threads(count); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;
  ~WithThreads() { set_threads(1); }
};

Tensors run(const OpCase& c, const OpTable& ops) {
  Tensors tensors = make_tensors(c, kSeed);
  Stream stream;
  c.forward(ops, stream, tensors);
  if (c.backward) {
    add_gradients(c, kSeed, tensors);
    c.backward(ops, stream, tensors);
  }
  return tensors;
}

void expect_forward(const OpCase& c, const Tensors& tensors) {
  Doubles doubles = to_doubles(tensors);
  Doubles expected = doubles;
  for (const TensorSpec& spec : c.outputs) {
    std::ranges::fill(expected[spec.name], std::nan(""));
  }
  c.reference(expected, tensors.ints);
  for (const TensorSpec& spec : c.outputs) {
    const std::vector<double>& want = expected[spec.name];
    if (std::ranges::any_of(want, [](double x) { return std::isnan(x); })) continue;  // internal
    const double limit = c.tolerance * std::max(0.1, largest(want));
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(doubles[spec.name][i], want[i], limit)
          << c.name << ": " << spec.name << "[" << i << "]";
    }
  }
}

// The loss of the finite differences: the sum of the outputs times their given gradients.
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

// Finite differences of every kGradientsPerTensor-th element, by gradient; made once a case, as
// they depend on the reference alone.
const Doubles& differences_of(const OpCase& c, const Tensors& tensors) {
  static std::map<std::string, Doubles> made;
  const auto [at, fresh] = made.try_emplace(c.name);
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

void expect_gradients(const OpCase& c, const Tensors& tensors) {
  const Doubles doubles = to_doubles(tensors);
  for (const GradientSpec& gradient : c.gradients) {
    const std::vector<double>& got = doubles.at("d" + gradient.input);
    const std::vector<double>& want = differences_of(c, tensors).at(gradient.input);
    const double before = gradient.accumulated ? 0.5 : 0.0;
    const double limit = c.gradient_tolerance * std::max(1e-2, largest(got));
    for (size_t i = 0; i < want.size(); ++i) {
      const size_t element = i * gradient_stride(got.size());
      ASSERT_NEAR(got[element], want[i] + before, limit)
          << c.name << ": d" << gradient.input << "[" << element << "]";
    }
    for (const double value : got) ASSERT_TRUE(std::isfinite(value)) << c.name;
  }
}

void expect_same_bits(const OpCase& c, const Tensors& a, const Tensors& b) {
  for (const auto& [name, values] : a.floats) {
    const std::vector<float>& others = b.floats.at(name);
    ASSERT_EQ(std::memcmp(values.data(), others.data(), values.size() * sizeof(float)), 0)
        << c.name << ": " << name;
  }
}

void expect_close(const OpCase& c, const Tensors& a, const Tensors& b) {
  const Doubles left = to_doubles(a), right = to_doubles(b);
  for (const auto& [name, values] : left) {
    const double limit = c.gradient_tolerance * std::max(1e-2, largest(values));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], right.at(name)[i], limit) << c.name << ": " << name << "[" << i << "]";
    }
  }
}

// Each instruction set that this machine has: the operations must be right on all of them.
class Ops : public testing::TestWithParam<const IsaTable*> {};

TEST_P(Ops, AgreeWithDoublePrecision) {
  for (const OpCase& c : test_cases()) expect_forward(c, run(c, GetParam()->ops));
}

TEST_P(Ops, HaveTheGradientsOfFiniteDifferences) {
  for (const OpCase& c : test_cases()) expect_gradients(c, run(c, GetParam()->ops));
}

TEST_P(Ops, GiveTheSameBitsTwice) {
  const WithThreads threads(2);
  for (const OpCase& c : test_cases()) {
    expect_same_bits(c, run(c, GetParam()->ops), run(c, GetParam()->ops));
  }
}

TEST_P(Ops, GiveTheSameWithOneAndTwoThreads) {
  for (const OpCase& c : test_cases()) {
    const Tensors one = run(c, GetParam()->ops);
    const WithThreads threads(2);
    const Tensors two = run(c, GetParam()->ops);
    if (c.any_threads) {
      expect_same_bits(c, one, two);
    } else {
      expect_close(c, one, two);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Ops,
                         testing::ValuesIn(supported_isas().begin(), supported_isas().end()),
                         [](const auto& info) {
                           std::string name = info.param->name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Every member of the table is exercised by the list (sample has its own test).
TEST(OpCases, NameEveryOperation) {
  std::set<std::string> names;
  for (const OpCase& c : test_cases()) names.insert(c.name.substr(0, c.name.find(' ')));
  EXPECT_EQ(names, (std::set<std::string>{"adamw", "add", "attention", "cast", "classifier",
                                          "embedding", "fill", "gelu", "layernorm", "matmul",
                                          "rmsnorm", "rotary", "scale", "squared_norm", "swiglu"}));
}

}  // namespace

}  // namespace lockstep::op_cases
