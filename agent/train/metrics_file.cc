#include "agent/train/metrics_file.h"

#include <fcntl.h>

#include <cmath>
#include <string_view>

#include "common/base/json.h"

namespace lockstep {
namespace {

constexpr size_t kBytesMax = size_t{1} << 30;

void put(Json& line, const char* key, double value) {
  if (std::isfinite(value)) line[key] = value;
}

Status write_line(File& file, const Json& line) {
  const std::string text = dump_json(line) + "\n";
  return file.write(text.data(), text.size());
}

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

Status MetricsFile::add(const StepMetrics& metrics) {
  const StepSeconds& seconds = metrics.seconds;
  Json parts = Json::object();
  put(parts, "data", seconds.data);
  put(parts, "forward", seconds.forward);
  put(parts, "backward", seconds.backward);
  put(parts, "communication", seconds.communication);
  put(parts, "update", seconds.update);
  put(parts, "total", seconds.total);
  Json line = {{"step", metrics.step}, {"seconds", std::move(parts)}};
  put(line, "loss", metrics.loss);
  put(line, "learningRate", metrics.learning_rate);
  put(line, "gradientNorm", metrics.gradient_norm);
  put(line, "tokensPerSecond", metrics.tokens_per_second);
  return write_line(file_, line);
}

Status MetricsFile::add(const ValidationMetrics& metrics) {
  Json line = {{"step", metrics.step}};
  put(line, "validationLoss", metrics.loss);
  return write_line(file_, line);
}

}  // namespace lockstep
