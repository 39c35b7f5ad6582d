#include "cli/run/metrics_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>

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
  int64_t step = int_or(*parsed, "step", -1);
  if (step < 0) return;
  if (const Json* loss = find_member(*parsed, "validationLoss"); loss && loss->is_number()) {
    validation_losses_[step] = loss->get<double>();
    return;
  }
  // A repeated step: the job continued from an earlier one.
  losses_.erase(losses_.lower_bound(step), losses_.end());
  rates_.erase(rates_.lower_bound(step), rates_.end());
  validation_losses_.erase(validation_losses_.lower_bound(step), validation_losses_.end());
  if (const Json* loss = find_member(*parsed, "loss"); loss && loss->is_number())
    losses_[step] = loss->get<double>();
  tokens_per_second_ = number_or(*parsed, "tokensPerSecond", tokens_per_second_);
  rates_[step] = tokens_per_second_;
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
