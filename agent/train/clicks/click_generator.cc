#include "agent/train/clicks/click_generator.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "agent/train/checkpoint/file_io.h"
#include "agent/train/clicks/click_rows.h"
#include "common/base/random.h"
#include "kernels/ops/rounding.h"

namespace lockstep::train {
namespace {

constexpr double kExponent = 1.1;
constexpr double kBias = -1.2;
constexpr double kDeviation = 0.5;
constexpr double kLearnable = 1000;  // categories of a column whose weights are not made smaller
constexpr int64_t kSmallest = 10;
constexpr int64_t kNumbers = 3;  // values of a column of numbers: 0, 1, 2
constexpr size_t kBufferBytes = 1u << 20;

// Returns a number in [0, size) by the inverse of the cumulative distribution of the continuous
// power law.
int64_t zipf(int64_t size, double uniform) {
  const double power = 1 - kExponent;
  const double end = std::pow(static_cast<double>(size) + 1, power);
  const double at = std::pow(1 + uniform * (end - 1), 1 / power);
  return std::clamp<int64_t>(static_cast<int64_t>(at) - 1, 0, size - 1);
}

class Generator {
 public:
  explicit Generator(const ClickGeneratorOptions& options)
      : seed_(options.seed), random_(options.seed, 1) {
    for (int column = 0; column < kCriteoCategories; ++column) {
      sizes_[static_cast<size_t>(column)] =
          std::max(options.keys >> std::min(column + 1, 62), kSmallest);
    }
  }

  // Adds a line, and returns -log of the probability of its label.
  double add_row(std::string& out, bool& is_click) {
    std::string features;
    double logit = kBias;
    for (int column = 0; column < kCriteoNumbers; ++column) {
      const auto value = static_cast<int64_t>(random_.below(kNumbers));
      features += '\t' + std::to_string(value);
      logit += weight(column, value, kNumbers);
    }
    for (int column = 0; column < kCriteoCategories; ++column) {
      const int64_t size = sizes_[static_cast<size_t>(column)];
      const int64_t value = zipf(size, random_.uniform());
      char text[16];
      std::snprintf(text, sizeof text, "\t%08x", static_cast<unsigned>(value));
      features += text;
      logit += weight(kCriteoNumbers + column, value, size);
    }
    const double probability = 1 / (1 + std::exp(-logit));
    is_click = random_.uniform() < probability;
    out += is_click ? '1' : '0';
    out += features + '\n';
    return -std::log(is_click ? probability : 1 - probability);
  }

 private:
  // A function of the seed, the column and the category.
  double weight(int column, int64_t value, int64_t size) const {
    const uint64_t cell = (static_cast<uint64_t>(column) << 48) + static_cast<uint64_t>(value);
    Random random(seed_ ^ 0x5bd1e995u, kernels::mixed_bits(cell));
    const double share = std::min(1.0, kLearnable / static_cast<double>(size));
    return random.normal() * kDeviation * std::sqrt(share);
  }

  uint64_t seed_;
  Random random_;
  std::array<int64_t, kCriteoCategories> sizes_{};
};

}  // namespace

Result<GeneratedClicks> generate_clicks(const ClickGeneratorOptions& options) {
  std::error_code ignored;  // opening the file then fails, and says why
  std::filesystem::create_directories(std::filesystem::path(options.path).parent_path(), ignored);
  Result<File> file = File::open(options.path, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.ok()) return file.error().blaming(Blame::kData);
  Generator generator(options);
  GeneratedClicks done{.rows = options.rows};
  const int64_t last_tenth = options.rows - std::max<int64_t>(options.rows / 10, 1);
  std::string text;
  for (int64_t row = 0; row < options.rows; ++row) {
    bool is_click = false;
    const double loss = generator.add_row(text, is_click);
    done.log_loss += loss;
    if (row >= last_tenth) done.log_loss_of_last_tenth += loss;
    done.clicks += is_click ? 1 : 0;
    if (text.size() < kBufferBytes && row + 1 < options.rows) continue;
    if (const Status written = file->write(text.data(), text.size()); !written.ok()) {
      return written.error().blaming(Blame::kData);
    }
    text.clear();
  }
  done.log_loss /= static_cast<double>(options.rows);
  done.log_loss_of_last_tenth /= static_cast<double>(options.rows - last_tenth);
  return done;
}

}  // namespace lockstep::train
