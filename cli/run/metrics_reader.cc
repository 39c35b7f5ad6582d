#include "cli/run/metrics_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "common/api/step_number_table.h"
#include "common/base/json.h"

namespace lockstep::cli {
namespace {

constexpr size_t kLineBytesMax = 64u << 10;
constexpr size_t kReadBytes = 256u << 10;

}  // namespace

void MetricsReader::reread() {
  *this = MetricsReader(std::move(file_));
  poll();
}

void MetricsReader::poll() {
  struct stat info {};
  if (stat(file_.c_str(), &info) != 0) return;
  if (info.st_ino != inode_ || static_cast<uint64_t>(info.st_size) < offset_) {
    *this = MetricsReader(std::move(file_));
    inode_ = info.st_ino;
  }
  std::ifstream stream(file_, std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(offset_));
  std::string block(kReadBytes, '\0');
  while (stream.read(block.data(), static_cast<std::streamsize>(block.size())),
         stream.gcount() > 0) {
    auto bytes = static_cast<size_t>(stream.gcount());
    offset_ += bytes;
    rest_.append(block, 0, bytes);
    size_t begin = 0;
    for (size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1)
      take_line(rest_.substr(begin, end - begin));
    rest_.erase(0, begin);
    if (rest_.size() > kLineBytesMax) rest_.clear();
  }
}

void MetricsReader::take_line(const std::string& line) {
  Result<Json> parsed = parse_json(line, {.bytes_max = kLineBytesMax, .depth_max = 8});
  if (!parsed.ok() || !parsed->is_object()) return;
  const StepNumbers numbers = numbers_from_metrics_line(*parsed);
  const int64_t step = numbers.step.value_or(-1);
  if (step < 0) return;
  if (numbers.validation_loss) {
    validation_losses_[step] = *numbers.validation_loss;
    newest_.validation_loss_per_byte = numbers.validation_loss_per_byte;
    newest_.validation_accuracy = numbers.validation_accuracy;
    newest_.validation_top5_accuracy = numbers.validation_top5_accuracy;
    newest_.validation_auc = numbers.validation_auc;
    return;
  }
  // A repeated step: the job continued from an earlier one.
  losses_.erase(losses_.lower_bound(step), losses_.end());
  rates_.erase(rates_.lower_bound(step), rates_.end());
  validation_losses_.erase(validation_losses_.lower_bound(step), validation_losses_.end());
  if (numbers.loss) losses_[step] = *numbers.loss;
  update(newest_, numbers);
  rates_[step] = newest_.tokens_per_second.value_or(0);
}

double MetricsReader::median_tokens_per_second() const {
  if (rates_.empty()) return 0;
  std::vector<double> sorted;
  for (const auto& [step, rate] : rates_) sorted.push_back(rate);
  auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace lockstep::cli
