#include "agent/train/metrics_file.h"

#include <fcntl.h>

#include <cmath>
#include <string_view>

#include "common/api/progress_page.h"
#include "common/base/json.h"

namespace lockstep::train {
namespace {

constexpr size_t kBytesMax = size_t{1} << 30;

void put(Json& line, const char* key, double value) {
  if (std::isfinite(value)) line[key] = value;
}

// By the formula's name; nothing where no peak is known.
void put_ratios(Json& line, const char* key, const StepFlops& flops, double peak) {
  Json ratios = Json::object();
  put(ratios, "palm", flops_ratio(flops.palm, peak));
  put(ratios, "causal", flops_ratio(flops.causal, peak));
  if (!ratios.empty()) line[key] = std::move(ratios);
}

void put_flops(Json& line, const StepFlops& flops) {
  if (flops.palm > 0) {
    line["flopsPerSecond"] = {{"palm", flops.palm}, {"causal", flops.causal}};
  }
  put_ratios(line, "mfu", flops, flops.datasheet_peak);
  put_ratios(line, "mfuOfMeasuredPeak", flops, flops.measured_peak);
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
  put_flops(line, metrics.flops);
  return write_line(file_, line);
}

Status MetricsFile::add(const ValidationMetrics& metrics) {
  Json line = {{"step", metrics.step}};
  put(line, "validationLoss", metrics.loss);
  return write_line(file_, line);
}

}  // namespace lockstep::train
