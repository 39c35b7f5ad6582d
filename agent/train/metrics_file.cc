#include "agent/train/metrics_file.h"

#include <fcntl.h>

#include <string_view>
#include <utility>

#include "common/api/step_number_table.h"
#include "common/base/json.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

constexpr size_t kBytesMax = size_t{1} << 30;

}  // namespace

MetricsPrefix metrics_prefix(std::string_view text, int64_t step, bool validates_again) {
  MetricsPrefix kept;
  while (kept.bytes < text.size()) {
    const size_t end = text.find('\n', kept.bytes);
    if (end == std::string_view::npos) break;
    const Result<Json> line =
        parse_json(text.substr(kept.bytes, end - kept.bytes), {.depth_max = 4});
    if (!line.ok() || !line->is_object()) break;
    const Result<int64_t> at = int_member(*line, "step");
    const bool again =
        validates_again && at.ok() && *at == step && line->contains("validationLoss");
    if (!at.ok() || *at > step || again) break;
    kept = {.bytes = end + 1, .last_step = *at};
  }
  return kept;
}

Result<MetricsFile> MetricsFile::open(const std::string& path, int64_t step, bool validates_again) {
  TRY_ASSIGN(File file, File::open(path, O_RDWR | O_CREAT | O_APPEND));
  TRY_ASSIGN(const uint64_t bytes, file.size());
  MetricsPrefix kept;
  if (bytes > 0) {
    TRY_ASSIGN(const std::string text, read_small_file(path, kBytesMax));
    kept = metrics_prefix(text, step, validates_again);
    TRY(file.truncate(kept.bytes));
  }
  return MetricsFile(std::move(file), kept.bytes, kept.last_step);
}

// It would end the part that can be read. Another process may have added lines of its own. Errors
// change nothing: add() has a lost line to report already.
void MetricsFile::remove_half_line(uint64_t bytes_max) {
  const Result<uint64_t> size = file_.size();
  if (size.ok() && *size > bytes_ && *size <= bytes_ + bytes_max) (void)file_.truncate(bytes_);
}

void MetricsFile::add(const StepNumbers& numbers) {
  const std::string text = dump_json(metrics_line(numbers)) + "\n";
  const Status written = file_.write(text.data(), text.size());
  if (written.ok()) {
    bytes_ += text.size();
    return;
  }
  remove_half_line(text.size());
  if (std::exchange(has_lost_lines_, true)) return;
  log_warning("lines of metrics are lost", {{"reason", written.error().message}});
}

}  // namespace lockstep::train
