#include "cli/tokenize/commands.h"

#include <bit>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <system_error>

#include "cli/tokenize/gpt2_tokenizer.h"
#include "cli/tokenize/new_file.h"
#include "cli/tokenize/text_files.h"
#include "cli/tokenize/text_progress.h"
#include "cli/tokenize/text_sample.h"
#include "cli/tokenize/tokenize_files.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kModelBytesMax = size_t{256} << 20;
constexpr int64_t kU16Values = 65536;

Error in_path(const std::string& path, const Error& error) {
  return error.with_message("[tokenize] " + path + ": " + error.message);
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    TRY_ASSIGN(const std::string vocabulary, read_whole_file(path + "/vocab.json", kModelBytesMax));
    TRY_ASSIGN(const std::string merges, read_whole_file(path + "/merges.txt", kModelBytesMax));
    Result<std::unique_ptr<Tokenizer>> made = make_gpt2_tokenizer({vocabulary, merges});
    return made.ok() ? std::move(made) : in_path(path, made.error());
  }
  TRY_ASSIGN(const std::string model, read_whole_file(path, kModelBytesMax));
  Result<std::unique_ptr<Tokenizer>> made = make_sentencepiece_tokenizer(model);
  return made.ok() ? std::move(made) : in_path(path, made.error());
}

// Writes ids in the width of the file, little-endian.
class TokenFile {
 public:
  TokenFile(NewFile& file, bool is_narrow) : file_(file), is_narrow_(is_narrow) {}

  Status write(std::span<const uint32_t> ids) {
    static_assert(std::endian::native == std::endian::little);
    if (!is_narrow_) return file_.write(ids.data(), ids.size_bytes());
    narrow_.assign(ids.begin(), ids.end());
    return file_.write(narrow_.data(), narrow_.size() * sizeof(uint16_t));
  }

 private:
  NewFile& file_;
  bool is_narrow_;
  std::vector<uint16_t> narrow_;
};

Result<std::optional<uint32_t>> end_id(const Tokenizer& tokenizer, const ApplyOptions& options) {
  if (options.end.empty()) return std::optional<uint32_t>();
  const int64_t id = tokenizer.id_of(options.end);
  if (id >= 0) return std::optional(static_cast<uint32_t>(id));
  return invalid("[tokenize] --end: " + options.model + " has no piece " + options.end);
}

void tell_result(const TokenizedCounts& counts, const Tokenizer& tokenizer,
                 const ApplyOptions& options, const std::string& width) {
  const std::string name = fs::path(options.output).filename().string();
  std::printf("%s.%s: %" PRIu64 " tokens of %" PRIu64 " bytes, %.3f bytes a token\n",
              options.output.c_str(), width.c_str(), counts.tokens, counts.bytes,
              static_cast<double>(counts.bytes) / static_cast<double>(counts.tokens));
  std::printf("%s.pieces: %" PRId64 " pieces\n", options.output.c_str(),
              tokenizer.pieces().count());
  std::printf("In a job in the same folder:\n");
  std::printf("    model: {vocabulary: %" PRId64 "}\n", tokenizer.pieces().count());
  std::printf("    data: {path: %s.%s, tokenizer: %s, pieces: %s.pieces}\n", name.c_str(),
              width.c_str(), width.c_str(), name.c_str());
}

// If only the first of two files got its name, it loses it again.
Status publish_both(NewFile& first, NewFile& second) {
  TRY(first.publish());
  const Status published = second.publish();
  if (!published.ok()) first.withdraw();
  return published;
}

}  // namespace

Status apply_tokenizer(const ApplyOptions& options, const Clock& clock,
                       const std::function<bool()>& is_interrupted) {
  TRY_ASSIGN(const std::vector<TextFile> files, find_text_files(options.texts));
  TRY_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, open_tokenizer(options.model));
  const PieceTable& pieces = tokenizer->pieces();
  const bool is_narrow = pieces.count() <= kU16Values;
  const std::string width = is_narrow ? "u16" : "u32";
  TRY_ASSIGN(const std::optional<uint32_t> end, end_id(*tokenizer, options));
  TRY_ASSIGN(NewFile piece_file, NewFile::create(options.output + ".pieces"));
  TRY_ASSIGN(NewFile token_file, NewFile::create(options.output + "." + width));
  const std::string table = pieces.format();
  TRY(piece_file.write(table.data(), table.size()));
  TokenFile tokens(token_file, is_narrow);
  TokenizedCounts counts;
  {
    TextProgress progress(bytes_of(files), clock);
    TRY_ASSIGN(counts, tokenize_files(
                           *tokenizer, {.files = files, .end = end, .threads = options.threads},
                           [&](std::span<const uint32_t> ids) { return tokens.write(ids); },
                           [&](const TokenizedCounts& so_far) -> Status {
                             if (is_interrupted()) return unavailable("[tokenize] interrupted");
                             progress.show(so_far);
                             return {};
                           }));
  }
  if (counts.tokens == 0) return invalid("[tokenize] the text is empty, expected at least a token");
  TRY(publish_both(piece_file, token_file));
  tell_result(counts, *tokenizer, options, width);
  return {};
}

Status train_tokenizer(const TrainOptions& options, const Clock& clock) {
  TRY_ASSIGN(const std::vector<TextFile> files, find_text_files(options.texts));
  TRY_ASSIGN(NewFile file, NewFile::create(options.output));
  TextSample sample({.files = files, .bytes_max = options.sample_bytes});
  const bool is_bpe = options.training.kind == SentencepieceKind::kBpe;
  std::fprintf(stderr, "training a %s model of %" PRId64 " pieces on %.1f MB of %.1f MB\n",
               is_bpe ? "bpe" : "unigram", options.training.vocabulary,
               static_cast<double>(sample.bytes()) / 1e6,
               static_cast<double>(bytes_of(files)) / 1e6);
  const TimePoint begin = clock.now();
  const Result<std::string> model = train_sentencepiece(options.training, sample);
  if (!model.ok()) {
    return model.error().with_message("[tokenize] " + options.output + ": " +
                                      model.error().message);
  }
  TRY(file.write(model->data(), model->size()));
  TRY(file.publish());
  std::printf("%s: %" PRId64 " pieces, after %.1f s\n", options.output.c_str(),
              options.training.vocabulary, to_seconds(clock.now() - begin));
  return {};
}

}  // namespace lockstep::cli
