#include "agent/train/metrics_file.h"

#include <fcntl.h>

#include <string_view>

#include "common/api/step_number_table.h"
#include "common/base/json.h"

namespace lockstep::train {
namespace {

constexpr size_t kBytesMax = size_t{1} << 30;

}  // namespace

size_t metrics_prefix(std::string_view text, int64_t step) {
  size_t kept = 0;
  while (kept < text.size()) {
    const size_t end = text.find('\n', kept);
    if (end == std::string_view::npos) break;
    const Result<Json> line = parse_json(text.substr(kept, end - kept), {.depth_max = 4});
    if (!line.ok() || !line->is_object()) break;
    const Result<int64_t> at = int_member(*line, "step");
    const bool again = at.ok() && *at == step && line->contains("validationLoss");
    if (!at.ok() || *at > step || again) break;
    kept = end + 1;
  }
  return kept;
}

Result<MetricsFile> MetricsFile::open(const std::string& path, int64_t step) {
  TRY_ASSIGN(File file, File::open(path, O_RDWR | O_CREAT | O_APPEND));
  TRY_ASSIGN(const uint64_t bytes, file.size());
  if (bytes > 0) {
    TRY_ASSIGN(const std::string text, read_small_file(path, kBytesMax));
    TRY(file.truncate(metrics_prefix(text, step)));
  }
  return MetricsFile(std::move(file));
}

Status MetricsFile::add(const StepNumbers& numbers) {
  const std::string text = dump_json(metrics_line(numbers)) + "\n";
  return file_.write(text.data(), text.size());
}

}  // namespace lockstep::train
