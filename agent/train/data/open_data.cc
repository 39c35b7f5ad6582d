#include "agent/train/data/open_data.h"

#include <span>
#include <string>
#include <utility>

#include "agent/train/data/image_samples.h"
#include "agent/train/data/image_source.h"
#include "agent/train/data/mapped_file.h"
#include "agent/train/data/masked_windows.h"
#include "agent/train/data/table_samples.h"
#include "agent/train/data/token_windows.h"

namespace lockstep::train {
namespace {

Result<PieceTable> open_pieces(const std::string& path, int64_t vocabulary) {
  TRY_ASSIGN(const std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  const std::span<const std::byte> bytes = file->bytes();
  Result<PieceTable> table =
      PieceTable::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!table.ok()) return invalid("[data] " + path + ": " + table.error().message, Blame::kData);
  if (table->count() <= vocabulary) return table;
  return invalid("[data] " + path + ": found " + std::to_string(table->count()) +
                     " pieces, expected at most the model's vocabulary of " +
                     std::to_string(vocabulary),
                 Blame::kData);
}

Result<OpenedData> open_text(const DataSpec& data, const ModelConfig& model) {
  TRY_ASSIGN(const TokenWidth width, token_width(data.tokenizer));
  TRY_ASSIGN(TokenSource source, TokenSource::open({data.path, width, model.vocabulary}));
  TRY_ASSIGN(const DataSplit split, split_data({.tokens = source.count(),
                                                .context = model.context,
                                                .validation_fraction = data.validationFraction},
                                               data.path));
  OpenedData opened;
  if (!data.pieces.empty()) {
    TRY_ASSIGN(opened.pieces, open_pieces(data.pieces, model.vocabulary));
  }
  opened.validation_begin = split.train_tokens;
  opened.text = std::make_unique<TokenSource>(std::move(source));
  if (!predicts_masked(model)) {
    opened.samples = std::make_unique<TokenWindows>(*opened.text, split);
    return opened;
  }
  opened.samples = std::make_unique<MaskedWindows>(
      *opened.text,
      MaskedWindowsOptions{.split = split,
                           .vocabulary = model.vocabulary,
                           .mask_token = static_cast<int32_t>(mask_token(data, model))});
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

Result<OpenedData> open_images(const DataSpec& data, const ConvnetConfig& model) {
  TRY_ASSIGN(std::unique_ptr<ImageSource> images, open_image_source(data, model));
  TRY_ASSIGN(
      std::unique_ptr<ImageSamples> samples,
      ImageSamples::create(std::move(images), {.model = model,
                                               .validation_fraction = data.validationFraction,
                                               .seed = static_cast<uint64_t>(data.seed),
                                               .flip = data.flip,
                                               .crop_padding = data.cropPadding,
                                               .mean = data.mean,
                                               .deviation = data.deviation}));
  OpenedData opened;
  opened.samples = std::move(samples);
  return opened;
}

}  // namespace

Result<OpenedData> open_data(const DataSpec& data, const ModelDesign& design) {
  if (const ModelConfig* transformer = transformer_of(design)) {
    return open_text(data, *transformer);
  }
  if (const auto* convnet = std::get_if<ConvnetConfig>(&design)) return open_images(data, *convnet);
  return open_table(data, std::get<MlpConfig>(design));
}

}  // namespace lockstep::train
