#include "agent/train/data/open_data.h"

#include <utility>

#include "agent/train/data/table_samples.h"
#include "agent/train/data/token_windows.h"

namespace lockstep::train {
namespace {

Result<OpenedData> open_text(const DataSpec& data, const ModelConfig& model) {
  TRY_ASSIGN(const TokenWidth width, token_width(data.tokenizer));
  TRY_ASSIGN(TokenSource source, TokenSource::open({data.path, width, model.vocabulary}));
  TRY_ASSIGN(const DataSplit split, split_data({.tokens = source.count(),
                                                .context = model.context,
                                                .validation_fraction = data.validationFraction},
                                               data.path));
  OpenedData opened;
  opened.text = std::make_unique<TokenSource>(std::move(source));
  opened.samples = std::make_unique<TokenWindows>(*opened.text, split);
  return opened;
}

Result<OpenedData> open_table(const DataSpec& data, const MlpConfig& model) {
  TRY_ASSIGN(
      TableSource table,
      TableSource::open({.features = data.features, .targets = data.targets, .model = model}));
  TRY_ASSIGN(std::unique_ptr<TableSamples> samples,
             TableSamples::create(std::move(table), data.validationFraction));
  OpenedData opened;
  opened.samples = std::move(samples);
  return opened;
}

}  // namespace

Result<OpenedData> open_data(const DataSpec& data, const ModelDesign& design) {
  if (const ModelConfig* transformer = transformer_of(design)) {
    return open_text(data, *transformer);
  }
  return open_table(data, std::get<MlpConfig>(design));
}

}  // namespace lockstep::train
