#include "kernels/ops/own_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/device/parallel.h"
#include "kernels/ops/isa_table.h"

namespace lockstep::kernels {

namespace {

// A product, and what it should be.
struct KnownProduct {
  int64_t m, n, k;
  std::vector<float> a, b;  // row-major, not transposed
  std::vector<double> c;
};

KnownProduct known_product(int64_t m, int64_t n, int64_t k) {
  const auto count = [](int64_t rows, int64_t columns) {
    return static_cast<size_t>(rows * columns);
  };
  KnownProduct known{.m = m, .n = n, .k = k, .a = {}, .b = {}, .c = {}};
  for (size_t i = 0; i < count(m, k); ++i) known.a.push_back(std::sin(static_cast<float>(i)));
  for (size_t i = 0; i < count(k, n); ++i) known.b.push_back(std::cos(static_cast<float>(i)));
  known.c.resize(count(m, n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      const double element = known.a[static_cast<size_t>(i * k + l)];
      for (int64_t j = 0; j < n; ++j) {
        known.c[static_cast<size_t>(i * n + j)] +=
            element * static_cast<double>(known.b[static_cast<size_t>(l * n + j)]);
      }
    }
  }
  return known;
}

std::vector<float> transposed(const std::vector<float>& matrix, int64_t rows, int64_t columns) {
  std::vector<float> result;
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) {
      result.push_back(matrix[static_cast<size_t>(i * columns + j)]);
    }
  }
  return result;
}

// Forms of Gemm: whether a or b is transposed, and whether c starts from 1 or the bias is 0.5.
constexpr int kForms = 16;

std::vector<float> product_in_form(const IsaTable& isa, const KnownProduct& known, int form) {
  const bool transpose_a = (form & 1) != 0, transpose_b = (form & 2) != 0;
  const std::vector<float> a = transpose_a ? transposed(known.a, known.m, known.k) : known.a;
  const std::vector<float> b = transpose_b ? transposed(known.b, known.k, known.n) : known.b;
  const std::vector<float> bias(static_cast<size_t>(known.n), 0.5f);
  std::vector<float> c(known.c.size(), 1.0f);
  const bool accumulate = (form & 4) != 0;
  isa.own_gemm({.a = a.data(),
                .b = b.data(),
                .bias = (form & 8) != 0 && !accumulate ? bias.data() : nullptr,
                .c = c.data(),
                .m = known.m,
                .n = known.n,
                .k = known.k,
                .transpose_a = transpose_a,
                .transpose_b = transpose_b,
                .accumulate = accumulate});
  return c;
}

double start_of(int form) {
  if ((form & 4) != 0) return 1.0;
  return (form & 8) != 0 ? 0.5 : 0.0;
}

// With sizes below, at and above those of tiles, blocks, panels and depths on each instruction set.
TEST(OwnGemm, IsTheProductInEveryFormAndSize) {
  constexpr int64_t kSizes[][3] = {{1, 1, 1},    {37, 53, 300}, {6, 16, 384},  {12, 32, 192},
                                   {5, 700, 17}, {403, 9, 33},  {197, 20, 450}};
  for (const auto& [m, n, k] : kSizes) {
    const KnownProduct known = known_product(m, n, k);
    for (const IsaTable* isa : supported_isas()) {
      for (int form = 0; form < kForms; ++form) {
        const std::vector<float> c = product_in_form(*isa, known, form);
        for (size_t i = 0; i < c.size(); ++i) {
          ASSERT_NEAR(c[i], known.c[i] + start_of(form), 1e-4)
              << isa->name << " form " << form << ", " << m << " x " << n << " x " << k;
        }
      }
    }
  }
}

TEST(OwnGemm, HasTheSameBitsWithAnyNumberOfThreads) {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{300, 70}, {70, 700}}) {
    const KnownProduct known = known_product(m, n, 400);
    for (const IsaTable* isa : supported_isas()) {
      for (int form = 0; form < kForms; ++form) {
        const std::vector<float> alone = product_in_form(*isa, known, form);
        set_threads(3);
        const std::vector<float> shared = product_in_form(*isa, known, form);
        set_threads(1);
        EXPECT_EQ(alone, shared) << isa->name << " form " << form;
      }
    }
  }
}

TEST(OwnGemm, IsTheBiasWhereNothingIsSummed) {
  const KnownProduct known = known_product(3, 5, 0);
  for (const IsaTable* isa : supported_isas()) {
    EXPECT_EQ(product_in_form(*isa, known, 0), std::vector<float>(15, 0.0f));
    EXPECT_EQ(product_in_form(*isa, known, 4), std::vector<float>(15, 1.0f));
    EXPECT_EQ(product_in_form(*isa, known, 8), std::vector<float>(15, 0.5f));
  }
}

}  // namespace

}  // namespace lockstep::kernels
