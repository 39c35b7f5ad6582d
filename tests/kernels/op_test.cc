#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/device/parallel.h"
#include "kernels/ops/isa_table.h"
#include "tests/kernels/op_checks.h"
#include "tests/kernels/op_names.h"

namespace lockstep::kernels::op_cases {

namespace {

// Sets the number of threads for one scope.
class WithThreads {
 public:
  explicit WithThreads(int count) { set_threads(count); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;
  ~WithThreads() { set_threads(1); }
};

Tensors run(const OpCase& c, const OpTable& ops) {
  Result<Tensors> tensors = run_case(c, ops);
  CHECK(tensors.ok());
  return std::move(tensors).value();
}

void expect_ok(const Status& status) {
  ASSERT_TRUE(status.ok()) << status.error().message;
}

// Runs for each instruction set that this machine supports.
class Ops : public testing::TestWithParam<const IsaTable*> {};

TEST_P(Ops, AgreeWithDoublePrecision) {
  for (const OpCase& c : test_cases()) expect_ok(check_forward(c, run(c, GetParam()->ops)));
}

TEST_P(Ops, HaveTheGradientsOfFiniteDifferences) {
  for (const OpCase& c : test_cases()) expect_ok(check_gradients(c, run(c, GetParam()->ops)));
}

TEST_P(Ops, GiveTheSameBitsTwice) {
  const WithThreads threads(2);
  for (const OpCase& c : test_cases()) {
    expect_ok(check_same_bits(c, run(c, GetParam()->ops), run(c, GetParam()->ops)));
  }
}

TEST_P(Ops, GiveTheSameWithOneAndTwoThreads) {
  for (const OpCase& c : test_cases()) {
    const Tensors one = run(c, GetParam()->ops);
    const WithThreads threads(2);
    const Tensors two = run(c, GetParam()->ops);
    if (c.any_threads) {
      expect_ok(check_same_bits(c, one, two));
    } else {
      expect_ok(check_close(c, one, two));
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

// Returns whether the case's name, which ends at the first space, names the operation: "gelu" names
// gelu_forward and gelu_backward. A backward operation needs a case with a backward function.
bool is_of(const OpCase& c, const std::string& op) {
  const std::string name = c.name.substr(0, c.name.find(' '));
  if (op.ends_with("_backward") && !c.backward) return false;
  return op == name || op.starts_with(name + "_");
}

TEST(OpCases, CoverEveryOperation) {
  const std::vector<OpCase> cases = test_cases();
  for (const std::string& op : op_names()) {
    if (op == "sample") continue;  // values_test has its tests
    EXPECT_TRUE(std::ranges::any_of(cases, [&](const OpCase& c) { return is_of(c, op); }))
        << "test_cases() in tests/kernels/op_cases.cc has no case for " << op
        << " of kernels/ops/op_table.h";
  }
}

}  // namespace

}  // namespace lockstep::kernels::op_cases
