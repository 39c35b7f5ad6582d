#include "agent/train/input_check.h"

#include <string>

#include "agent/train/clicks/click_log.h"
#include "agent/train/data/open_data.h"
#include "agent/train/weights/import_weights.h"

namespace lockstep::train {
namespace {

Status check_data(const DataSpec& data, const ModelDesign& design) {
  TRY_ASSIGN(const OpenedData opened, open_data(data, design));
  return opened.samples->check();
}

// The field's path says more than the message's [place].
std::string problem_of(const std::string& field, const Error& error) {
  const std::string& text = error.message;
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return field + ": " + (end == std::string::npos ? text : text.substr(end + 2));
}

// Returns the field of the file that the error is about.
std::string data_field(const DataSpec& data, const Error& error) {
  const auto is_about = [&](const std::string& file) {
    return !file.empty() && error.message.starts_with("[data] " + file + ":");
  };
  if (is_about(data.pieces)) return "spec.train.data.pieces";
  if (is_about(data.targets)) return "spec.train.data.targets";
  return data.features.empty() ? "spec.train.data.path" : "spec.train.data.features";
}

}  // namespace

Problems input_problems(const TrainSpec& train) {
  if (is_click_family(train.model.family)) {
    const auto log = ClickLog::open(train.data);
    if (log.ok()) return {};
    return {problem_of("spec.train.data.path", log.error())};
  }
  const ModelDesign design = model_design(train);
  Problems problems;
  if (const Status data = check_data(train.data, design); !data.ok()) {
    problems.push_back(problem_of(data_field(train.data, data.error()), data.error()));
  }
  const std::string& path = train.model.weights.path;
  const ModelConfig* transformer = transformer_of(design);
  if (path.empty() || transformer == nullptr) return problems;
  if (const Status weights = check_weights(path, *transformer); !weights.ok()) {
    problems.push_back(problem_of("spec.train.model.weights.path", weights.error()));
  }
  return problems;
}

}  // namespace lockstep::train
