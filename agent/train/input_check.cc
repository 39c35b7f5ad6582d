#include "agent/train/input_check.h"

#include <string>

#include "agent/train/data/token_check.h"
#include "agent/train/data/windows.h"
#include "agent/train/weights/import_weights.h"

namespace lockstep::train {
namespace {

Status check_data(const DataSpec& data, const ModelConfig& model) {
  TRY_ASSIGN(const TokenWidth width, token_width(data.tokenizer));
  TRY_ASSIGN(const TokenSource source, TokenSource::open({data.path, width, model.vocabulary}));
  TRY(split_data({.tokens = source.count(),
                  .context = model.context,
                  .validation_fraction = data.validationFraction},
                 data.path));
  return check_tokens(source);
}

// The field's path says more than the message's [place].
std::string problem_of(const std::string& field, const Error& error) {
  const std::string& text = error.message;
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return field + ": " + (end == std::string::npos ? text : text.substr(end + 2));
}

}  // namespace

Problems input_problems(const TrainSpec& train) {
  const ModelConfig model = model_config(train);
  Problems problems;
  if (const Status data = check_data(train.data, model); !data.ok()) {
    problems.push_back(problem_of("spec.train.data.path", data.error()));
  }
  const std::string& path = train.model.weights.path;
  if (path.empty()) return problems;
  if (const Status weights = check_weights(path, model); !weights.ok()) {
    problems.push_back(problem_of("spec.train.model.weights.path", weights.error()));
  }
  return problems;
}

}  // namespace lockstep::train
